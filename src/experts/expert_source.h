#pragma once
// Where a layer gets its experts from.
//
// A layer begins one Fetch a step with the experts that any row of the batch wants, and takes them from it as
// they become ready. A Lease pins an expert in memory while it is computed with. A caller that holds lease_limit()
// leases gives one back before it asks for more, so a source with room for a single expert makes progress.
//
//   Fetch fetch = source.begin(layer, wanted, order);
//   while (...) { MF_TRY(std::optional<Lease> lease, fetch.next()); if (!lease) break; ... }
//
// Dropping a Fetch cancels what was not handed out; leases may outlive it, but not the source. A source serves one
// Fetch at a time, from one thread. begin() and next() allocate nothing.

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "base/ids.h"
#include "base/result.h"
#include "experts/expert_statistics.h"
#include "quant/tile16.h"

namespace moeflux {

// The three matrices of a routed expert, in memory.
struct ExpertView {
  tile16::TiledMatrix gate, up, down;
};

enum class FetchOrder {
  ready_first,  // those in memory first; for few rows, whose outputs are kept and added up later
  ascending,    // by id; for many rows, whose outputs are added up as they come
};

struct ExpertCounters {
  std::uint64_t fetches = 0;     // begun
  std::uint64_t handed_out = 0;  // leases
  friend bool operator==(const ExpertCounters&, const ExpertCounters&) = default;
};

class Fetch;
class Lease;

class ExpertSource {
 public:
  virtual ~ExpertSource() = default;

  // `wanted`: ascending, each once, and alive until the Fetch ends.
  Fetch begin(LayerId layer, std::span<const std::uint32_t> wanted, FetchOrder order);

  // How many leases there may be at a time; at least 1.
  virtual std::uint32_t lease_limit() const = 0;

  // A guess that `layer` will want these experts, likeliest first; `confidence` 0 to 1. It takes the place of the last
  // one for that layer. Never blocks and never fails; changes when things are read, never what is computed.
  virtual void hint(LayerId, std::span<const std::uint32_t>, float) {}
  virtual void forget_hints() {}  // all of them
  // Lets reads go on. For callers that compute for a while; costs next to nothing.
  virtual void poll() {}

  const ExpertCounters& counters() const { return counters_; }
  virtual ExpertStatistics statistics() const { return {}; }

 private:
  friend class Fetch;
  friend class Lease;

  struct Handout {
    ExpertId expert;
    ExpertView view;
    std::uint32_t slot;  // what release() gets
  };

  virtual void start(LayerId layer, std::span<const std::uint32_t> wanted, FetchOrder order) = 0;
  // The next expert of the current Fetch; nothing when all were handed out. Blocks until one is ready.
  virtual Result<std::optional<Handout>> hand_out() = 0;
  virtual bool is_one_ready() const = 0;
  virtual void stop() = 0;  // the Fetch is over, finished or not
  virtual void release(std::uint32_t slot) = 0;

  ExpertCounters counters_;

 protected:
  ExpertSource() = default;
  using HandedOut = Handout;
};

// The right to use one expert, for as long as it lives. Move-only.
class Lease {
 public:
  Lease(Lease&& other) noexcept : source_(std::exchange(other.source_, nullptr)), handout_(other.handout_) {}
  Lease& operator=(Lease&& other) noexcept {
    Lease taken(std::move(other));
    std::swap(source_, taken.source_);
    std::swap(handout_, taken.handout_);
    return *this;
  }
  ~Lease() {
    if (source_ != nullptr) source_->release(handout_.slot);
  }

  ExpertId expert() const { return handout_.expert; }
  const ExpertView& view() const { return handout_.view; }

 private:
  friend class Fetch;
  Lease(ExpertSource& source, ExpertSource::Handout handout) : source_(&source), handout_(handout) {}

  ExpertSource* source_;
  ExpertSource::Handout handout_;
};

// The experts that one layer wants in one step. Move-only.
class Fetch {
 public:
  Fetch(Fetch&& other) noexcept : source_(std::exchange(other.source_, nullptr)), layer_(other.layer_) {}
  Fetch& operator=(Fetch&&) = delete;
  ~Fetch() {
    if (source_ != nullptr) source_->stop();
  }

  LayerId layer() const { return layer_; }

  // Whether next() would answer with an expert at once. False when all have been handed out.
  bool is_one_ready() const { return source_->is_one_ready(); }

  // The next expert, as soon as one is ready; nothing when all have been handed out. After an error it is over.
  Result<std::optional<Lease>> next() {
    MF_TRY(const std::optional<ExpertSource::Handout> handout, source_->hand_out());
    if (!handout) return std::optional<Lease>();
    ++source_->counters_.handed_out;
    return std::optional<Lease>(Lease(*source_, *handout));
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
