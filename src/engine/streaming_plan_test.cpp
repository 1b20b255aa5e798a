// How an engine decides to stream: the size of its cache, the drive, and its report.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/sizes.h"
#include "engine/testing/streaming_testing.h"

namespace moeflux {
namespace {

using test::States;
using testing::Contains;
using testing::Not;

class StreamingPlan : public testing::Test {
 protected:
  const ModelOnDisk model{small_qwen()};
  const PackedModel packed = [&] {
    PosixFileSystem disk;
    return *PackedModel::open(disk, model.path());
  }();
  const std::uint64_t all = ResidentExperts::bytes_of(packed), least = ExpertStore::least_bytes(packed);
  static constexpr std::uint32_t kRecords = 5 * 8;
};

TEST_F(StreamingPlan, HoldsAllExpertsIfTheyFit) {
  const auto engine = model.open({.threads = 1});
  EXPECT_EQ(engine->memory_plan().experts_bytes, all);
  EXPECT_EQ(engine->streaming().slots, kRecords);
  EXPECT_EQ(engine->streaming().records, kRecords);
  EXPECT_THAT(engine->streaming().notes, Not(Contains(States("one token visits"))));
}

TEST_F(StreamingPlan, StreamsNothingWithAnotherSource) {
  const auto engine = open_resident(model);
  EXPECT_EQ(engine->streaming().drive, "");
  EXPECT_EQ(engine->streaming().records, kRecords);
  EXPECT_EQ(engine->expert_statistics(), ExpertStatistics());
}

TEST_F(StreamingPlan, ReadsThroughThePageCacheIfOnlyThatHasRoomForAll) {
  const auto engine = model.open({.threads = 1, .expert_cache_bytes = all / 2});
  EXPECT_THAT(engine->streaming().drive, States("page cache"));
  EXPECT_LT(engine->streaming().slots, kRecords);
  // With all experts in slots, a second copy in the page cache is useless.
  const StreamingReport whole = model.open({.threads = 1, .expert_cache_bytes = all})->streaming();
  if (whole.notes.empty()) {
    EXPECT_THAT(whole.drive, States("direct reads"));
  }
}

TEST_F(StreamingPlan, ReadsDirectlyIfThePageCacheHasNoRoomEither) {
  const std::uint64_t total =
      model.open({.threads = 1, .expert_cache_bytes = least})->memory_plan().total_bytes();
  const auto engine = model.open({.threads = 1, .usable_memory_bytes = total, .expert_cache_bytes = least});
  if (!engine->streaming().notes.empty() && engine->streaming().drive.find("direct") == std::string::npos)
    GTEST_SKIP() << engine->streaming().notes.front();
  EXPECT_THAT(engine->streaming().drive, States("direct reads"));
}

TEST_F(StreamingPlan, UsesTheRequestedDrive) {
  const auto drive_of = [&](const DriveChoice& drive) {
    return model.open({.threads = 1, .expert_cache_bytes = all / 2, .drive = drive})->streaming();
  };
  EXPECT_THAT(drive_of({DriveKind::buffered, {}}).drive, States("page cache"));
  EXPECT_THAT(drive_of({DriveKind::sim, kFastSimulation}).drive, States("simulated drive"));
  for (const DriveKind kind : {DriveKind::uring, DriveKind::pread}) {
    const StreamingReport report = drive_of({kind, {}});
    if (report.notes.empty()) {
      EXPECT_THAT(report.drive, States(kind == DriveKind::uring ? "io_uring" : "direct reads"));
    }
  }
}

TEST_F(StreamingPlan, NotesThatACacheBelowOneTokensExpertsIsSlow) {
  std::uint64_t token = 0;  // three experts of every layer
  for (const ExpertFile& file : packed.manifest().experts) token += 3 * file.records.front().bytes;
  const StreamingReport slow = model.open({.threads = 1, .expert_cache_bytes = least})->streaming();
  EXPECT_THAT(slow.notes, Contains(States(human_bytes(least), human_bytes(token), "one token visits")));
  const StreamingReport fast = model.open({.threads = 1, .expert_cache_bytes = 2 * token})->streaming();
  EXPECT_THAT(fast.notes, Not(Contains(States("one token visits"))));
  // Fewer experts per token need less.
  const StreamingReport fewer =
      model.open({.threads = 1, .experts_per_token = 1, .expert_cache_bytes = token / 2})->streaming();
  EXPECT_THAT(fewer.notes, Not(Contains(States("one token visits"))));
}

TEST_F(StreamingPlan, RefusesACacheThatHoldsNoExpert) {
  const auto refused = model.try_open({.threads = 1, .expert_cache_bytes = least - 1});
  EXPECT_TRUE(fails_with(refused, ErrorCode::invalid_argument, human_bytes(least)));
  EXPECT_TRUE(fails_with(refused, ErrorCode::invalid_argument, human_bytes(least - 1)));
}

TEST_F(StreamingPlan, SizesTheCacheByThePlan) {
  const MemoryPlan whole = model.open({.threads = 1})->memory_plan();
  const std::uint64_t others = whole.total_bytes() - whole.experts_bytes, reserve = 64 * kMiB;
  const std::uint64_t small = packed.manifest().experts[0].records[0].bytes;
  const std::uint64_t large = packed.manifest().experts[1].records[0].bytes;
  for (std::uint64_t left = least; left < all; left += small + 4096) {
    const auto engine = model.open({.threads = 1, .usable_memory_bytes = others + reserve + left});
    const std::uint64_t bytes = engine->memory_plan().experts_bytes;
    EXPECT_LE(bytes, left);
    // Slots have two sizes, so count and bytes determine them.
    const std::uint64_t slots = engine->streaming().slots;
    ASSERT_GE(bytes, slots * small) << "with " << left << " left";
    EXPECT_EQ((bytes - slots * small) % (large - small), 0u) << "with " << left << " left";
    EXPECT_LE((bytes - slots * small) / (large - small), 16u);
    EXPECT_LE(left - bytes, 2 * (small + large)) << slots << " slots: room is left unused";
    EXPECT_EQ(ExpertStore::bytes_of(packed, left), bytes);
  }
}

}  // namespace
}  // namespace moeflux
