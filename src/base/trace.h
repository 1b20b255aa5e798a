#pragma once
// What happened when, for a person who looks at a picture of it: reads, computations and waits, each with its time.
//
// A TraceBuffer has a fixed capacity: adding allocates nothing and never fails. When it is full, events are dropped
// and counted; whoever writes them to a file empties it between steps (measure/trace_file.h). One thread at a time.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace moeflux {

using TraceClock = std::chrono::steady_clock;

enum class TraceTrack : std::uint8_t { step, compute, wait, read };

struct TraceEvent {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  const char* name = "";  // lives for ever: a literal
  TraceTrack track = TraceTrack::step;
  bool is_speculative = false;  // a read
  std::uint32_t layer = kNone;
  std::uint32_t expert = kNone;
  std::uint64_t bytes = 0;
  TraceClock::time_point begin, end;
};

class TraceBuffer {
 public:
  static constexpr std::size_t kCapacity = 1 << 16;

  explicit TraceBuffer(std::size_t capacity = kCapacity) { events_.reserve(capacity); }

  void add(const TraceEvent& event) noexcept {
    if (events_.size() == events_.capacity())
      ++dropped_;
    else
      events_.push_back(event);
  }
  std::span<const TraceEvent> events() const { return events_; }
  std::uint64_t dropped() const { return dropped_; }  // since the beginning
  void clear() { events_.clear(); }

 private:
  std::vector<TraceEvent> events_;
  std::uint64_t dropped_ = 0;
};

// From its construction to its end, on the compute track.
class TraceSpan {
 public:
  // `trace`: none is null.
  explicit TraceSpan(TraceBuffer* trace, const char* name, std::uint32_t layer = TraceEvent::kNone)
      : trace_(trace) {
    if (trace == nullptr) return;
    event_.name = name;
    event_.track = TraceTrack::compute;
    event_.layer = layer;
    event_.begin = TraceClock::now();
  }
  ~TraceSpan() {
    if (trace_ == nullptr) return;
    event_.end = TraceClock::now();
    trace_->add(event_);
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  TraceBuffer* trace_;
  TraceEvent event_;
};

}  // namespace moeflux
