#pragma once
// An ExpertSource that fails on request and records how its leases are used.
//
// It wraps another source and hands out the same experts. The test owns the Control and may read it at any
// time; the caller that runs the model owns the source. Test code only. One thread at a time.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "experts/expert_source.h"

namespace moeflux {

class FailingExperts final : public ExpertSource {
 public:
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  struct Control {
    // Set by the test.
    std::uint64_t fail_at = kNever;  // index of the call that fails; begin() and each next() count as calls
    std::uint64_t fail_every = kNever;  // each call whose number it divides fails as well
    std::string message = "the drive is gone";
    std::uint32_t lease_limit = 1u << 30;
    bool last_first = false;  // ready_first fetches hand out the last expert first
    bool one_by_one = false;  // is_one_ready() is always false

    // Set by the source.
    std::uint64_t calls = 0;
    std::uint32_t leases = 0;       // held now
    std::uint32_t most_leases = 0;  // held at one time
    bool is_fetching = false;
  };

  FailingExperts(std::unique_ptr<ExpertSource> source, Control& control)
      : source_(std::move(source)), control_(control) {}

  std::uint32_t lease_limit() const override { return control_.lease_limit; }
  const ResidencyMap& residency() const override { return source_->residency(); }

 private:
  bool fails_now() {
    const std::uint64_t call = control_.calls++;
    return call == control_.fail_at || call % control_.fail_every == control_.fail_every - 1;
  }
  Error failure() const { return Error(ErrorCode::io_failed, control_.message); }

  void start(LayerId layer, std::span<const std::uint32_t> wanted, FetchOrder order) override {
    MF_REQUIRE(!control_.is_fetching, "one Fetch at a time");
    MF_REQUIRE(control_.leases == 0, "tests of this source return all leases before the next Fetch");
    MF_REQUIRE(std::ranges::adjacent_find(wanted, std::ranges::greater_equal()) == wanted.end(),
               "experts are wanted in ascending order, each once");
    control_.is_fetching = true;
    has_failed_ = fails_now();
    next_ = 0;
    slots_.clear();
    Fetch fetch = source_->begin(layer, wanted, FetchOrder::ascending);
    while (true) {
      Result<std::optional<Lease>> lease = fetch.next();
      MF_REQUIRE(lease, "the source behind this one works");
      if (!*lease) break;
      slots_.push_back(std::move(*lease));
    }
    if (control_.last_first && order == FetchOrder::ready_first) std::ranges::reverse(slots_);
  }

  Result<std::optional<ReadyExpert>> next_ready() override {
    if (has_failed_ || fails_now()) {
      has_failed_ = true;
      return failure();
    }
    if (next_ == slots_.size()) return std::optional<ReadyExpert>();
    MF_REQUIRE(control_.leases < control_.lease_limit, "a lease is given back before one more is asked for");
    control_.most_leases = std::max(control_.most_leases, ++control_.leases);
    const Lease& lease = *slots_[next_];
    return std::optional<ReadyExpert>({lease.expert(), lease.view(), static_cast<std::uint32_t>(next_++)});
  }

  bool is_one_ready() const override {
    return !control_.one_by_one && next_ < slots_.size() && control_.leases < control_.lease_limit;
  }
  void stop() override { control_.is_fetching = false; }
  void release(std::uint32_t slot) override {
    slots_[slot].reset();
    --control_.leases;
  }

  std::unique_ptr<ExpertSource> source_;
  Control& control_;
  std::vector<std::optional<Lease>> slots_;  // in the order in which they are handed out
  std::size_t next_ = 0;
  bool has_failed_ = false;
};

}  // namespace moeflux
