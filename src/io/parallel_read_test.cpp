#include "io/parallel_read.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>

#include "base/testing/states.h"
#include "base/thread_annotations.h"
#include "io/posix_file_system.h"
#include "io/testing/faulty_file_system.h"
#include "io/testing/temporary_directory.h"

namespace moeflux {
namespace {

using test::States;

struct ParallelRead : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem disk;
  FaultyFileSystem files{disk};
  std::string contents;
  std::filesystem::path path;

  ParallelRead() {
    for (int i = 0; i < 1000; ++i) contents += static_cast<char>('a' + i * i % 26);
    path = temporary.write("data.bin", contents);
  }
  std::unique_ptr<ReadFile> open() {
    auto file = files.open_read(path);
    EXPECT_TRUE(file) << file.error().message();
    return *std::move(file);
  }
  // The text that was read, or the error message.
  std::string read(std::uint64_t offset, std::size_t size, const ParallelReadOptions& options) {
    std::string text(size, '?');
    const Status done = read_in_parallel(*open(), offset, std::as_writable_bytes(std::span(text)), options);
    return done ? text : done.error().message();
  }
};

TEST_F(ParallelRead, ReadsEveryByteOnceForAnyPartsAndThreads) {
  for (const unsigned threads : {1u, 2u, 7u, 64u})
    for (const std::size_t part_bytes : {1u, 3u, 64u, 999u, 1000u, 5000u}) {
      const std::uint64_t before = files.bytes(FileOperation::read);
      EXPECT_EQ(read(0, 1000, {part_bytes, threads}), contents) << part_bytes << " bytes, " << threads;
      EXPECT_EQ(files.bytes(FileOperation::read) - before, 1000u);
      EXPECT_EQ(read(17, 700, {part_bytes, threads}), contents.substr(17, 700))
          << part_bytes << ", " << threads;
    }
}

TEST_F(ParallelRead, CompletesShortReads) {
  files.set_plan({.longest_read_bytes = 3});
  EXPECT_EQ(read(0, 1000, {100, 4}), contents);
}

TEST_F(ParallelRead, DoesNoReadForAnEmptySpan) {
  EXPECT_EQ(read(1000, 0, {}), "");
  EXPECT_EQ(files.count(FileOperation::read), 0u);
}

TEST_F(ParallelRead, ReturnsTheErrorOfTheFirstFailedPartInTheFile) {
  for (int repeat = 0; repeat < 100; ++repeat)
    EXPECT_THAT(read(900, 1000, {8, 8}), States("data.bin", "8 bytes", "offset 996", "found 4"));
}

TEST_F(ParallelRead, StopsAfterAnError) {
  files.set_plan({.faults = {{.operation = FileOperation::read, .index = 5, .error_number = EIO}}});
  std::string text(1000, '?');
  const Status done = read_in_parallel(*open(), 0, std::as_writable_bytes(std::span(text)), {1, 4});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code(), ErrorCode::io_failed);
  EXPECT_LE(files.count(FileOperation::read), 5u + 4u);  // the other threads may have started one read each
}

// Blocks reads until `readers` of them are waiting.
class ReadBarrier final : public ReadFile {
 public:
  explicit ReadBarrier(unsigned readers) : ReadFile("barrier"), readers_(readers) {}

  Result<std::uint64_t> size() const override { return std::uint64_t{1} << 30; }
  Result<std::size_t> read_some(std::uint64_t, std::span<std::byte> out) const override {
    const Lock lock(mutex_);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    ++waiting_;
    all_waiting_.notify_all();
    while (waiting_ < readers_)
      if (!all_waiting_.wait_until(mutex_, deadline))
        return Error(ErrorCode::io_failed, "timeout: fewer reads in parallel than expected");
    std::memset(out.data(), 7, out.size());
    return out.size();
  }

 private:
  const unsigned readers_;
  mutable Mutex mutex_;
  mutable CondVar all_waiting_;
  mutable unsigned waiting_ MF_GUARDED_BY(mutex_) = 0;
};

TEST(ParallelReads, RunAtTheSameTime) {
  const ReadBarrier file(4);
  std::vector<std::byte> out(400);
  const Status done = read_in_parallel(file, 0, out, {100, 4});
  EXPECT_TRUE(done) << done.error().message();
  EXPECT_EQ(out, std::vector<std::byte>(400, std::byte{7}));
}

}  // namespace
}  // namespace moeflux
