// sync_files FOLDER: syncs a file and a folder with PosixFileSystem, then writes FOLDER/atomic.bin
// atomically.
//
// Prints one line per operation: its name, then "ok" or the error message. sync_test.py runs it with fsync
// refused.

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <filesystem>
#include <string_view>

#include "io/atomic_file.h"
#include "io/posix_file_system.h"

namespace {

using namespace moeflux;

void print(std::string_view operation, const Status& status) {
  fmt::print("{}: {}\n", operation, status ? "ok" : status.error().message());
}

int run(const std::filesystem::path& folder) {
  PosixFileSystem files;
  const Result<std::unique_ptr<WriteFile>> file = files.create(folder / "file.bin");
  if (!file) {
    fmt::print(stderr, "{}\n", file.error().message());
    return 1;
  }
  constexpr std::array<std::byte, 100> kBytes{};
  print("append", (*file)->append(kBytes));
  print("sync", (*file)->sync());
  print("sync_directory", files.sync_directory(folder));
  print("write_file_atomically", write_file_atomically(files, folder / "atomic.bin", kBytes));
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    fmt::print(stderr, "usage: sync_files FOLDER\n");
    return 2;
  }
  return run(arguments[1]);
}
