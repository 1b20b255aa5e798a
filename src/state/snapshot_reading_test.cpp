// Reading snapshot files of every version in pieces: memory, order of reads, failures.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/sizes.h"
#include "base/testing/allocation_counter.h"
#include "state/piece_reader.h"
#include "state/snapshot_file.h"
#include "state/testing/imported_states.h"
#include "state/testing/recorded_file.h"
#include "state/testing/snapshot_files.h"

namespace moeflux {
namespace {

// A file of each version of several pieces.
struct LargeFile {
  std::string name;
  ModelConfig config;
  Bytes bytes;
  bool is_own;
};
constexpr std::uint32_t kMany = 6000;
const std::vector<LargeFile>& large_files() {
  const ModelConfig qwen = large_qwen_config(), deepseek = tiny_deepseek_config();
  const OwnFile with_checkpoints{.checkpoints = {40, 5000, 3000}};
  static const std::vector<LargeFile> files{
      {"version 4, qwen", qwen, own_file(qwen, kMany, with_checkpoints), true},
      {"version 4, deepseek", deepseek, own_file(deepseek, kMany, with_checkpoints), true},
      {"version 3, qwen", qwen, own_file(qwen, kMany, {.version = 3}), true},
      {"version 1, qwen", qwen, original_file(qwen, 1, kMany).bytes, false},
      {"version 2, deepseek", deepseek, original_file(deepseek, 2, kMany).bytes, false}};
  return files;
}
Result<SavedSession> read_large(const ReadFile& file, const LargeFile& large, BlockPool& pool) {
  return read_snapshot(file, {large.config, identity_of_tests(), pool, kMany, {}, 3});
}

void expect_read(const LargeFile& large, const Snapshot& snapshot) {
  const StateShape shape = state_shape_of(large.config);
  if (large.is_own)
    EXPECT_TRUE(bits_of(shape, snapshot) == written_bits(shape, kMany));
  else
    expect_imported(large.config, kMany, bits_of(shape, snapshot), written_bits(shape, kMany));
}

TEST(SnapshotReading, TakesMemoryForOnePieceBesidesTheBlocks) {
  for (const LargeFile& large : large_files()) {
    SCOPED_TRACE(large.name);
    ASSERT_GT(large.bytes.size(), 2 * PieceReader::kPieceBytes);
    const RecordedFile file(large.bytes);
    BlockPool pool(BlockPool::kNoBudget);
    file.reads.reserve(1000);
    const AllocationCounter counter;
    const Result<SavedSession> read = read_large(file, large, pool);
    ASSERT_TRUE(read) << read.error().message();
    // The piece; for the session and each checkpoint 4 bytes per token, and the tables of blocks.
    EXPECT_LT(counter.peak_bytes(), PieceReader::kPieceBytes + 4 * (4 * kMany + 16 * kKiB));
    EXPECT_LE(file.most_asked(), PieceReader::kPieceBytes);
    expect_read(large, read->snapshot);
  }
}

TEST(SnapshotReading, ReadsEachByteOfAnOwnFileOnceAndInOrder) {
  for (const LargeFile& large : large_files()) {
    if (!large.is_own) continue;
    const RecordedFile file(large.bytes);
    BlockPool pool(BlockPool::kNoBudget);
    ASSERT_TRUE(read_large(file, large, pool));
    std::uint64_t end = 0;
    for (const RecordedFile::Read& read : file.reads) {
      EXPECT_EQ(read.offset, end);
      end += read.bytes;
    }
    EXPECT_EQ(end, large.bytes.size());
  }
}

TEST(SnapshotReading, AcceptsShortReads) {
  for (const LargeFile& large : large_files()) {
    RecordedFile file(large.bytes);
    file.longest_read = 1021;
    BlockPool pool(BlockPool::kNoBudget);
    const Result<SavedSession> read = read_large(file, large, pool);
    ASSERT_TRUE(read) << read.error().message();
    expect_read(large, read->snapshot);
  }
}

TEST(SnapshotReading, LeavesNothingInThePoolWhicheverReadFails) {
  for (const LargeFile& large : large_files()) {
    SCOPED_TRACE(large.name);
    for (std::size_t good = 0; !HasFailure(); ++good) {
      RecordedFile file(large.bytes);
      file.fails_after = good;
      BlockPool pool(BlockPool::kNoBudget);
      const Result<SavedSession> read = read_large(file, large, pool);
      if (read) {
        EXPECT_GT(good, 3u) << "there were several reads to fail";
        break;
      }
      EXPECT_EQ(name_of(read.error().code()), "io_failed");
      EXPECT_EQ(pool.used_bytes(), 0u);
    }
  }
}

TEST(SnapshotReading, LeavesNothingInThePoolWhereverTheFileBecomesShorter) {
  for (const LargeFile& large : large_files())
    for (const std::uint64_t end :
         {std::uint64_t{0}, std::uint64_t{70}, std::uint64_t{large.bytes.size() / 2},
          std::uint64_t{large.bytes.size() - 1}}) {
      RecordedFile file(large.bytes);
      file.ends_at = end;
      BlockPool pool(BlockPool::kNoBudget);
      const Result<SavedSession> read = read_large(file, large, pool);
      ASSERT_FALSE(read) << large.name << " of " << end << " bytes";
      EXPECT_EQ(name_of(read.error().code()), "corrupt_data");
      EXPECT_EQ(pool.used_bytes(), 0u);
    }
}

TEST(SnapshotReading, ReadsOnePieceOfAFileWithAWrongSize) {
  const ModelConfig config = tiny_deepseek_config();
  Bytes bytes = own_file(config, 100);
  bytes.resize(5 * PieceReader::kPieceBytes);
  const RecordedFile file(bytes);
  BlockPool pool(0);
  EXPECT_FALSE(read_snapshot(file, {config, identity_of_tests(), pool, kMany}));
  EXPECT_LE(file.read_bytes, PieceReader::kPieceBytes);
}

}  // namespace
}  // namespace moeflux
