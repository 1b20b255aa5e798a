// read_with_drive DRIVE FILE: reads all of a file with a drive, and compares.
//
// Prints what the drive is, then "refused: SENTENCE" a refusal, then "whole" when each byte is the file's.
// For the drives "broken-ring" and "busy-ring" it opens a ring, has the system refuse its use from then on,
// for ever or as if it could be tried again, and prints how the reads end.

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/aligned_buffer.h"
#include "io/drive.h"
#include "io/drive_files.h"
#include "refuse.h"

namespace {

using namespace moeflux;

constexpr int kCannot = 77;
constexpr std::size_t kPieceBytes = 4 * kDriveAlignment;
constexpr std::chrono::nanoseconds kPatience = std::chrono::seconds(60);

int fail(std::string_view message) {
  fmt::print(stderr, "{}\n", message);
  return 1;
}

// Every piece of the file at once, as far as the drive is deep. How the reads ended, by errno.
std::map<int, int> read_all(Drive& drive, std::span<std::byte> memory) {
  std::map<int, int> ends;
  std::vector<DriveCompletion> ended(drive.depth());
  std::uint64_t next = 0;
  std::size_t out = 0;
  while (next < memory.size() || out > 0) {
    for (; next < memory.size() && out < drive.depth(); next += kPieceBytes, ++out) {
      drive.submit({next, 0, next, memory.subspan(next, kPieceBytes)});
    }
    const std::size_t count = drive.collect(ended, kPatience);
    if (count == 0) break;  // what is missing is seen by who counts
    for (std::size_t i = 0; i < count; ++i) ++ends[ended[i].error_number];
    out -= count;
  }
  return ends;
}

int run(std::string_view what, const std::filesystem::path& path) {
  const bool breaks = what == "broken-ring" || what == "busy-ring";
  const Result<DriveChoice> choice = parse_drive_choice(breaks ? "uring" : what);
  if (!choice) return fail(choice.error().message());
  std::ifstream in(path, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(in), {}};
  const std::size_t pieces = (content.size() + kPieceBytes - 1) / kPieceBytes;
  Result<AlignedBuffer> memory = AlignedBuffer::create(pieces * kPieceBytes);
  if (!memory) return fail(memory.error().message());

  const std::vector<std::filesystem::path> paths = {path};
  const Result<OpenedDrive> opened =
      open_drive(paths, {.choice = *choice, .depth = 8, .threads = 3, .memory = {memory->bytes()}});
  if (!opened) return fail(opened.error().message());
  fmt::print("{}\n", opened->drive->describe());
  for (const std::string& refusal : opened->refusals) fmt::print("refused: {}\n", refusal);
  if (breaks && !refuse_system_call(SYS_io_uring_enter, what == "broken-ring" ? EPERM : EAGAIN))
    return kCannot;

  for (const auto& [error_number, count] : read_all(*opened->drive, memory->bytes())) {
    fmt::print("{} of {} reads: {}\n", count, pieces,
               error_number == 0 ? "good" : name_of_errno(error_number));
  }
  const std::string_view found(reinterpret_cast<const char*>(memory->data()), content.size());
  if (found == content) fmt::print("whole\n");
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return fail("usage: read_with_drive DRIVE|broken-ring|busy-ring FILE");
  return run(arguments[1], arguments[2]);
}
