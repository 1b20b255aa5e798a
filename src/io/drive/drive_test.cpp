#include "io/drive/drive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "base/memory/aligned_buffer.h"
#include "base/testing/allocation_counter.h"
#include "base/testing/expect_contract.h"
#include "base/testing/states.h"
#include "io/testing/drive_testing.h"
#include "io/testing/temporary_directory.h"

namespace moeflux {
namespace {

using test::States;
using testing::IsEmpty;

constexpr std::size_t kPage = kDriveAlignment;

AlignedBuffer buffer_of(std::size_t size) {
  Result<AlignedBuffer> buffer = AlignedBuffer::create(size);
  EXPECT_TRUE(buffer);
  std::memset(buffer->data(), 0xEE, size);
  return *std::move(buffer);
}

DriveChoice choice_of(DriveKind kind) {
  constexpr SimulatedDriveSpeed kFast{std::uint64_t{4} << 30, std::chrono::microseconds(50)};
  return {kind, kind == DriveKind::sim ? kFast : SimulatedDriveSpeed{}};
}

// The contract of Drive, for each kind of drive.
struct EveryDrive : testing::TestWithParam<DriveKind> {
  TemporaryDirectory temporary;
  const std::string first = distinct_bytes(256 * kPage + 1234, 1);
  const std::string second = distinct_bytes(64 * kPage, 2);
  const std::vector<std::filesystem::path> paths = {temporary.write("first.bin", first),
                                                    temporary.write("second.bin", second)};
  // Declared before the drive, which may write to it until it is destroyed.
  AlignedBuffer memory = buffer_of(256 * kPage);
  std::unique_ptr<Drive> drive;

  void SetUp() override { open({}); }

  void open(DriveOptions options) {
    options.choice = choice_of(GetParam());
    options.memory = {memory.bytes()};
    Result<OpenedDrive> opened = open_drive(paths, options);
    ASSERT_TRUE(opened) << opened.error().message();
    if (opened->drive->kind() != GetParam()) GTEST_SKIP() << opened->refusals.front();
    drive = std::move(opened->drive);
  }

  const std::string& content(std::uint32_t file) const { return file == 0 ? first : second; }
  std::span<std::byte> pages(std::size_t begin, std::size_t count) {
    return memory.bytes().subspan(begin * kPage, count * kPage);
  }
};

TEST_P(EveryDrive, ReadsTheBytesOfItsFiles) {
  std::mt19937 random(7);
  constexpr std::size_t kReads = 300;
  constexpr std::size_t kPagesOfOne = 8;
  const std::size_t places = memory.size() / kPage / kPagesOfOne;
  std::map<std::uint64_t, DriveRead> out;
  std::set<std::size_t> free;
  for (std::size_t i = 0; i < places; ++i) free.insert(i);
  std::uint64_t next_tag = 1000;
  std::size_t ended = 0;
  while (ended < kReads) {
    while (next_tag - 1000 < kReads && !free.empty() && out.size() < drive->depth()) {
      const auto file = static_cast<std::uint32_t>(random() % 2);
      const std::size_t count = 1 + random() % kPagesOfOne;
      const std::size_t at = random() % (content(file).size() / kPage - kPagesOfOne);
      const DriveRead read{next_tag++, file, at * kPage, pages(*free.begin() * kPagesOfOne, count)};
      free.erase(free.begin());
      ASSERT_TRUE(out.emplace(read.tag, read).second);
      drive->submit(read);
    }
    const std::vector<DriveCompletion> some = collect_all(*drive, 1);
    ASSERT_EQ(some.size(), 1U);
    const auto read = out.find(some[0].tag);
    ASSERT_NE(read, out.end()) << "no read with this tag is in flight";
    const DriveRead& request = read->second;
    ASSERT_EQ(some[0].error_number, 0);
    ASSERT_EQ(some[0].bytes, request.out.size());
    ASSERT_EQ(text_of(request.out),
              std::string_view(content(request.file)).substr(request.offset, request.out.size()));
    free.insert(static_cast<std::size_t>(request.out.data() - memory.data()) / kPage / kPagesOfOne);
    out.erase(read);
    ++ended;
  }
  EXPECT_THAT(out, IsEmpty());
}

TEST_P(EveryDrive, AllowsAsManyReadsInFlightAsItsDepth) {
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(drive->depth(), 128U);
    for (std::uint32_t i = 0; i < drive->depth(); ++i) {
      drive->submit({i, 0, i * kPage, pages(i, 1)});
    }
    drive->flush();
    std::set<std::uint64_t> tags;
    for (const DriveCompletion& completion : collect_all(*drive, drive->depth())) {
      EXPECT_EQ(completion.error_number, 0);
      EXPECT_EQ(completion.bytes, kPage);
      EXPECT_TRUE(tags.insert(completion.tag).second) << "tag " << completion.tag << " completes twice";
    }
    EXPECT_EQ(tags.size(), drive->depth());
    EXPECT_EQ(*tags.rbegin(), drive->depth() - 1);
    EXPECT_EQ(text_of(pages(0, drive->depth())), std::string_view(first).substr(0, drive->depth() * kPage));
  }
}

TEST_P(EveryDrive, WorksWithADepthOfOne) {
  open({.depth = 1, .threads = 3});
  if (IsSkipped()) return;
  ASSERT_EQ(drive->depth(), 1U);
  for (std::uint64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(read_one(*drive, {i, 1, i * kPage, pages(0, 1)}).tag, i);
    EXPECT_EQ(text_of(pages(0, 1)), std::string_view(second).substr(i * kPage, kPage));
  }
}

TEST_P(EveryDrive, ReturnsFewerBytesAtTheEndOfAFile) {
  const DriveCompletion last = read_one(*drive, {1, 0, 255 * kPage, pages(0, 4)});
  EXPECT_EQ(last.error_number, 0);
  ASSERT_EQ(last.bytes, kPage + 1234);
  EXPECT_EQ(text_of(pages(0, 4)).substr(0, last.bytes), std::string_view(first).substr(255 * kPage));
  const DriveCompletion aligned = read_one(*drive, {2, 1, 62 * kPage, pages(0, 4)});
  EXPECT_EQ(aligned.error_number, 0);
  EXPECT_EQ(aligned.bytes, 2 * kPage);
}

TEST_P(EveryDrive, ReturnsNoBytesPastTheEndOfAFile) {
  for (const std::uint64_t offset : {64 * kPage, 1024 * kPage, std::size_t{1} << 40}) {
    const DriveCompletion beyond = read_one(*drive, {9, 1, offset, pages(0, 1)});
    EXPECT_EQ(beyond.tag, 9U);
    EXPECT_EQ(beyond.error_number, 0) << offset;
    EXPECT_EQ(beyond.bytes, 0U);
  }
}

TEST_P(EveryDrive, RejectsOffsetsPastTheLargest) {
  for (const std::uint64_t offset : {~std::uint64_t{0}, std::uint64_t{1} << 63,
                                     (std::uint64_t{1} << 63) - kPage, ~std::uint64_t{0} - kPage + 1}) {
    const DriveCompletion refused = read_one(*drive, {3, 0, offset, pages(0, 2)});
    EXPECT_EQ(refused.tag, 3U);
    EXPECT_EQ(refused.error_number, EINVAL) << offset;
    EXPECT_EQ(refused.bytes, 0U);
  }
}

TEST_P(EveryDrive, CompletesUnalignedReads) {
  const DriveCompletion completion = read_one(*drive, {4, 0, 1, memory.bytes().subspan(3, 1000)});
  EXPECT_EQ(completion.tag, 4U);
  if (completion.error_number == 0) {  // through the page cache, and on file systems that allow it
    ASSERT_EQ(completion.bytes, 1000U);
    EXPECT_EQ(text_of(memory.bytes().subspan(3, 1000)), std::string_view(first).substr(1, 1000));
  } else {
    EXPECT_EQ(completion.error_number, EINVAL);
  }
}

TEST_P(EveryDrive, CompletesEmptyReads) {
  const DriveCompletion completion = read_one(*drive, {5, 0, kPage, pages(0, 0)});
  EXPECT_EQ(completion.tag, 5U);
  EXPECT_EQ(completion.error_number, 0);
  EXPECT_EQ(completion.bytes, 0U);
}

TEST_P(EveryDrive, DoesNotWaitIfNoReadIsInFlight) {
  std::array<DriveCompletion, 4> none;
  EXPECT_EQ(drive->collect(none, std::chrono::nanoseconds{0}), 0U);
  EXPECT_EQ(drive->collect(none, std::chrono::nanoseconds::max()), 0U);
  read_one(*drive, {1, 0, 0, pages(0, 1)});
  EXPECT_EQ(drive->collect(none, std::chrono::nanoseconds::max()), 0U);
}

TEST_P(EveryDrive, CanBePolledWithoutWaiting) {
  for (std::uint64_t i = 0; i < 8; ++i) drive->submit({i, 0, i * kPage, pages(i, 1)});
  drive->flush();
  std::set<std::uint64_t> tags;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (tags.size() < 8 && std::chrono::steady_clock::now() < deadline) {
    std::array<DriveCompletion, 3> some;
    const std::size_t count = drive->collect(some, std::chrono::nanoseconds{0});
    ASSERT_LE(count, some.size());
    for (std::size_t i = 0; i < count; ++i) EXPECT_TRUE(tags.insert(some[i].tag).second);
  }
  EXPECT_EQ(tags.size(), 8U);
}

TEST_P(EveryDrive, KeepsCompletionsThatDoNotFitTheSpan) {
  drive->submit({1, 0, 0, pages(0, 1)});
  EXPECT_EQ(drive->collect({}, kPatience), 0U);
  EXPECT_EQ(collect_all(*drive, 1).size(), 1U);
}

TEST_P(EveryDrive, CanBeDestroyedWithReadsInFlight) {
  for (std::uint64_t round = 0; round < 20; ++round) {
    open({.depth = 64, .threads = 4});
    if (IsSkipped()) return;
    AlignedBuffer shortlived = buffer_of(64 * 4 * kPage);
    for (std::uint64_t i = 0; i < 60; ++i) {
      drive->submit({i, 0, i * 4 * kPage, shortlived.bytes().subspan(i * 4 * kPage, 4 * kPage)});
    }
    if (round % 3 != 0) drive->flush();
    if (round % 3 == 2) {
      EXPECT_EQ(collect_all(*drive, 5).size(), 5U);
    }
    drive.reset();
    // No read writes here any more, so these bytes stay.
    std::memset(shortlived.data(), 0x11, shortlived.size());
    EXPECT_TRUE(
        std::ranges::all_of(shortlived.bytes(), [](std::byte byte) { return byte == std::byte{0x11}; }));
  }
}

TEST_P(EveryDrive, UnlocksItsMemoryWhenDestroyed) {
  const std::string description = drive->describe();
  for (int round = 0; round < 30; ++round) {
    drive.reset();
    open({});
    if (IsSkipped()) return;
    ASSERT_EQ(drive->describe(), description) << "memory of destroyed drives counts toward the limit";
  }
}

TEST_P(EveryDrive, ReportsATruncatedFile) {
  const Result<FileStamp> before = drive->stamp(1);
  ASSERT_TRUE(before);
  EXPECT_EQ(before->size_bytes, second.size());
  EXPECT_EQ(drive->path(1), paths[1]);
  std::filesystem::resize_file(paths[1], 2 * kPage);
  const Result<FileStamp> after = drive->stamp(1);
  ASSERT_TRUE(after);
  EXPECT_EQ(after->size_bytes, 2 * kPage);
  EXPECT_NE(*after, *before);
  const DriveCompletion shortened = read_one(*drive, {1, 1, kPage, pages(0, 4)});
  EXPECT_EQ(shortened.error_number, 0);
  EXPECT_EQ(shortened.bytes, kPage);
  EXPECT_EQ(read_one(*drive, {1, 1, 8 * kPage, pages(0, 4)}).bytes, 0U);
}

TEST_P(EveryDrive, KeepsReadingAFileWhoseNameWasReplaced) {
  const Result<FileStamp> before = drive->stamp(0);
  temporary.write("other", "something else");
  std::filesystem::rename(temporary / "other", paths[0]);
  const Result<FileStamp> after = drive->stamp(0);
  ASSERT_TRUE(before && after);
  EXPECT_EQ(*after, *before);
  EXPECT_EQ(read_one(*drive, {1, 0, 0, pages(0, 1)}).bytes, kPage);
  EXPECT_EQ(text_of(pages(0, 1)), std::string_view(first).substr(0, kPage));
}

TEST_P(EveryDrive, CompletesReadsOfAThreadThatHasEnded) {
  for (int round = 0; round < 20; ++round) {
    std::thread submitter([&] {
      for (std::uint64_t i = 0; i < 16; ++i) drive->submit({i, 0, i * 8 * kPage, pages(i * 8, 8)});
      drive->flush();
    });
    submitter.join();
    std::set<std::uint64_t> tags;
    for (const DriveCompletion& completion : collect_all(*drive, 16)) {
      EXPECT_EQ(completion.error_number, 0);
      EXPECT_EQ(completion.bytes, 8 * kPage);
      tags.insert(completion.tag);
    }
    EXPECT_EQ(tags.size(), 16U);
    ASSERT_EQ(text_of(pages(0, 128)), std::string_view(first).substr(0, 128 * kPage));
  }
}

TEST_P(EveryDrive, CompletesReadsDespiteSignals) {
  struct sigaction ignored = {};
  struct sigaction before = {};
  ignored.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGUSR1, &ignored, &before), 0);
  std::atomic<bool> is_done = false;
  std::thread signaler([&, target = ::pthread_self()] {
    while (!is_done) {
      ::pthread_kill(target, SIGUSR1);
      std::this_thread::sleep_for(std::chrono::microseconds(50));  // else the target only handles signals
    }
  });
  for (std::uint64_t i = 0; i < 200; ++i) {
    const DriveCompletion completion = read_one(*drive, {i, 0, i * kPage, pages(0, 1)});
    EXPECT_EQ(completion.tag, i);
    EXPECT_EQ(completion.error_number, 0);
    EXPECT_EQ(completion.bytes, kPage);
  }
  is_done = true;
  signaler.join();
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST_P(EveryDrive, AllocatesNothingAfterOpening) {
  std::array<DriveCompletion, 16> ended;
  const AllocationCounter counter;
  for (std::uint64_t round = 0; round < 10; ++round) {
    for (std::uint64_t i = 0; i < ended.size(); ++i) drive->submit({i, 0, i * kPage, pages(i, 1)});
    for (std::size_t count = 0; count < ended.size();) {
      const std::size_t some = drive->collect(ended, kPatience);
      ASSERT_GT(some, 0U);
      count += some;
    }
  }
  EXPECT_EQ(counter.allocations(), 0U);
}

INSTANTIATE_TEST_SUITE_P(, EveryDrive,
                         testing::Values(DriveKind::uring, DriveKind::pread, DriveKind::buffered,
                                         DriveKind::sim),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

// Preconditions. These tests read a file of the repository, so the aborted process leaves no temporary files.
struct ContractsOfEveryDrive : testing::TestWithParam<DriveKind> {
  AlignedBuffer memory = buffer_of(3 * kPage);
  std::unique_ptr<Drive> drive;

  void SetUp() override {
    const std::vector<std::filesystem::path> paths = {MOEFLUX_REPOSITORY "/ARCHITECTURE.md"};
    Result<OpenedDrive> opened =
        open_drive(paths, {.choice = choice_of(GetParam()), .depth = 2, .threads = 1});
    ASSERT_TRUE(opened) << opened.error().message();
    if (opened->drive->kind() != GetParam()) GTEST_SKIP() << opened->refusals.front();
    drive = std::move(opened->drive);
  }
  std::span<std::byte> page(std::size_t i) { return memory.bytes().subspan(i * kPage, kPage); }
};

TEST_P(ContractsOfEveryDrive, RequireAFileOfTheDrive) {
  EXPECT_CONTRACT(drive->submit({1, 1, 0, page(0)}), "the file is one of the drive's");
  EXPECT_CONTRACT(drive->path(1), "the file is one of the drive's");
}

TEST_P(ContractsOfEveryDrive, LimitTheReadsInFlight) {
  drive->submit({1, 0, 0, page(0)});
  drive->submit({2, 0, 0, page(1)});
  EXPECT_CONTRACT(drive->submit({3, 0, 0, page(2)}), "the queue of the drive is not full");
  EXPECT_EQ(collect_all(*drive, 2).size(), 2U);
}

INSTANTIATE_TEST_SUITE_P(, ContractsOfEveryDrive,
                         testing::Values(DriveKind::uring, DriveKind::pread, DriveKind::buffered,
                                         DriveKind::sim),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

struct OpenDrive : testing::Test {
  TemporaryDirectory temporary;
  const std::filesystem::path file = temporary.write("file.bin", distinct_bytes(16 * kPage, 3));

  static Result<OpenedDrive> open(const std::vector<std::filesystem::path>& paths,
                                  DriveOptions options = {}) {
    return open_drive(paths, options);
  }
};

struct OpenEveryDrive : testing::TestWithParam<DriveKind> {
  TemporaryDirectory temporary;
  const std::filesystem::path file = temporary.write("file.bin", distinct_bytes(16 * kPage, 3));

  Error error_of(const std::filesystem::path& path) const {
    const std::vector<std::filesystem::path> paths = {file, path};
    Result<OpenedDrive> opened = open_drive(paths, {.choice = choice_of(GetParam())});
    EXPECT_FALSE(opened);
    return opened ? Error(ErrorCode::cancelled, "") : std::move(opened).error();
  }
};

TEST_P(OpenEveryDrive, NamesAMissingFile) {
  const Error error = error_of(temporary / "missing.bin");
  EXPECT_EQ(error.code(), ErrorCode::not_found);
  EXPECT_THAT(error, States("missing.bin", "No such file or directory"));
}

TEST_P(OpenEveryDrive, NamesAnEmptyFile) {
  const Error error = error_of(temporary.write("empty.bin", ""));
  EXPECT_EQ(error.code(), ErrorCode::corrupt_data);
  EXPECT_THAT(error, States("empty.bin", "weights", "empty"));
}

TEST_P(OpenEveryDrive, RejectsDirectoriesAndPipes) {
  const std::filesystem::path pipe = temporary / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(error_of(temporary.path()), States(temporary.path().native(), "directory"));
  EXPECT_THAT(error_of(pipe), States(pipe.native(), "a regular file", "a pipe"));
}

INSTANTIATE_TEST_SUITE_P(, OpenEveryDrive,
                         testing::Values(DriveKind::uring, DriveKind::pread, DriveKind::buffered,
                                         DriveKind::sim),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

TEST_F(OpenDrive, RejectsInvalidOptions) {
  const auto message = [&](const std::vector<std::filesystem::path>& paths, const DriveOptions& options) {
    const Result<OpenedDrive> opened = open(paths, options);
    EXPECT_FALSE(opened);
    return opened ? "" : opened.error().message();
  };
  EXPECT_THAT(message({}, {}), States("at least 1 file", "found 0"));
  EXPECT_THAT(message({file}, {.depth = 0}), States("depth", "from 1 to 4096", "found 0"));
  EXPECT_THAT(message({file}, {.depth = 4097}), States("depth", "from 1 to 4096", "found 4097"));
  EXPECT_THAT(message({file}, {.threads = 0}), States("1 to 1024 threads", "found 0"));
  EXPECT_THAT(message({file}, {.threads = 1025}), States("1 to 1024 threads", "found 1025"));
  EXPECT_THAT(message({file}, {.choice = {DriveKind::sim, {}}}), States("1 byte per second", "found 0"));
  const SimulatedDriveSpeed early{1, std::chrono::nanoseconds(-5)};
  EXPECT_THAT(message({file}, {.choice = {DriveKind::sim, early}}), States("latency", "-5 ns"));
}

TEST_F(OpenDrive, AcceptsTheLargestDepth) {
  const Result<OpenedDrive> opened = open({file}, {.depth = 4096});
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->drive->depth(), 4096U);
}

TEST_F(OpenDrive, DescribesTheOpenedDrive) {
  const Result<OpenedDrive> page_cache = open({file}, {.choice = {DriveKind::buffered}, .threads = 3});
  ASSERT_TRUE(page_cache);
  EXPECT_EQ(page_cache->drive->describe(), "3 threads, page cache");
  EXPECT_THAT(page_cache->refusals, IsEmpty());
  const Result<OpenedDrive> threads = open({file}, {.choice = {DriveKind::pread}, .threads = 1});
  ASSERT_TRUE(threads);
  EXPECT_EQ(threads->drive->describe(),
            threads->refusals.empty() ? "1 thread, direct reads" : "1 thread, page cache");
  const SimulatedDriveSpeed speed{3'000'000'000, std::chrono::microseconds(100)};
  const Result<OpenedDrive> simulated = open({file}, {.choice = {DriveKind::sim, speed}});
  ASSERT_TRUE(simulated);
  EXPECT_EQ(simulated->drive->describe(), "simulated drive, 3.00 GB/s, 100 us");
}

TEST_F(OpenDrive, ReadsCorrectlyWhileDroppingFromThePageCache) {
  const std::string content = temporary.read("file.bin");
  const Result<OpenedDrive> opened =
      open({file}, {.choice = {DriveKind::buffered}, .threads = 2, .drop_from_page_cache = true});
  ASSERT_TRUE(opened);
  AlignedBuffer memory = buffer_of(16 * kPage);
  for (std::uint64_t round = 0; round < 3; ++round) {
    EXPECT_EQ(read_one(*opened->drive, {round, 0, 0, memory.bytes()}).bytes, content.size());
    EXPECT_EQ(text_of(memory.bytes()), content);
  }
}

}  // namespace
}  // namespace moeflux
