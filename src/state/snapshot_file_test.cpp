#include "state/snapshot_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/sizes.h"
#include "base/testing/allocation_counter.h"
#include "base/testing/states.h"
#include "state/piece_reader.h"
#include "state/testing/imported_states.h"
#include "state/testing/recorded_file.h"
#include "state/testing/snapshot_files.h"

namespace moeflux {
namespace {

using test::States;
using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAreArray;
using testing::IsEmpty;

constexpr std::uint32_t kContext = 1000;
constexpr std::uint32_t kPositions[] = {0, 1, 255, 256, 257, 600};

struct NamedConfig {
  std::string name;
  ModelConfig config;
};
std::vector<NamedConfig> all_configs() {
  return {{"small qwen", small_qwen_config()},
          {"striped qwen", striped_qwen_config()},
          {"small deepseek", small_deepseek_config()},
          {"tiny qwen", tiny_qwen_config()},
          {"tiny deepseek", tiny_deepseek_config()}};
}
std::vector<NamedConfig> small_configs() {
  return {{"small qwen", small_qwen_config()}, {"small deepseek", small_deepseek_config()}};
}

SessionState created(const ModelConfig& config, BlockPool& pool, std::uint32_t context) {
  Result<SessionState> state = SessionState::create(config, pool, context);
  EXPECT_TRUE(state) << state.error().message();
  return *std::move(state);
}

Snapshot snapshot_at(const ModelConfig& config, BlockPool& pool, std::uint32_t position) {
  SessionState state = created(config, pool, position);
  EXPECT_TRUE(position == 0 || run_step(state, position));
  return state.snapshot();
}

Bytes written(const ModelConfig& config, const SavedSession& session) {
  Bytes bytes;
  const Status status = write_snapshot(state_shape_of(config), identity_of_tests(), session,
                                       [&](std::span<const std::byte> piece) -> Status {
                                         bytes.insert(bytes.end(), piece.begin(), piece.end());
                                         return {};
                                       });
  EXPECT_TRUE(status) << status.error().message();
  EXPECT_EQ(bytes.size(), snapshot_bytes(state_shape_of(config), session));
  return bytes;
}

Result<SavedSession> read_session(std::span<const std::byte> bytes, const ModelConfig& config,
                                  BlockPool& pool, std::size_t most_checkpoints = 1000) {
  return read_snapshot(bytes, {config, identity_of_tests(), pool, kContext, {}, most_checkpoints});
}

Result<Snapshot> read(std::span<const std::byte> bytes, const ModelConfig& config, BlockPool& pool,
                      std::uint32_t context = kContext) {
  MF_TRY(SavedSession session, read_snapshot(bytes, {config, identity_of_tests(), pool, context}));
  return std::move(session.snapshot);
}

void expect_written(const ModelConfig& config, const Snapshot& snapshot, std::uint32_t position,
                    std::uint32_t tokens_begin) {
  EXPECT_EQ(snapshot.position(), position);
  EXPECT_EQ(snapshot.tokens_begin(), tokens_begin);
  EXPECT_THAT(snapshot.tokens(), ElementsAreArray(written_tokens(tokens_begin, position)));
  const StateShape shape = state_shape_of(config);
  EXPECT_TRUE(bits_of(shape, snapshot) == written_bits(shape, position));
}

// ---- Versions 3 and 4 ----

TEST(SnapshotFile, IsWrittenAsDocumented) {
  for (const auto& [name, config] : all_configs())
    for (const std::uint32_t position : kPositions) {
      BlockPool pool(BlockPool::kNoBudget);
      const Bytes bytes = written(config, {snapshot_at(config, pool, position)});
      EXPECT_TRUE(bytes == own_file(config, position)) << name << " at " << position;
      EXPECT_EQ(bytes.size(), snapshot_bytes(state_shape_of(config), position, position));
    }
}

TEST(SnapshotFile, HoldsTheSnapshotItWasWrittenFrom) {
  for (const auto& [name, config] : all_configs())
    for (const std::uint32_t position : kPositions) {
      SCOPED_TRACE(fmt::format("{} at {}", name, position));
      BlockPool pool(BlockPool::kNoBudget), other(BlockPool::kNoBudget);
      const Bytes bytes = written(config, {snapshot_at(config, pool, position)});
      const Result<Snapshot> again = read(bytes, config, other);
      ASSERT_TRUE(again) << again.error().message();
      expect_written(config, *again, position, 0);
      EXPECT_EQ(other.used_bytes(),
                state_shape_of(config).kv_bytes(position) + state_shape_of(config).recurrent_block_bytes());
      EXPECT_TRUE(written(config, {*again}) == bytes);
    }
}

TEST(SnapshotFile, HoldsOnlyKnownTokens) {
  for (const auto& [name, config] : small_configs())
    for (const std::uint32_t begin : {1u, 200u, 299u, 300u}) {
      SCOPED_TRACE(fmt::format("{} from {}", name, begin));
      BlockPool pool(BlockPool::kNoBudget);
      const Bytes bytes = own_file(config, 300, {.tokens_begin = begin});
      EXPECT_EQ(bytes.size(), snapshot_bytes(state_shape_of(config), 300, 300 - begin));
      const Result<Snapshot> snapshot = read(bytes, config, pool);
      ASSERT_TRUE(snapshot) << snapshot.error().message();
      expect_written(config, *snapshot, 300, begin);
      EXPECT_TRUE(written(config, {*snapshot}) == bytes);
    }
}

TEST(SnapshotFile, CanBeContinuedWithoutACopy) {
  for (const auto& [name, config] : small_configs())
    for (const std::uint32_t position : {1u, 255u, 256u, 600u}) {
      SCOPED_TRACE(fmt::format("{} at {}", name, position));
      BlockPool pool(BlockPool::kNoBudget);
      const Result<Snapshot> snapshot = read(own_file(config, position), config, pool);
      ASSERT_TRUE(snapshot) << snapshot.error().message();
      SessionState first = created(config, pool, kContext), second = created(config, pool, kContext);
      first.restore(*snapshot);
      second.restore(*snapshot);
      ASSERT_TRUE(run_step(first, 300));
      EXPECT_EQ(pool.copied_bytes(), 0u);  // the claimed rows end at the position
      ASSERT_TRUE(run_step(second, 30, {1, position}));
      const StateShape shape = state_shape_of(config);
      EXPECT_TRUE(bits_of(first) == written_bits(shape, position + 300));
      EXPECT_TRUE(bits_of(second) == written_bits(shape, position + 30, {1, position}));
      expect_written(config, *snapshot, position, 0);
    }
}

TEST(SnapshotFile, FillsTheContextToItsLastPosition) {
  BlockPool pool(BlockPool::kNoBudget);
  EXPECT_TRUE(read(own_file(small_qwen_config(), 300), small_qwen_config(), pool, 300));
  EXPECT_TRUE(read(original_file(small_qwen_config(), 2, 300).bytes, small_qwen_config(), pool, 300));
}

TEST(SnapshotFile, ComesInPiecesInOrder) {
  struct Case {
    ModelConfig config;
    std::uint32_t position;
  };
  for (const Case& large : {Case{large_qwen_config(), 10}, Case{tiny_deepseek_config(), 5000}}) {
    BlockPool pool(BlockPool::kNoBudget);
    const Snapshot snapshot = snapshot_at(large.config, pool, large.position);
    Bytes bytes;
    int pieces = 0;
    ASSERT_TRUE(write_snapshot(state_shape_of(large.config), identity_of_tests(), {snapshot},
                               [&](std::span<const std::byte> piece) -> Status {
                                 EXPECT_THAT(piece, testing::Not(IsEmpty()));
                                 bytes.insert(bytes.end(), piece.begin(), piece.end());
                                 ++pieces;
                                 return {};
                               }));
    EXPECT_GT(pieces, 2);
    EXPECT_TRUE(bytes == own_file(large.config, large.position));
  }
}

TEST(SnapshotFile, IsWrittenWithoutCopyingTheState) {
  BlockPool pool(BlockPool::kNoBudget);
  const StateShape shape = state_shape_of(large_qwen_config());
  const Snapshot snapshot = snapshot_at(large_qwen_config(), pool, 8000);
  const AllocationCounter counter;
  ASSERT_TRUE(write_snapshot(shape, identity_of_tests(), {snapshot},
                             [](std::span<const std::byte>) -> Status { return {}; }));
  EXPECT_LT(counter.peak_bytes(), snapshot_bytes(shape, 8000, 8000) / 2);
}

TEST(SnapshotFile, StopsAtTheFirstErrorOfItsSink) {
  BlockPool pool(BlockPool::kNoBudget);
  const ModelConfig config = tiny_deepseek_config();
  const Snapshot snapshot = snapshot_at(config, pool, 5000);
  for (int good = 0; good < 4; ++good) {
    int calls = 0;
    const Status status = write_snapshot(state_shape_of(config), identity_of_tests(), {snapshot},
                                         [&](std::span<const std::byte>) -> Status {
                                           if (calls++ < good) return {};
                                           return Error(ErrorCode::no_space, "the disk is full");
                                         });
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code(), ErrorCode::no_space);
    EXPECT_EQ(calls, good + 1);
  }
}

TEST(SnapshotFile, KeepsTheOwnerOfThePoolAlive) {
  for (const Bytes& bytes :
       {own_file(small_qwen_config(), 5), original_file(small_qwen_config(), 1, 5).bytes}) {
    auto pool = std::make_shared<BlockPool>(BlockPool::kNoBudget);
    const std::weak_ptr<BlockPool> watched = pool;
    {
      const Result<SavedSession> session =
          read_snapshot(bytes, {small_qwen_config(), identity_of_tests(), *pool, kContext, pool});
      ASSERT_TRUE(session) << session.error().message();
      pool.reset();
      EXPECT_FALSE(watched.expired());
    }
    EXPECT_TRUE(watched.expired());
  }
}

TEST(SnapshotFile, OfVersion3IsReadWithoutCheckpoints) {
  for (const auto& [name, config] : all_configs())
    for (const std::uint32_t position : kPositions) {
      SCOPED_TRACE(fmt::format("{} at {}", name, position));
      BlockPool pool(BlockPool::kNoBudget);
      const Result<SavedSession> session = read_session(
          own_file(config, position, {.version = 3, .tokens_begin = position / 2}), config, pool);
      ASSERT_TRUE(session) << session.error().message();
      expect_written(config, session->snapshot, position, position / 2);
      EXPECT_THAT(session->checkpoints, IsEmpty());
    }
}

// ---- Versions 1 and 2 ----

Bytes first_bytes(const Bytes& bytes, std::size_t count) {
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count)};
}

struct Import {
  std::string name;
  ModelConfig config;
  std::uint32_t version;
  OriginalFile at(std::uint32_t position) const { return original_file(config, version, position); }
  std::size_t header_bytes() const { return version == 1 ? 32 : 40; }
};
std::vector<Import> small_imports() {
  return {{"small qwen, version 1", small_qwen_config(), 1},
          {"small qwen, version 2", small_qwen_config(), 2},
          {"small deepseek, version 2", small_deepseek_config(), 2}};
}

TEST(SnapshotImport, HasTheOriginalsStateAndNoTokens) {
  std::vector<Import> imports = small_imports();
  imports.push_back({"striped qwen, version 2", striped_qwen_config(), 2});
  imports.push_back({"tiny qwen, version 1", tiny_qwen_config(), 1});
  imports.push_back({"tiny qwen, version 2", tiny_qwen_config(), 2});
  imports.push_back({"tiny deepseek, version 2", tiny_deepseek_config(), 2});
  for (const Import& import : imports)
    for (const std::uint32_t position : kPositions) {
      SCOPED_TRACE(fmt::format("{} at {}", import.name, position));
      BlockPool pool(BlockPool::kNoBudget);
      const Result<Snapshot> snapshot = read(import.at(position).bytes, import.config, pool);
      ASSERT_TRUE(snapshot) << snapshot.error().message();
      EXPECT_EQ(snapshot->position(), position);
      EXPECT_EQ(snapshot->tokens_begin(), position);
      EXPECT_THAT(snapshot->tokens(), IsEmpty());
      const StateShape shape = state_shape_of(import.config);
      expect_imported(import.config, position, bits_of(shape, *snapshot), written_bits(shape, position));
      EXPECT_EQ(pool.used_bytes(), state_shape_of(import.config).kv_bytes(position) +
                                       state_shape_of(import.config).recurrent_block_bytes());
    }
}

TEST(SnapshotImport, IsWrittenAsVersion4WithTheTokensSince) {
  for (const Import& import : small_imports()) {
    SCOPED_TRACE(import.name);
    BlockPool pool(BlockPool::kNoBudget);
    SessionState state = created(import.config, pool, kContext);
    {
      const Result<Snapshot> snapshot = read(import.at(300).bytes, import.config, pool);
      ASSERT_TRUE(snapshot) << snapshot.error().message();
      state.restore(*snapshot);
    }
    EXPECT_EQ(state.tokens_begin(), 300u);
    ASSERT_TRUE(run_step(state, 20));
    const Bytes file = written(import.config, {state.snapshot()}),
                expected = own_file(import.config, 320, {.tokens_begin = 300});
    ASSERT_EQ(file.size(), expected.size());
    const std::size_t numbers_at = 64 + 20 * sizeof(std::uint32_t);
    EXPECT_TRUE(first_bytes(file, numbers_at) == first_bytes(expected, numbers_at));
    BlockPool other(BlockPool::kNoBudget);
    const Result<Snapshot> again = read(file, import.config, other);
    ASSERT_TRUE(again) << again.error().message();
    const StateShape shape = state_shape_of(import.config);
    expect_imported(import.config, 320, bits_of(shape, *again), written_bits(shape, 320));
  }
}

// ---- Rejected files ----

// Reads a file that is wrong, with `budget` bytes of blocks, and returns the error.
Error refused_within(std::uint64_t budget, const Bytes& bytes, const ModelConfig& config,
                     std::uint32_t context, const SnapshotIdentity& identity) {
  BlockPool pool(budget);
  // An exact copy, so that AddressSanitizer detects reads beyond the end.
  const Bytes exact(bytes.begin(), bytes.end());
  const Result<SavedSession> session = read_snapshot(exact, {config, identity, pool, context, {}, 1000});
  EXPECT_FALSE(session) << "it was read";
  EXPECT_EQ(pool.used_bytes(), 0u);
  if (session) return Error(ErrorCode::cancelled, "it was read");
  EXPECT_THAT(session.error().message(), testing::StartsWith("snapshot: "));
  return session.error();
}

// The pool has no room, so the test fails if a block is acquired before the error is found.
Error refused(const Bytes& bytes, const ModelConfig& config, std::uint32_t context = kContext,
              const SnapshotIdentity& identity = identity_of_tests()) {
  return refused_within(0, bytes, config, context, identity);
}

// The error may be found after the whole file was read.
Error refused_at_the_end(const Bytes& bytes, const ModelConfig& config) {
  return refused_within(BlockPool::kNoBudget, bytes, config, kContext, identity_of_tests());
}

#define EXPECT_REFUSED(error_expression, expected_code, message_matcher)             \
  do {                                                                               \
    const Error refusal = (error_expression);                                        \
    EXPECT_EQ(name_of(refusal.code()), name_of(expected_code)) << refusal.message(); \
    EXPECT_THAT(refusal.message(), message_matcher);                                 \
  } while (false)

// A file with one word changed, and a checksum that agrees.
template <class T>
Bytes own_file_with(const ModelConfig& config, std::size_t offset, T value, std::uint32_t position = 3,
                    const OwnFile& file = {}) {
  Bytes bytes = own_file(config, position, file);
  put_at(bytes, offset, value);
  fix_checksum(bytes);
  return bytes;
}

TEST(SnapshotFileRefusal, BufferTooSmallIsLessThanAHeader) {
  const auto expect = [](const ModelConfig& config, const Bytes& whole, std::size_t header) {
    for (std::size_t size = 0; size < header; ++size)
      EXPECT_REFUSED(refused(first_bytes(whole, size), config), ErrorCode::buffer_too_small,
                     States(size < 8 ? 8 : header, size));
  };
  for (const auto& [name, config] : small_configs()) expect(config, own_file(config, 3), 64 + 8);
  for (const Import& import : small_imports())
    expect(import.config, import.at(3).bytes, import.header_bytes());
}

TEST(SnapshotFileRefusal, BadMagicIsAWrongFirstWord) {
  for (Bytes bytes : {own_file(small_qwen_config(), 3), original_file(small_qwen_config(), 1, 3).bytes}) {
    put_at(bytes, 0, 0x12345678u);
    EXPECT_REFUSED(refused(bytes, small_qwen_config()), ErrorCode::bad_magic, States("12345678", "4d464c58"));
  }
}

TEST(SnapshotFileRefusal, BadVersionIsAnUnknownVersion) {
  for (const auto& [name, config] : small_configs())
    for (const std::uint32_t version : {0u, 5u, 0x03000000u, ~0u})
      EXPECT_REFUSED(refused(own_file_with(config, 4, version), config), ErrorCode::bad_version,
                     States("version", version));
}

TEST(SnapshotFileRefusal, BadVersionIsVersion1OfAModelWithLatentAttention) {
  // The version is checked before the model.
  for (const Bytes& bytes :
       {original_file(small_deepseek_config(), 1, 3).bytes, original_file(small_qwen_config(), 1, 3).bytes})
    EXPECT_REFUSED(refused(bytes, small_deepseek_config()), ErrorCode::bad_version, States("version 1"));
}

TEST(SnapshotFileRefusal, ShapeMismatchNamesTheFieldOfTheOriginalsHeader) {
  struct Case {
    std::size_t word;
    std::string name;
    std::uint32_t qwen, deepseek;  // values of the models
  };
  constexpr std::uint32_t kAny = ~0u;  // not compared: the meaning of the original's value is unknown
  const Case cases[] = {{2, "the number of layers", 4, 2},
                        {3, "the distance between attention layers", 2, kAny},
                        {4, "the number of kv heads", 2, kAny},
                        {5, "the head size", 4, kAny},
                        {6, "the bytes of a convolution state", 2 * 10 * 4, 0},
                        {7, "the bytes of a recurrent state", 2 * 2 * 3 * 4, 0},
                        {8, "the latent size", 0, 3},
                        {9, "the rotated size", 0, 2}};
  for (const Import& import : small_imports())
    for (const Case& field : cases) {
      if (import.version == 1 && field.word >= 8) continue;
      const std::uint32_t expected =
          import.config.family == Family::qwen3_5_moe ? field.qwen : field.deepseek;
      for (const std::uint32_t wrong : {77u, 0xFFFF'FFFEu}) {
        SCOPED_TRACE(fmt::format("{}: {} is {}", import.name, field.name, wrong));
        Bytes bytes = import.at(3).bytes;
        put_at(bytes, 4 * field.word, wrong);
        if (expected == kAny) {
          BlockPool pool(BlockPool::kNoBudget);
          EXPECT_TRUE(read(bytes, import.config, pool));
        } else {
          EXPECT_REFUSED(refused(bytes, import.config), ErrorCode::shape_mismatch,
                         States(field.name, wrong, expected));
        }
      }
    }
}

TEST(SnapshotFileRefusal, ShapeMismatchNamesTheFieldOfOurOwnHeader) {
  const ModelConfig config = small_qwen_config();
  for (const std::uint32_t version : {3u, 4u}) {
    const auto with = [&](std::size_t offset, std::uint32_t value) {
      return refused(own_file_with(config, offset, value, 3, {.version = version}), config);
    };
    EXPECT_REFUSED(with(48, 77), ErrorCode::shape_mismatch, States("the number of layers", 77, 4));
    EXPECT_REFUSED(with(56, 4), ErrorCode::shape_mismatch, States("token", 4, 3));
  }
  EXPECT_REFUSED(refused(own_file_with(config, 60, 77u, 3, {.version = 3}), config),
                 ErrorCode::shape_mismatch, States("byte 60", 77, 0));
}

TEST(SnapshotFileRefusal, ShapeMismatchNamesAWrongCheckpoint) {
  for (const NamedConfig& model : small_configs()) {
    const ModelConfig& config = model.config;
    const auto with = [&](std::size_t offset, std::uint32_t value, std::uint32_t tokens_begin = 0) {
      return refused(own_file_with(config, offset, value, 300,
                                   {.tokens_begin = tokens_begin, .checkpoints = {250, 7, 300}}),
                     config);
    };
    for (const std::uint32_t count : {257u, ~0u})
      EXPECT_REFUSED(with(60, count), ErrorCode::shape_mismatch,
                     States("the number of checkpoints", 256, count));
    for (const std::uint32_t position : {301u, ~0u})
      EXPECT_REFUSED(with(64 + 4, position), ErrorCode::shape_mismatch,
                     States("checkpoint 1", "from 0 to 300", position));
    EXPECT_REFUSED(with(64, 5, 7), ErrorCode::shape_mismatch,
                   States("checkpoint 0", "from 7 to 300", "found 5"));
    for (const std::uint32_t position : {250u, 7u})
      EXPECT_REFUSED(with(64 + 8, position), ErrorCode::shape_mismatch, States("checkpoint 2", position));
  }
}

TEST(SnapshotFileRefusal, ShapeMismatchIsAnotherFamily) {
  EXPECT_REFUSED(refused(original_file(small_qwen_config(), 2, 3).bytes, small_deepseek_config()),
                 ErrorCode::shape_mismatch, States("the number of layers", 4, 2));
  EXPECT_REFUSED(refused(original_file(small_deepseek_config(), 2, 3).bytes, small_qwen_config()),
                 ErrorCode::shape_mismatch, States("the number of layers", 2, 4));
}

TEST(SnapshotFileRefusal, NegativeLengthNamesTheLayer) {
  for (const Import& import : small_imports()) {
    const OriginalFile file = import.at(3);
    const bool is_qwen = import.config.family == Family::qwen3_5_moe;
    for (std::size_t i = 0; i < file.lengths_at.size(); ++i)
      for (const std::int32_t length : {-1, -3, std::numeric_limits<std::int32_t>::min()}) {
        SCOPED_TRACE(import.name);
        Bytes bytes = file.bytes;
        put_at(bytes, file.lengths_at[i], length);
        EXPECT_REFUSED(refused(bytes, import.config), ErrorCode::negative_length,
                       States(fmt::format("layer {}", is_qwen ? 2 * i + 1 : i), length));
      }
  }
}

TEST(SnapshotFileRefusal, LengthOverflowIsBeyondTheContext) {
  for (const Import& import : small_imports())
    for (const std::uint32_t length : {11u, 0x7FFF'FFFFu}) {
      SCOPED_TRACE(import.name);
      const std::size_t layer = import.config.family == Family::qwen3_5_moe ? 1 : 0;
      OriginalFile file = import.at(10);
      put_at(file.bytes, file.lengths_at[0], length);
      EXPECT_REFUSED(refused(file.bytes, import.config, 10), ErrorCode::length_overflow,
                     States(fmt::format("layer {}", layer), length, 10));
    }
  for (const auto& [name, config] : small_configs())
    for (const std::uint32_t position : {11u, 0x7FFF'FFFFu, ~0u})
      EXPECT_REFUSED(refused(own_file_with(config, 52, position, 10), config, 10), ErrorCode::length_overflow,
                     States(position, 10));
}

TEST(SnapshotFileRefusal, UnequalLengthsIsTwoLayersThatDiffer) {
  for (const Import& import : small_imports())
    for (const std::uint32_t length : {0u, 2u, 4u}) {
      SCOPED_TRACE(import.name);
      const std::size_t layer = import.config.family == Family::qwen3_5_moe ? 3 : 1;
      OriginalFile file = import.at(3);
      put_at(file.bytes, file.lengths_at[1], length);
      EXPECT_REFUSED(refused(file.bytes, import.config), ErrorCode::unequal_lengths,
                     States(fmt::format("layer {}", layer), length, 3));
    }
}

TEST(SnapshotFileRefusal, TruncatedIsAFileThatEndsAnywhereEarly) {
  for (const std::uint32_t position : {0u, 3u}) {
    for (const Import& import : small_imports()) {
      const Bytes whole = import.at(position).bytes;
      for (std::size_t size = import.header_bytes(); size < whole.size(); ++size)
        EXPECT_REFUSED(refused(first_bytes(whole, size), import.config), ErrorCode::truncated,
                       ContainsRegex("layer [0-3].*[0-9]+ bytes.*[0-9]+"));
    }
    for (const auto& [name, config] : small_configs())
      for (const OwnFile& file : {OwnFile{.version = 3}, OwnFile{}, OwnFile{.checkpoints = {2, 0, 1, 3}}}) {
        if (position == 0 && !file.checkpoints.empty()) continue;
        const Bytes whole = own_file(config, position, file);
        for (std::size_t size = 64 + 8; size < whole.size(); ++size)
          EXPECT_REFUSED(refused(first_bytes(whole, size), config), ErrorCode::truncated,
                         AllOf(ContainsRegex("(layer [0-3]|checkpoint).*byte [0-9]+"), States(size - 8)));
      }
  }
}

TEST(SnapshotFileRefusal, TruncatedNamesTheLayerAndBothSizes) {
  const OriginalFile file = original_file(small_qwen_config(), 2, 3);
  const std::size_t rows = file.lengths_at[1] + 4, rows_bytes = 3 * 2 * 2 * 4 * 4;
  EXPECT_REFUSED(refused(first_bytes(file.bytes, rows + 50), small_qwen_config()), ErrorCode::truncated,
                 States("layer 3", rows_bytes, 50));
  EXPECT_REFUSED(refused(first_bytes(file.bytes, rows - 1), small_qwen_config()), ErrorCode::truncated,
                 States("layer 3", 4, 3));
  // Header, three tokens, and a state of 32 floats. The last 8 bytes of any file are taken as the checksum.
  const Bytes own = own_file(small_qwen_config(), 3);
  EXPECT_REFUSED(refused(first_bytes(own, 64 + 12 + 128 + 7), small_qwen_config()), ErrorCode::truncated,
                 States("layer 0", "byte 204", 203));
  // The last parts are 64 floats for the checkpoint at 2, 64 for that at 1, and the checksum.
  const Bytes with_checkpoints = own_file(small_qwen_config(), 3, {.checkpoints = {2, 0, 1, 3}});
  const std::size_t end = with_checkpoints.size() - 8;
  EXPECT_REFUSED(refused(first_bytes(with_checkpoints, end), small_qwen_config()), ErrorCode::truncated,
                 States("checkpoint at position 1", end, end - 8));
  EXPECT_REFUSED(refused(first_bytes(with_checkpoints, end - 256), small_qwen_config()), ErrorCode::truncated,
                 States("checkpoint at position 2", end - 256, end - 256 - 8));
  EXPECT_REFUSED(refused(first_bytes(with_checkpoints, 64 + 8 + 10), small_qwen_config()),
                 ErrorCode::truncated, States("positions of checkpoints", "byte 80", 74));
}

TEST(SnapshotFileRefusal, TruncatedIsALengthBeyondTheFileAndAllocatesNothing) {
  const ModelConfig config = small_qwen_config();
  const Bytes bytes = own_file_with(config, 52, 1'000'000'000u);
  OriginalFile original = original_file(config, 2, 3);
  put_at(original.bytes, original.lengths_at[0], 1'000'000'000);
  BlockPool pool(BlockPool::kNoBudget);
  const AllocationCounter counter;
  for (const std::span<const std::byte> claim :
       {std::span(bytes), std::span(std::as_const(original.bytes))}) {
    const Result<Snapshot> snapshot = read(claim, config, pool, 2'000'000'000);
    ASSERT_FALSE(snapshot);
    EXPECT_EQ(name_of(snapshot.error().code()), "truncated");
  }
  EXPECT_LT(counter.peak_bytes(), 64 * kKiB);
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST(SnapshotFileRefusal, TrailingBytesFollowTheLastLayer) {
  for (const Import& import : small_imports())
    for (const std::size_t more : {1u, 4u, 1000u}) {
      Bytes bytes = import.at(3).bytes;
      bytes.resize(bytes.size() + more);
      EXPECT_REFUSED(refused(bytes, import.config), ErrorCode::trailing_bytes, States(more, "last layer"));
    }
  for (const auto& [name, config] : small_configs())
    for (const std::size_t more : {1u, 8u, 1000u}) {
      Bytes bytes = own_file(config, 3);
      const std::size_t size = bytes.size();
      bytes.resize(size + more);
      fix_checksum(bytes);
      EXPECT_REFUSED(refused(bytes, config), ErrorCode::trailing_bytes, States(size, size + more));
    }
}

TEST(SnapshotFileRefusal, TrailingBytesIsAHeaderWithAnotherSize) {
  const ModelConfig config = small_qwen_config();
  const std::uint64_t size = own_file(config, 3).size();
  for (const std::uint64_t wrong : {std::uint64_t{0}, size - 1, size + 1, size + (std::uint64_t{1} << 32)})
    EXPECT_REFUSED(refused(own_file_with(config, 8, wrong), config), ErrorCode::trailing_bytes,
                   States(size, wrong));
}

TEST(SnapshotFileRefusal, WrongModelIsAnotherFingerprint) {
  const ModelConfig config = small_qwen_config();
  for (std::size_t i = 0; i < 16; ++i) {
    SnapshotIdentity other = identity_of_tests();
    other.fingerprint.bytes[i] ^= 1;
    EXPECT_REFUSED(refused(own_file(config, 3), config, kContext, other), ErrorCode::wrong_model,
                   States("another model"));
  }
}

TEST(SnapshotFileRefusal, WrongNumericsIsADifferentArithmetic) {
  const ModelConfig config = small_qwen_config();
  using Part = std::uint32_t SnapshotIdentity::*;
  for (const Part part : {&SnapshotIdentity::law, &SnapshotIdentity::precision,
                          &SnapshotIdentity::experts_per_token, &SnapshotIdentity::kv_dtype}) {
    SnapshotIdentity other = identity_of_tests();
    other.*part = 77;
    EXPECT_REFUSED(refused(own_file(config, 3), config, kContext, other), ErrorCode::wrong_numerics,
                   States("law 1", "precision 0", "2 experts", "kv dtype 0", fmt::format("law {}", other.law),
                          fmt::format("precision {}", other.precision),
                          fmt::format("{} experts", other.experts_per_token),
                          fmt::format("kv dtype {}", other.kv_dtype)));
  }
}

TEST(SnapshotFileRefusal, BadChecksumIsAnyChangedBit) {
  for (const auto& [name, config] : small_configs()) {
    const Bytes whole = own_file(config, 3, {.checkpoints = {2, 0, 1}});
    for (std::size_t i = 0; i < whole.size(); ++i)
      for (int bit = 0; bit < 8; ++bit) {
        Bytes bytes = whole;
        bytes[i] ^= std::byte{1} << bit;
        // A change in the header or in the position of a checkpoint may be another error.
        const Error refusal = refused_at_the_end(bytes, config);
        if (i >= 64 + 3 * 4) {
          EXPECT_EQ(name_of(refusal.code()), "bad_checksum") << name << ", byte " << i;
        }
      }
  }
}

TEST(SnapshotFileRefusal, TokenOutOfRangeIsATokenOutsideTheVocabulary) {
  const ModelConfig config = small_qwen_config();
  for (const std::uint32_t token : {96u, ~0u})
    EXPECT_REFUSED(refused(own_file_with(config, 64 + 4, token), config), ErrorCode::token_out_of_range,
                   States(token, "position 1", 96));
  BlockPool pool(BlockPool::kNoBudget);
  EXPECT_TRUE(read(own_file_with(config, 64 + 4, 95u), config, pool));
}

TEST(SnapshotFileRefusal, OutOfMemoryLeavesNothingInThePool) {
  for (const auto& [name, config] : small_configs()) {
    const StateShape shape = state_shape_of(config);
    const Bytes files[] = {own_file(config, 300), own_file(config, 300, {.version = 3}),
                           original_file(config, 2, 300).bytes};
    for (const Bytes& bytes : files)
      for (std::uint64_t budget = 0; budget <= shape.session_bytes(300);
           budget += shape.session_bytes(300) / 4) {
        BlockPool pool(budget);
        {
          const Result<Snapshot> snapshot = read(bytes, config, pool);
          EXPECT_EQ(snapshot.has_value(), budget == shape.session_bytes(300)) << name << ", " << budget;
          if (!snapshot) {
            EXPECT_EQ(name_of(snapshot.error().code()), "out_of_memory");
            EXPECT_EQ(pool.used_bytes(), 0u);
          }
        }
        EXPECT_EQ(pool.used_bytes(), 0u);
      }
  }
}

}  // namespace
}  // namespace moeflux
