#pragma once
// A trace on disk, for ui.perfetto.dev, chrome://tracing and tools/draw_trace.py: docs/formats/trace.md.
//
// The Trace Event format in its form of one JSON array, one event a line. The other form, an object, is JSON
// only once it is closed; of the array the format itself says that the closing bracket may be missing. So the
// trace of a program that died is readable up to its last write. For the same reason the file has its name
// from the beginning (no AtomicFile), and every comma stands before its event, not after it.
//
// Viewers want the events of one row to nest. Steps, computations and waits come from one thread, so they
// have a row each. Reads overlap: each goes to the lowest lane that is free when it begins, with lanes of
// their own for demand and for speculation. Lanes are remembered from write to write.
//
//   create() -> open -> finish() -> finished
//
// After a failure, which says the file's name, every call gives the same error: the last line may be half an
// event. Destroyed without finish(), it leaves the bracket open. Always written from the same buffer. Names
// of events are written as they are: literals without quotes and backslashes. One thread at a time.

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
  // Creates the file, or empties an existing one. Times in it count from `zero`; what began earlier is cut
  // off there, because viewers do not take negative times.
  static Result<std::unique_ptr<TraceFile>> create(FileSystem& files, const std::filesystem::path& path,
                                                   TraceClock::time_point zero = TraceClock::now());

  // Appends all events of `buffer`, which may be in any order, and empties it, after a failure too. If the
  // buffer had to drop some since the last write, an instant event says how many.
  Status write(TraceBuffer& buffer);

  // Closes the array. The last call, once; it does not wait for the disk.
  Status finish();

 private:
  // Rows for events that overlap.
  struct Lanes {
    std::string_view name;
    std::uint32_t first_thread;                // of the format: the number of the first lane's row
    std::vector<TraceClock::time_point> ends;  // when the last event of each lane ended
  };

  TraceFile(std::unique_ptr<WriteFile> file, TraceClock::time_point zero);

  void put_metadata(std::string_view what, std::uint32_t thread, std::string_view name);
  void put_thread(std::uint32_t thread, std::string_view name);
  void put_event(const TraceEvent& event);
  void put_dropped(std::uint64_t count, TraceClock::time_point when);
  std::uint32_t thread_of(const TraceEvent& event);
  std::uint32_t lane_for(Lanes& lanes, const TraceEvent& read);

  // Appends what was put together. Only then is anything on disk.
  Status flush();

  std::unique_ptr<WriteFile> file_;
  const TraceClock::time_point zero_;
  Lanes demand_, speculation_;
  std::vector<const TraceEvent*> by_begin_;  // of one write; kept for its memory, as is text_
  std::string text_;                         // put together, not yet appended
  std::uint64_t dropped_ = 0;                // told already
  bool is_finished_ = false;
  Status written_;  // the first failure stays
};

}  // namespace moeflux
