#pragma once
// An ExpertSource that holds all experts of a packed model in memory. open() reads them; then every fetch is
// a hit.
//
// For models that fit, and for tests. Owns its memory; the model is used only while opening. Threads: as
// ExpertSource.

#include <memory>
#include <vector>

#include "base/memory/aligned_buffer.h"
#include "base/result.h"
#include "experts/expert_source.h"
#include "model/packed_model.h"

namespace moeflux {

class ResidentExperts final : public ExpertSource {
 public:
  // Bytes of memory that open() allocates.
  static std::uint64_t bytes_of(const PackedModel& model);

  static Result<std::unique_ptr<ResidentExperts>> open(const PackedModel& model);

  std::uint32_t lease_limit() const override { return kNoLimit; }
  const ResidencyMap& residency() const override { return residency_; }

 private:
  static constexpr std::uint32_t kNoLimit = 1u << 30;

  explicit ResidentExperts(std::span<const std::uint32_t> first_record)
      : residency_(first_record, Residency::ready) {}

  void start(LayerId layer, std::span<const std::uint32_t> wanted, FetchOrder order) override;
  Result<std::optional<ReadyExpert>> next_ready() override;
  bool is_one_ready() const override { return next_ < wanted_.size(); }
  void stop() override;
  void release(std::uint32_t slot) override;

  struct Layer {
    HugeBuffer memory;
    std::vector<ExpertView> experts;  // by id; empty for a layer without routed experts
    std::uint32_t first_record = 0;
  };
  std::vector<Layer> layers_;
  ResidencyMap residency_;

  // The current Fetch.
  const Layer* layer_ = nullptr;
  std::span<const std::uint32_t> wanted_;
  std::size_t next_ = 0;
};

}  // namespace moeflux
