#pragma once
// Provides a layer with its experts.
//
// In each step a layer begins one Fetch with the experts that any row of the batch wants, and takes them as
// they become ready. A Lease pins an expert in memory while the layer computes with it. A caller that holds
// lease_limit() leases returns one before it asks for more, so a source with room for a single expert makes
// progress.
//
//   Fetch fetch = source.begin(layer, wanted, order);
//   while (...) { MF_TRY(std::optional<Lease> lease, fetch.next()); if (!lease) break; ... }
//
// Destroying a Fetch cancels the experts that were not returned. Leases may outlive the Fetch but not the
// source. A source serves one Fetch at a time. One thread at a time, except for published_statistics() and
// residency(), which any thread may read at any time without waiting. begin() and next() allocate nothing.

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "base/ids.h"
#include "base/result.h"
#include "experts/expert_statistics.h"
#include "experts/residency_map.h"
#include "quant/tile16.h"

namespace moeflux {

// The three matrices of a routed expert, in memory.
struct ExpertView {
  tile16::TiledMatrix gate, up, down;
};

enum class FetchOrder {
  ready_first,  // those in memory first; for few rows, whose outputs are stored and summed at the end
  ascending,    // by id; for many rows, whose outputs are summed as they are computed
};

struct ExpertCounters {
  std::uint64_t fetches = 0;  // Fetches begun
  std::uint64_t served = 0;   // leases returned
  friend bool operator==(const ExpertCounters&, const ExpertCounters&) = default;
};

class Fetch;
class Lease;

class ExpertSource {
 public:
  virtual ~ExpertSource() = default;

  // `wanted`: ascending, without duplicates, alive until the Fetch ends. Requires: no other Fetch is open.
  Fetch begin(LayerId layer, std::span<const std::uint32_t> wanted, FetchOrder order);

  // Most leases at a time; at least 1.
  virtual std::uint32_t lease_limit() const = 0;

  // Predicts that `layer` will want these experts, likeliest first; `confidence` is 0–1. Replaces the
  // previous hint for that layer. Never blocks and never fails. Changes when experts are read, never what is
  // computed.
  virtual void hint(LayerId, std::span<const std::uint32_t>, float) {}
  virtual void forget_hints() {}  // of all layers
  // Collects the reads that have ended and submits the next ones. Never blocks and never fails: a read error
  // is reported by Fetch::next(). A source has no thread of its own, so a drive runs dry while its caller
  // computes. A compute loop therefore calls this after every product (Ops::set_after_product). Costs next
  // to nothing if no read has ended; a no-op for sources that do not stream.
  virtual void advance_reads() {}

  const ExpertCounters& counters() const { return counters_; }
  virtual ExpertStatistics statistics() const { return {}; }

  // ---- Any thread ----
  // The statistics as of a moment between two fetches: the end of the last fetch, or later. So wanted() is
  // the number of experts that all fetches up to then wanted, and no counter ever decreases.
  virtual ExpertStatistics published_statistics() const { return {}; }
  // Which experts are in memory now. Valid as long as the source.
  virtual const ResidencyMap& residency() const = 0;

 protected:
  ExpertSource() = default;

  struct ReadyExpert {
    ExpertId expert;
    ExpertView view;
    std::uint32_t slot;  // passed to release()
  };

 private:
  friend class Fetch;
  friend class Lease;

  virtual void start(LayerId layer, std::span<const std::uint32_t> wanted, FetchOrder order) = 0;
  // Returns the next ready expert of the current Fetch, or nullopt when all were served. Blocks until one is
  // ready.
  virtual Result<std::optional<ReadyExpert>> next_ready() = 0;
  virtual bool is_one_ready() const = 0;
  virtual void stop() = 0;  // the Fetch has ended, complete or not
  virtual void release(std::uint32_t slot) = 0;

  ExpertCounters counters_;
};

// Pins one expert for as long as the Lease lives. Move-only.
class Lease {
 public:
  Lease(Lease&& other) noexcept : source_(std::exchange(other.source_, nullptr)), ready_(other.ready_) {}
  Lease& operator=(Lease&& other) noexcept {
    Lease taken(std::move(other));
    std::swap(source_, taken.source_);
    std::swap(ready_, taken.ready_);
    return *this;
  }
  ~Lease() {
    if (source_ != nullptr) source_->release(ready_.slot);
  }

  ExpertId expert() const { return ready_.expert; }
  const ExpertView& view() const { return ready_.view; }

 private:
  friend class Fetch;
  Lease(ExpertSource& source, ExpertSource::ReadyExpert ready) : source_(&source), ready_(ready) {}

  ExpertSource* source_;
  ExpertSource::ReadyExpert ready_;
};

// Hands out the experts that one layer wants in one step. Move-only.
class Fetch {
 public:
  Fetch(Fetch&& other) noexcept : source_(std::exchange(other.source_, nullptr)), layer_(other.layer_) {}
  Fetch& operator=(Fetch&&) = delete;
  ~Fetch() {
    if (source_ != nullptr) source_->stop();
  }

  LayerId layer() const { return layer_; }

  // Whether next() would return an expert without waiting. False when all have been returned.
  bool is_one_ready() const { return source_->is_one_ready(); }

  // Waits until an expert is ready and leases it. Returns nullopt when all have been returned. Do not call
  // it again after an error.
  Result<std::optional<Lease>> next() {
    MF_TRY(const std::optional<ExpertSource::ReadyExpert> ready, source_->next_ready());
    if (!ready) return std::optional<Lease>();
    ++source_->counters_.served;
    return std::optional<Lease>(Lease(*source_, *ready));
  }

 private:
  friend class ExpertSource;
  Fetch(ExpertSource& source, LayerId layer) : source_(&source), layer_(layer) {}

  ExpertSource* source_;
  LayerId layer_;
};

inline Fetch ExpertSource::begin(LayerId layer, std::span<const std::uint32_t> wanted, FetchOrder order) {
  ++counters_.fetches;
  start(layer, wanted, order);
  return Fetch(*this, layer);
}

}  // namespace moeflux
