#include "measure/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/sizes.h"

namespace moeflux {
namespace {

// In the format's terms the program is one "process" and our rows are its "threads", shown in this order.
constexpr std::uint32_t kProcess = 1;
constexpr std::uint32_t kStepThread = 1;
constexpr std::uint32_t kComputeThread = 2;
constexpr std::uint32_t kWaitThread = 3;
constexpr std::uint32_t kFirstDemandThread = 100;
constexpr std::uint32_t kFirstSpeculationThread =
    100'000;  // leaves more ids for demand lanes than a buffer has events

// Bytes per append: large enough to be cheap, small enough to go through the page cache. The file system
// writes larger pieces directly to the drive, which would stall the steps.
constexpr std::size_t kAppendBytes = 256 * kKiB;

std::string_view category_of(const TraceEvent& event) {
  switch (event.track) {
    case TraceTrack::step: return "step";
    case TraceTrack::compute: return "compute";
    case TraceTrack::wait: return "wait";
    case TraceTrack::read: return event.is_speculative ? "speculation" : "demand";
  }
  return "";
}

std::uint64_t nanoseconds(TraceClock::duration duration) {
  const auto count = std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
  return count < 0 ? 0 : static_cast<std::uint64_t>(count);
}

// The format counts microseconds. Three decimals keep the clock's full resolution, so rounding makes no lanes
// overlap.
void put_microseconds(std::string& text, std::uint64_t ns) {
  fmt::format_to(std::back_inserter(text), "{}.{:03}", ns / 1000, ns % 1000);
}

void put_arguments(std::string& text, const TraceEvent& event, std::uint64_t duration_ns) {
  const auto out = std::back_inserter(text);
  const char* separator = "";
  const auto put = [&](std::string_view key, auto value) {
    fmt::format_to(out, "{}\"{}\":{}", separator, key, value);
    separator = ",";
  };
  if (event.layer != TraceEvent::kNone) put("layer", event.layer);
  if (event.expert != TraceEvent::kNone) put("expert", event.expert);
  if (event.bytes != 0 || event.track == TraceTrack::read) put("bytes", event.bytes);
  if (event.track == TraceTrack::read && duration_ns != 0) {
    const double rate = static_cast<double>(event.bytes) / static_cast<double>(duration_ns);
    fmt::format_to(out, "{}\"GB/s\":{:.3f}", separator, rate);
  }
}

// By begin; an enclosing event before the events inside it.
bool comes_before(const TraceEvent* a, const TraceEvent* b) {
  return a->begin != b->begin ? a->begin < b->begin : a->end > b->end;
}

}  // namespace

Result<std::unique_ptr<TraceFile>> TraceFile::create(FileSystem& files, const std::filesystem::path& path,
                                                     TraceClock::time_point zero) {
  Result<std::unique_ptr<WriteFile>> created = files.create(path);
  if (!created) return std::move(created).error().during("creating the trace");
  std::unique_ptr<TraceFile> trace(new TraceFile(*std::move(created), zero));
  MF_TRY_STATUS(trace->flush());
  return trace;
}

TraceFile::TraceFile(std::unique_ptr<WriteFile> file, TraceClock::time_point zero)
    : file_(std::move(file)),
      zero_(zero),
      demand_{.name = "read", .first_thread = kFirstDemandThread, .ends = {}},
      speculation_{.name = "speculative read", .first_thread = kFirstSpeculationThread, .ends = {}} {
  text_ = "[";
  put_metadata("process_name", kStepThread, "moeflux");
  put_thread(kStepThread, "steps");
  put_thread(kComputeThread, "compute");
  put_thread(kWaitThread, "waits");
}

Status TraceFile::write(TraceBuffer& buffer) {
  MF_REQUIRE(!is_finished_, "nothing is written to a trace after its finish");
  MF_REQUIRE(buffer.dropped() >= dropped_, "a trace is always written from the same buffer");
  by_begin_.clear();
  for (const TraceEvent& event : buffer.events()) by_begin_.push_back(&event);
  std::ranges::sort(by_begin_, comes_before);

  TraceClock::time_point last_end = zero_;
  for (const TraceEvent* event : by_begin_) {
    put_event(*event);
    last_end = std::max(last_end, event->end);
    if (text_.size() >= kAppendBytes && !flush()) break;
  }
  // The buffer became full with its last event, so the gap begins there.
  if (buffer.dropped() != dropped_) put_dropped(buffer.dropped() - dropped_, last_end);
  dropped_ = buffer.dropped();
  buffer.clear();
  return flush();
}

Status TraceFile::finish() {
  MF_REQUIRE(!is_finished_, "a trace is finished once");
  is_finished_ = true;
  text_ += "\n]\n";
  return flush();
}

void TraceFile::put_metadata(std::string_view what, std::uint32_t thread, std::string_view name) {
  fmt::format_to(std::back_inserter(text_),
                 "{}\n{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"{}\",\"args\":{{\"name\":\"{}\"}}}}",
                 text_ == "[" ? "" : ",", kProcess, thread, what, name);
}

void TraceFile::put_thread(std::uint32_t thread, std::string_view name) {
  put_metadata("thread_name", thread, name);
  fmt::format_to(std::back_inserter(text_),
                 ",\n{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"thread_sort_index\","
                 "\"args\":{{\"sort_index\":{}}}}}",
                 kProcess, thread, thread);
}

void TraceFile::put_event(const TraceEvent& event) {
  const std::uint32_t thread = thread_of(event);
  const TraceClock::time_point begin = std::max(event.begin, zero_);
  const std::uint64_t duration_ns = nanoseconds(event.end - begin);
  fmt::format_to(std::back_inserter(text_),
                 ",\n{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"cat\":\"{}\",\"name\":\"{}\",\"ts\":", kProcess,
                 thread, category_of(event), event.name);
  put_microseconds(text_, nanoseconds(begin - zero_));
  text_ += ",\"dur\":";
  put_microseconds(text_, duration_ns);
  text_ += ",\"args\":{";
  put_arguments(text_, event, nanoseconds(event.end - event.begin));
  text_ += "}}";
}

void TraceFile::put_dropped(std::uint64_t count, TraceClock::time_point when) {
  fmt::format_to(std::back_inserter(text_),
                 ",\n{{\"ph\":\"i\",\"pid\":{},\"tid\":{},\"s\":\"p\",\"cat\":\"dropped\","
                 "\"name\":\"events dropped\",\"ts\":",
                 kProcess, kStepThread);
  put_microseconds(text_, nanoseconds(when - zero_));
  fmt::format_to(std::back_inserter(text_), ",\"args\":{{\"events\":{}}}}}", count);
}

std::uint32_t TraceFile::thread_of(const TraceEvent& event) {
  switch (event.track) {
    case TraceTrack::step: return kStepThread;
    case TraceTrack::compute: return kComputeThread;
    case TraceTrack::wait: return kWaitThread;
    case TraceTrack::read: break;
  }
  return lane_for(event.is_speculative ? speculation_ : demand_, event);
}

std::uint32_t TraceFile::lane_for(Lanes& lanes, const TraceEvent& read) {
  const auto free = std::ranges::find_if(lanes.ends, [&](auto end) { return end <= read.begin; });
  const auto lane = static_cast<std::uint32_t>(free - lanes.ends.begin());
  const std::uint32_t thread = lanes.first_thread + lane;
  if (free == lanes.ends.end()) {
    lanes.ends.push_back(read.end);
    put_thread(thread, fmt::format("{} {}", lanes.name, lane + 1));
  } else {
    *free = read.end;
  }
  return thread;
}

Status TraceFile::flush() {
  if (written_ && !text_.empty()) {
    written_ = file_->append(std::as_bytes(std::span(text_)));
    if (!written_) written_ = std::move(written_).error().during("writing the trace");
  }
  text_.clear();
  return written_;
}

}  // namespace moeflux
