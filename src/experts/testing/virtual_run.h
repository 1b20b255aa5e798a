#pragma once
// Runs a model in virtual time: a real scheduler, scripted compute times, and a DriveModel that computes when
// reads end. Nothing waits, and every run is the same. Test code only. One thread at a time.
//
// A layer runs in the order of layers/moe.cpp: up to its router; the fetch; the shared expert and the experts
// in memory, while the others are read; then the others as they become ready. As in the engine, the scheduler
// sees completions only between operations.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "experts/drive_rate.h"
#include "experts/scheduler.h"
#include "io/drive/drive_model.h"

namespace moeflux {

using VirtualTime = std::chrono::nanoseconds;

// Compute times of a layer.
struct VirtualWork {
  VirtualTime before_router{0}, shared{0}, expert{0};
  VirtualTime longest_operation{100'000};  // completions are collected at least this often
};

using VirtualToken = std::vector<std::vector<std::uint32_t>>;  // [layers][wanted]

class VirtualRun {
 public:
  // A predictor: gives hints when a layer of a token begins.
  using Guess = std::function<void(std::size_t token, std::uint32_t layer, ExpertScheduler& scheduler)>;

  VirtualRun(ExpertScheduler& scheduler, const SimulatedDriveSpeed& speed, const VirtualWork& work)
      : scheduler_(scheduler), drive_(speed), speed_(speed), work_(work) {}

  // Calls `check` after every event of the scheduler.
  void after_every_event(std::function<void()> check) { check_ = std::move(check); }

  // `bound` is the time without guesses: the layers up to their routers, then the longer of reading and
  // computing what is in memory, then computing what was read.
  struct Step {
    VirtualTime took{0};
    VirtualTime bound{0};
    VirtualTime compute{0};
    VirtualTime read{0};  // time to read the missing records at full speed
  };

  Step step(std::size_t token, const VirtualToken& wanted, const Guess& guess = {}) {
    Step step;
    const VirtualTime begin = now_;
    for (std::uint32_t layer = 0; layer < wanted.size(); ++layer) {
      if (guess) guess(token, layer, scheduler_);
      check_();
      compute(work_.before_router);
      const ExpertStatistics before = scheduler_.statistics();
      scheduler_.begin_fetch(LayerId(layer), wanted[layer], FetchOrder::ready_first);
      const ExpertStatistics found = scheduler_.statistics() - before;
      check_();
      advance_reads();
      compute(work_.shared);
      visit_all();
      scheduler_.end_fetch();
      check_();

      const auto here = static_cast<std::int64_t>(found.hits);
      const auto missed = static_cast<std::int64_t>(found.misses + found.late);
      const VirtualTime read =
          missed == 0 ? VirtualTime(0) : speed_.latency + transfer(missed * record_bytes());
      step.bound +=
          work_.before_router + std::max(here * work_.expert + work_.shared, read) + missed * work_.expert;
      step.compute += work_.before_router + work_.shared + (here + missed) * work_.expert;
      step.read += transfer(missed * record_bytes());
    }
    step.took = now_ - begin;
    return step;
  }

  VirtualTime now() const { return now_; }
  std::int64_t record_bytes() const {
    return static_cast<std::int64_t>(scheduler_.table().slabs[0].record_bytes);
  }

 private:
  struct InFlight {
    std::uint64_t tag;
    VirtualTime end;
  };

  VirtualTime transfer(std::int64_t bytes) const {
    return VirtualTime(static_cast<std::int64_t>(static_cast<double>(bytes) * 1e9 /
                                                 static_cast<double>(speed_.bytes_per_second)));
  }

  void advance_reads() {
    while (!in_flight_.empty() && in_flight_.front().end <= now_) {
      rate_.completed(now_, scheduler_.piece_of(in_flight_.front().tag).bytes);
      scheduler_.complete(in_flight_.front().tag, true);
      check_();
      in_flight_.pop_front();
    }
    scheduler_.set_guess_window_bytes(guess_window_bytes(rate_));
    while (in_flight_.size() < kDepth) {
      const std::optional<PieceRead> read = scheduler_.next_read();
      check_();
      if (!read) break;
      rate_.submitted(now_, read->bytes);
      in_flight_.push_back({read->tag, drive_.submit(now_, read->bytes)});
    }
  }

  void compute(VirtualTime time) {
    while (time > VirtualTime(0)) {
      advance_reads();
      const VirtualTime some = std::min(time, work_.longest_operation);
      now_ += some;
      time -= some;
    }
    advance_reads();
  }

  void visit_all() {
    std::array<std::uint32_t, 32> leases{};
    const std::size_t limit = std::min<std::size_t>(leases.size(), scheduler_.lease_limit());
    while (!scheduler_.has_served_all()) {
      std::size_t count = 0;
      while (count < limit) {
        const auto ready = scheduler_.next_ready();
        if (!ready) break;
        leases[count++] = ready->slot;
        check_();
      }
      if (count == 0) {
        MF_REQUIRE(!in_flight_.empty(), "a fetch that waits has a read in flight");
        now_ = std::max(now_, in_flight_.front().end);
        advance_reads();
        continue;
      }
      compute(static_cast<std::int64_t>(count) * work_.expert);
      for (std::size_t i = 0; i < count; ++i) {
        scheduler_.release(leases[i]);
        check_();
      }
      advance_reads();
    }
  }

  static constexpr std::size_t kDepth = 128;

  ExpertScheduler& scheduler_;
  DriveModel drive_;
  DriveRate rate_;
  SimulatedDriveSpeed speed_;
  VirtualWork work_;
  VirtualTime now_{0};
  std::function<void()> check_ = [] {};
  std::deque<InFlight> in_flight_;  // in the order in which they end
};

}  // namespace moeflux
