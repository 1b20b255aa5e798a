#pragma once
// A timeline of the engine's work: reads, computations and waits, each with its start and end time.
//
// In this file, in measure/trace_file.h and in measure/trace_recorder.h, "trace" means this timeline
// (docs/formats/trace.md). A *routing* trace is something else: which experts the routers chose, recorded to
// be replayed (measure/routing_recording.h, docs/formats/routing.md).
//
// A TraceBuffer has a fixed capacity: adding an event allocates nothing and never fails. When the buffer is
// full, events are dropped and counted; measure/trace_file.h empties it between steps. One thread at a time.

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

  const char* name = "";  // a string literal: it must outlive the buffer
  TraceTrack track = TraceTrack::step;
  bool is_speculative = false;  // for reads
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
  std::uint64_t dropped() const { return dropped_; }  // since construction; clear() does not reset it
  void clear() { events_.clear(); }

 private:
  std::vector<TraceEvent> events_;
  std::uint64_t dropped_ = 0;
};

// Adds an event on the compute track that lasts from construction to destruction.
class TraceSpan {
 public:
  // A null `trace` records nothing.
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
