#include "io/testing/faulty_drive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "base/memory/aligned_buffer.h"
#include "io/testing/drive_testing.h"
#include "io/testing/temporary_directory.h"

namespace moeflux {
namespace {

using testing::ElementsAre;

constexpr std::size_t kPage = kDriveAlignment;
constexpr std::chrono::nanoseconds kShortWait = std::chrono::milliseconds(2);

struct FaultyDrives : testing::Test {
  TemporaryDirectory temporary;
  const std::string content = distinct_bytes(64 * kPage, 5);
  const std::vector<std::filesystem::path> paths = {temporary.write("file.bin", content)};
  AlignedBuffer memory = *AlignedBuffer::create(64 * kPage);
  std::shared_ptr<DriveFaults> faults = std::make_shared<DriveFaults>();
  std::unique_ptr<Drive> drive;

  void SetUp() override {
    Result<OpenedDrive> opened =
        open_drive(paths, {.choice = {DriveKind::buffered}, .depth = 16, .threads = 2});
    ASSERT_TRUE(opened);
    drive = std::make_unique<FaultyDrive>(std::move(opened->drive), faults);
    std::memset(memory.data(), 0, memory.size());
  }

  // Read `i` reads page `i` of the file into page `i` of the memory.
  std::span<std::byte> page(std::size_t i) { return memory.bytes().subspan(i * kPage, kPage); }
  std::string_view expected_page(std::size_t i) const {
    return std::string_view(content).substr(i * kPage, kPage);
  }
  DriveRead read_of(std::size_t i) { return {i + 100, 0, i * kPage, page(i)}; }
  void submit(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) drive->submit(read_of(i));
  }
  std::vector<std::uint64_t> collected_tags(std::size_t count) {
    std::vector<std::uint64_t> tags;
    for (const DriveCompletion& completion : collect_all(*drive, count)) tags.push_back(completion.tag);
    return tags;
  }
};

TEST_F(FaultyDrives, ForwardEverythingWithoutAPlan) {
  submit(16);
  EXPECT_EQ(faults->reads_in_flight(), 16U);
  auto tags = collected_tags(16);
  std::ranges::sort(tags);
  for (std::size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(tags[i], 100 + i);
    EXPECT_EQ(text_of(page(i)), expected_page(i));
  }
  EXPECT_EQ(faults->reads(), 16U);
  EXPECT_EQ(faults->bytes(), 16 * kPage);
  EXPECT_EQ(faults->reads_in_flight(), 0U);
  EXPECT_EQ(drive->kind(), DriveKind::buffered);
  EXPECT_EQ(drive->describe(), "2 threads, page cache, with faults");
  EXPECT_EQ(drive->path(0), paths[0]);
  ASSERT_TRUE(drive->stamp(0));
  EXPECT_EQ(drive->stamp(0)->size_bytes, content.size());
}

TEST_F(FaultyDrives, FailOnlyTheReadOfTheGivenIndex) {
  faults->set_plan({.faults = {{.index = 1, .error_number = ENXIO}}});
  for (std::size_t i = 0; i < 4; ++i) {
    const DriveCompletion completion = read_one(*drive, read_of(i));
    EXPECT_EQ(completion.tag, 100 + i);
    EXPECT_EQ(completion.error_number, i == 1 ? ENXIO : 0);
    EXPECT_EQ(completion.bytes, i == 1 ? 0 : kPage);
  }
  EXPECT_EQ(text_of(page(1)), std::string(kPage, '\0'));
  faults->set_plan({.faults = {{.index = 1}}});  // counts from 0 again
  EXPECT_EQ(read_one(*drive, read_of(0)).error_number, 0);
  EXPECT_EQ(read_one(*drive, read_of(0)).error_number, EIO);
  EXPECT_EQ(faults->bytes(), 4 * kPage);
}

TEST_F(FaultyDrives, CanFailAllLaterReads) {
  faults->set_plan({.faults = {{.index = 2, .and_all_later = true}}});
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(read_one(*drive, read_of(i)).error_number, i < 2 ? 0 : EIO);
  faults->set_plan({});
  EXPECT_EQ(read_one(*drive, read_of(0)).error_number, 0);
}

TEST_F(FaultyDrives, ShortenReads) {
  faults->set_plan({.faults = {{.kind = DriveFaultKind::short_read, .and_all_later = true}}});
  const DriveCompletion half = read_one(*drive, read_of(3));
  EXPECT_EQ(half.error_number, 0);
  EXPECT_EQ(half.bytes, kPage / 2);
  EXPECT_EQ(text_of(page(3)).substr(0, kPage / 2), expected_page(3).substr(0, kPage / 2));
  EXPECT_NE(text_of(page(3)).substr(kPage / 2), expected_page(3).substr(kPage / 2));
  EXPECT_EQ(read_one(*drive, {1, 0, 0, page(0).first(1536)}).bytes, 512U);
  EXPECT_EQ(read_one(*drive, {1, 0, 0, page(0).first(513)}).bytes, 512U);
  EXPECT_EQ(read_one(*drive, {1, 0, 0, page(0).first(512)}).bytes, 512U);
}

TEST_F(FaultyDrives, EndFilesEarly) {
  faults->set_plan({.faults = {{.kind = DriveFaultKind::end_of_file}}});
  const DriveCompletion ended = read_one(*drive, read_of(0));
  EXPECT_EQ(ended.tag, 100U);
  EXPECT_EQ(ended.error_number, 0);
  EXPECT_EQ(ended.bytes, 0U);
}

TEST_F(FaultyDrives, FlipOneBit) {
  faults->set_plan({.faults = {{.kind = DriveFaultKind::flipped_bit}}});
  EXPECT_EQ(read_one(*drive, read_of(2)).bytes, kPage);
  int flipped = 0;
  for (std::size_t i = 0; i < kPage; ++i) {
    flipped += __builtin_popcount(static_cast<unsigned char>(text_of(page(2))[i] ^ expected_page(2)[i]));
  }
  EXPECT_EQ(flipped, 1);
}

TEST_F(FaultyDrives, KeepStuckReadsUntilTheyAreReleased) {
  faults->set_plan({.faults = {{.kind = DriveFaultKind::stuck, .index = 1}}});
  submit(3);
  EXPECT_EQ(faults->stuck(), 1U);
  auto tags = collected_tags(2);
  std::ranges::sort(tags);
  EXPECT_THAT(tags, ElementsAre(100, 102));
  std::array<DriveCompletion, 4> none;
  EXPECT_EQ(drive->collect(none, kShortWait), 0U);
  EXPECT_EQ(drive->collect(none, std::chrono::nanoseconds{0}), 0U);
  EXPECT_EQ(faults->reads_in_flight(), 1U);
  EXPECT_EQ(text_of(page(1)), std::string(kPage, '\0'));
  faults->release_stuck();
  EXPECT_THAT(collected_tags(1), ElementsAre(101));
  EXPECT_EQ(text_of(page(1)), expected_page(1));
  EXPECT_EQ(faults->stuck(), 0U);
  EXPECT_EQ(faults->reads_in_flight(), 0U);
}

TEST_F(FaultyDrives, NoticeAReleaseWhileWaiting) {
  faults->set_plan({.faults = {{.kind = DriveFaultKind::stuck}}});
  submit(1);
  std::thread releaser([&] { faults->release_stuck(); });
  EXPECT_THAT(collected_tags(1), ElementsAre(100));
  releaser.join();
}

TEST_F(FaultyDrives, ReleaseOnlyReadsThatAreStuckAlready) {
  faults->release_stuck();
  faults->set_plan({.faults = {{.kind = DriveFaultKind::stuck, .and_all_later = true}}});
  submit(1);
  std::array<DriveCompletion, 1> none;
  EXPECT_EQ(drive->collect(none, kShortWait), 0U);
  faults->release_stuck();
  EXPECT_THAT(collected_tags(1), ElementsAre(100));
  submit(1);
  EXPECT_EQ(drive->collect(none, kShortWait), 0U);
  EXPECT_EQ(faults->stuck(), 1U);
}

TEST_F(FaultyDrives, DropStuckReadsWhenDestroyed) {
  faults->set_plan({.faults = {{.kind = DriveFaultKind::stuck, .index = 2, .and_all_later = true}}});
  submit(8);
  drive->flush();
  EXPECT_EQ(faults->stuck(), 6U);
  drive.reset();
  EXPECT_EQ(faults->stuck(), 0U);
  EXPECT_EQ(faults->reads_in_flight(), 0U);
}

TEST_F(FaultyDrives, CompleteReadsInThePickedOrder) {
  faults->set_plan({.faults = {{.kind = DriveFaultKind::error, .index = 3}},
                    .pick = [](std::size_t count) { return count - 1; }});
  submit(8);
  std::array<DriveCompletion, 8> out;
  EXPECT_EQ(drive->collect(out, kPatience), 1U) << "one per call";
  const auto rest = collected_tags(7);
  std::vector<std::uint64_t> tags = {out[0].tag};
  tags.insert(tags.end(), rest.begin(), rest.end());
  EXPECT_EQ(tags.back(), 103U) << "the failed one was held first";
  std::ranges::sort(tags);
  EXPECT_THAT(tags, ElementsAre(100, 101, 102, 103, 104, 105, 106, 107));
}

TEST_F(FaultyDrives, CompleteOtherReadsWhileSomeAreStuck) {
  faults->set_plan({.faults = {{.kind = DriveFaultKind::stuck, .index = 0}}, .pick = random_pick(3)});
  submit(4);
  auto tags = collected_tags(3);
  std::ranges::sort(tags);
  EXPECT_THAT(tags, ElementsAre(101, 102, 103));
  faults->release_stuck();
  EXPECT_THAT(collected_tags(1), ElementsAre(100));
}

TEST_F(FaultyDrives, PickTheSameOrderForTheSameSeed) {
  const auto first = random_pick(1);
  const auto same = random_pick(1);
  const auto other = random_pick(2);
  std::vector<std::size_t> firsts, sames, others;
  for (std::size_t count = 1; count < 50; ++count) {
    firsts.push_back(first(count));
    sames.push_back(same(count));
    others.push_back(other(count));
    EXPECT_LT(firsts.back(), count);
  }
  EXPECT_EQ(firsts, sames);
  EXPECT_NE(firsts, others);
}

}  // namespace
}  // namespace moeflux
