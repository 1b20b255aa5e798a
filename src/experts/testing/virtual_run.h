#pragma once
// A model at work in virtual time: layers that compute for as long as a script says, over a scheduler and a drive
// that is arithmetic. Nothing waits, and every run is the same. Test code only; one thread at a time.
//
// The caller's side is that of layers/moe.cpp: the layer up to its router, then the fetch; the shared expert and what
// is in memory while the rest is read; then the rest as it comes. As in the engine, the scheduler hears of completions
// only when somebody looks: between operations.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/check.h"
#include "experts/drive_rate.h"
#include "experts/scheduler.h"
#include "io/drive_model.h"

namespace moeflux {

using VirtualTime = std::chrono::nanoseconds;

// What a layer computes.
struct VirtualWork {
  VirtualTime before_router{0}, shared{0}, expert{0};
  VirtualTime longest_operation{100'000};  // nobody looks at the drive for so long
};

using VirtualToken = std::vector<std::vector<std::uint32_t>>;  // [layers][wanted]

class VirtualRun {
 public:
  // What somebody guesses when a layer of a token begins.
  using Guess = std::function<void(std::size_t token, std::uint32_t layer, ExpertScheduler& scheduler)>;

  VirtualRun(ExpertScheduler& scheduler, const SimulatedDriveSpeed& speed, const VirtualWork& work)
      : scheduler_(scheduler), drive_(speed), speed_(speed), work_(work) {}

  // What it should take without guesses: the layers up to their routers, then reading or computing what is there,
  // whichever is longer, then computing what was read.
  struct Step {
    VirtualTime took{0};
    VirtualTime bound{0};
    VirtualTime compute{0};
    VirtualTime read{0};  // of the records that were missed, at full speed
  };

  Step step(std::size_t token, const VirtualToken& wanted, const Guess& guess = {}) {
    Step step;
    const VirtualTime begin = now_;
    for (std::uint32_t layer = 0; layer < wanted.size(); ++layer) {
      if (guess) guess(token, layer, scheduler_);
      compute(work_.before_router);
      const ExpertStatistics before = scheduler_.statistics();
      scheduler_.want(LayerId(layer), wanted[layer], FetchOrder::ready_first);
      const ExpertStatistics found = scheduler_.statistics() - before;
      look();
      compute(work_.shared);
      visit_all();
      scheduler_.end_fetch();

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
  struct Out {
    std::uint64_t tag;
    VirtualTime end;
  };

  VirtualTime transfer(std::int64_t bytes) const {
    return VirtualTime(static_cast<std::int64_t>(static_cast<double>(bytes) * 1e9 /
                                                 static_cast<double>(speed_.bytes_per_second)));
  }

  void look() {
    while (!out_.empty() && out_.front().end <= now_) {
      rate_.completed(now_, scheduler_.piece_of(out_.front().tag).bytes);
      scheduler_.complete(out_.front().tag, true);
      out_.pop_front();
    }
    scheduler_.set_guess_window_bytes(guess_window_bytes(rate_));
    while (out_.size() < kDepth) {
      const std::optional<PieceRead> read = scheduler_.next_read();
      if (!read) break;
      rate_.submitted(now_, read->bytes);
      out_.push_back({read->tag, drive_.submit(now_, read->bytes)});
    }
  }

  void compute(VirtualTime time) {
    while (time > VirtualTime(0)) {
      look();
      const VirtualTime some = std::min(time, work_.longest_operation);
      now_ += some;
      time -= some;
    }
    look();
  }

  void visit_all() {
    std::array<std::uint32_t, 32> leases{};
    const std::size_t limit = std::min<std::size_t>(leases.size(), scheduler_.lease_limit());
    while (!scheduler_.has_handed_out_all()) {
      std::size_t count = 0;
      while (count < limit) {
        const auto ready = scheduler_.take();
        if (!ready) break;
        leases[count++] = ready->slot;
      }
      if (count == 0) {
        MF_REQUIRE(!out_.empty(), "somebody waits, so something is being read");
        now_ = std::max(now_, out_.front().end);
        look();
        continue;
      }
      compute(static_cast<std::int64_t>(count) * work_.expert);
      for (std::size_t i = 0; i < count; ++i) scheduler_.release(leases[i]);
      look();
    }
  }

  static constexpr std::size_t kDepth = 128;

  ExpertScheduler& scheduler_;
  DriveModel drive_;
  DriveRate rate_;
  SimulatedDriveSpeed speed_;
  VirtualWork work_;
  VirtualTime now_{0};
  std::deque<Out> out_;  // in the order in which they end
};

}  // namespace moeflux
