#pragma once
// A trace file for ui.perfetto.dev, chrome://tracing and tools/draw_trace.py: docs/formats/trace.md.
//
// Trace Event format as one JSON array with one event per line. The format allows an array without its
// closing bracket (the other form, an object, must be closed), so the trace of a crashed program is readable
// up to its last write. For the same reason the file has its final name from the start (no AtomicFile), and a
// comma comes before each event, not after it.
//
// Viewers require that the events of one row nest. Steps, computations and waits come from one thread and
// have one row each. Reads overlap: each goes to the lowest lane that is free when it begins, with separate
// lanes for demand reads and for prefetches. Lanes persist across writes.
//
//   create() -> open -> finish() -> finished
//
// The first failure, whose message states the file, is returned by every later call: the last line may be
// half an event. Destroyed without finish(), the file ends without the bracket. Requires: every write passes
// the same buffer; names of events are literals without quotes and backslashes. One thread at a time.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/trace.h"
#include "io/file_system.h"

namespace moeflux {

class TraceFile {
 public:
  // Creates the file or truncates an existing one. Times in it count from `zero`. Events are clipped at
  // `zero`, because viewers do not accept negative times.
  static Result<std::unique_ptr<TraceFile>> create(FileSystem& files, const std::filesystem::path& path,
                                                   TraceClock::time_point zero = TraceClock::now());

  // Appends all events of `buffer`, in any order, and empties it, even after a failure. If the buffer dropped
  // events since the last write, an instant event states how many.
  Status write(TraceBuffer& buffer);

  // Closes the array. Call once, last. Does not sync to disk.
  Status finish();

 private:
  // Rows for overlapping events.
  struct Lanes {
    std::string_view name;
    std::uint32_t first_thread;                // the format's thread id of the first lane
    std::vector<TraceClock::time_point> ends;  // when the last event of each lane ended
  };

  TraceFile(std::unique_ptr<WriteFile> file, TraceClock::time_point zero);

  void put_metadata(std::string_view what, std::uint32_t thread, std::string_view name);
  void put_thread(std::uint32_t thread, std::string_view name);
  void put_event(const TraceEvent& event);
  void put_dropped(std::uint64_t count, TraceClock::time_point when);
  std::uint32_t thread_of(const TraceEvent& event);
  std::uint32_t lane_for(Lanes& lanes, const TraceEvent& read);

  // Appends text_ to the file; nothing is on disk before.
  Status flush();

  std::unique_ptr<WriteFile> file_;
  const TraceClock::time_point zero_;
  Lanes demand_, speculation_;
  std::vector<const TraceEvent*> by_begin_;  // of one write; a member to reuse its memory, like text_
  std::string text_;                         // formatted, not yet appended
  std::uint64_t dropped_ = 0;                // already reported
  bool is_finished_ = false;
  Status written_;  // the first failure
};

}  // namespace moeflux
