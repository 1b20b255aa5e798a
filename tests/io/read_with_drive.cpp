// read_with_drive DRIVE FILE: reads FILE with a drive and compares the bytes with what the standard library
// reads.
//
// Prints the description of the drive, one line "refused: MESSAGE" per refusal, one line per errno with the
// number of reads, and "equal" if all bytes match the file. For the drives "broken-ring" and "busy-ring" it
// opens a ring and then makes io_uring_enter fail with EPERM or EAGAIN, a permanent and a transient error.

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory/aligned_buffer.h"
#include "io/drive/drive.h"
#include "io/drive/drive_files.h"
#include "refuse.h"

namespace {

using namespace moeflux;

constexpr int kCannotRefuse = 77;
constexpr std::size_t kPieceBytes = 4 * kDriveAlignment;
constexpr std::chrono::nanoseconds kTimeout = std::chrono::seconds(60);

int fail(std::string_view message) {
  fmt::print(stderr, "{}\n", message);
  return 1;
}

// Reads the file in pieces, with depth() of them in flight. Returns the number of completions for each errno.
std::map<int, int> read_all(Drive& drive, std::span<std::byte> memory) {
  std::map<int, int> results;
  std::vector<DriveCompletion> completed(drive.depth());
  std::uint64_t next = 0;
  std::size_t in_flight = 0;
  while (next < memory.size() || in_flight > 0) {
    for (; next < memory.size() && in_flight < drive.depth(); next += kPieceBytes, ++in_flight) {
      drive.submit({next, 0, next, memory.subspan(next, kPieceBytes)});
    }
    const std::size_t count = drive.collect(completed, kTimeout);
    if (count == 0) break;  // the counts show that completions are missing
    for (std::size_t i = 0; i < count; ++i) ++results[completed[i].error_number];
    in_flight -= count;
  }
  return results;
}

int run(std::string_view what, const std::filesystem::path& path) {
  const bool fails_later = what == "broken-ring" || what == "busy-ring";
  const Result<DriveChoice> choice = parse_drive_choice(fails_later ? "uring" : what);
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
  if (fails_later && !refuse_system_call(SYS_io_uring_enter, what == "broken-ring" ? EPERM : EAGAIN))
    return kCannotRefuse;

  for (const auto& [error_number, count] : read_all(*opened->drive, memory->bytes())) {
    fmt::print("{} of {} reads: {}\n", count, pieces,
               error_number == 0 ? "good" : name_of_errno(error_number));
  }
  const std::string_view found(reinterpret_cast<const char*>(memory->data()), content.size());
  if (found == content) fmt::print("equal\n");
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return fail("usage: read_with_drive DRIVE|broken-ring|busy-ring FILE");
  return run(arguments[1], arguments[2]);
}
