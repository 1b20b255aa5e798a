// The tokens of a snapshot file whose state another arithmetic computed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/sizes.h"
#include "base/testing/allocation_counter.h"
#include "base/testing/states.h"
#include "io/memory_file.h"
#include "state/piece_reader.h"
#include "state/snapshot_file.h"
#include "state/testing/recorded_file.h"
#include "state/testing/snapshot_files.h"

namespace moeflux {
namespace {

using test::States;
using testing::ElementsAreArray;
using testing::IsEmpty;

class SavedTokens : public testing::TestWithParam<const char*> {
 protected:
  Result<SnapshotTokens> read(const Bytes& bytes) {
    return read_snapshot_tokens(MemoryFile(bytes), config, identity_of_tests().fingerprint, context);
  }
  Result<SavedSession> load(const Bytes& bytes) {
    return read_snapshot(bytes, {config, identity_of_tests(), pool, context});
  }
  template <class... Facts>
  testing::AssertionResult refuses(const Bytes& bytes, ErrorCode code, const Facts&... facts) {
    const Bytes exact(bytes.begin(), bytes.end());  // AddressSanitizer detects reads beyond the end
    const Result<SnapshotTokens> tokens = read(exact);
    if (tokens) return testing::AssertionFailure() << "it was read";
    testing::StringMatchResultListener why;
    const std::string& message = tokens.error().message();
    if (tokens.error().code() == code &&
        test::StatesMatcher({test::fact_of(facts)...}).MatchAndExplain(message, &why))
      return testing::AssertionSuccess();
    return testing::AssertionFailure()
           << name_of(tokens.error().code()) << ": " << message << "; " << why.str();
  }
  // A file with another number in its header.
  Bytes file_with(std::size_t offset, std::uint32_t value, const OwnFile& file = {}) {
    Bytes bytes = own_file(config, 300, file);
    put_at(bytes, offset, value);
    fix_checksum(bytes);
    return bytes;
  }

  ModelConfig config = std::string(GetParam()) == "deepseek" ? small_deepseek_config() : small_qwen_config();
  BlockPool pool{BlockPool::kNoBudget};
  std::uint32_t context = 1000;
};
INSTANTIATE_TEST_SUITE_P(, SavedTokens, testing::Values("qwen", "deepseek"),
                         [](const auto& name) { return std::string(name.param); });

struct Word {
  std::size_t offset;
  std::uint32_t SnapshotIdentity::*part;
};
constexpr Word kNumerics[] = {{32, &SnapshotIdentity::law},
                              {36, &SnapshotIdentity::precision},
                              {40, &SnapshotIdentity::experts_per_token},
                              {44, &SnapshotIdentity::kv_dtype}};

TEST_P(SavedTokens, OfAnyArithmeticAreRead) {
  for (const auto& [offset, part] : kNumerics)
    for (const std::uint32_t value : {0u, 7u, ~0u}) {
      const Bytes bytes = file_with(offset, value, {.checkpoints = {299, 0, 7}});
      const Result<SnapshotTokens> saved = read(bytes);
      ASSERT_TRUE(saved) << saved.error().message();
      SnapshotIdentity expected = identity_of_tests();
      expected.*part = value;
      EXPECT_EQ(saved->identity, expected);
      EXPECT_THAT(saved->tokens, ElementsAreArray(written_tokens(0, 300)));
      EXPECT_THAT(saved->checkpoints, testing::ElementsAre(299, 0, 7));
    }
}

TEST_P(SavedTokens, OfThisArithmeticAndOfVersion3AreReadToo) {
  for (const std::uint32_t version : {3u, 4u})
    for (const std::uint32_t position : {0u, 1u, 600u}) {
      const Result<SnapshotTokens> saved = read(own_file(config, position, {.version = version}));
      ASSERT_TRUE(saved) << saved.error().message();
      EXPECT_EQ(saved->identity, identity_of_tests());
      EXPECT_THAT(saved->tokens, ElementsAreArray(written_tokens(0, position)));
      EXPECT_THAT(saved->checkpoints, IsEmpty());
    }
}

// With another KV dtype the layers have other sizes.
TEST_P(SavedTokens, AreReadBesideLayersOfAnySize) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{100'000}}) {
    Bytes bytes = own_file(config, 300);
    bytes.resize(64 + 4 * 300 + size + 8);
    put_at(bytes, 8, std::uint64_t{bytes.size()});
    put_at(bytes, 44, 2u);
    fix_checksum(bytes);
    const Result<SnapshotTokens> saved = read(bytes);
    ASSERT_TRUE(saved) << saved.error().message();
    EXPECT_EQ(saved->tokens.size(), 300u);
  }
}

TEST_P(SavedTokens, AreWhatTheRefusalOfAnotherArithmeticSuggests) {
  const auto advice = [&](const Bytes& bytes) {
    const Result<SavedSession> session = load(bytes);
    if (session) return std::string("it was read");
    EXPECT_EQ(name_of(session.error().code()), "wrong_numerics");
    return session.error().message();
  };
  using testing::AllOf, testing::HasSubstr, testing::Not;
  EXPECT_THAT(advice(file_with(32, 77)),
              AllOf(States("law 77", "300 tokens", "/load"), Not(HasSubstr("options"))));
  for (const std::size_t option : {36u, 40u, 44u})
    EXPECT_THAT(advice(file_with(option, 77)), States("77", "options", "300 tokens", "/load"));
  EXPECT_THAT(advice(file_with(32, 77, {.tokens_begin = 5})),
              AllOf(States("tokens before position 5", "unknown", "moeflux"), Not(HasSubstr("/load"))));
  EXPECT_THAT(advice(file_with(36, 77, {.tokens_begin = 5})),
              AllOf(States("options"), Not(HasSubstr("/load"))));
}

TEST_P(SavedTokens, AreUnknownIfAFileHasNotAllOfThem) {
  for (const std::uint32_t begin : {1u, 300u})
    EXPECT_TRUE(refuses(own_file(config, 300, {.tokens_begin = begin}), ErrorCode::tokens_unknown,
                        "tokens before position", begin));
  EXPECT_TRUE(
      refuses(original_file(config, 2, 3).bytes, ErrorCode::tokens_unknown, "version 2", "no tokens"));
}

TEST_P(SavedTokens, OfAWrongFileAreRefused) {
  EXPECT_TRUE(refuses(file_with(0, 7), ErrorCode::bad_magic, "4d464c58"));
  EXPECT_TRUE(refuses(file_with(4, 5), ErrorCode::bad_version, "version", 5));
  EXPECT_TRUE(refuses(file_with(16, 7), ErrorCode::wrong_model, "another model"));
  EXPECT_TRUE(refuses(file_with(48, 7), ErrorCode::shape_mismatch, "the number of layers", 7));
  EXPECT_TRUE(refuses(file_with(52, ~0u), ErrorCode::length_overflow, ~0u, context));
  context = 299;
  EXPECT_TRUE(refuses(own_file(config, 300), ErrorCode::length_overflow, 300, 299));
  context = 300;
  EXPECT_TRUE(refuses(file_with(56, 301), ErrorCode::shape_mismatch, 301, 300));
  EXPECT_TRUE(refuses(file_with(60, 257), ErrorCode::shape_mismatch, "checkpoints", 257, 256));
  EXPECT_TRUE(refuses(file_with(60, 7, {.version = 3}), ErrorCode::shape_mismatch, "byte 60", 7));
  EXPECT_TRUE(
      refuses(file_with(64, 301, {.checkpoints = {5}}), ErrorCode::shape_mismatch, "checkpoint 0", 301, 300));
  EXPECT_TRUE(refuses(file_with(64 + 4 * 7, 96), ErrorCode::token_out_of_range, "position 7", 96));
  EXPECT_TRUE(refuses(file_with(8, 100), ErrorCode::trailing_bytes, 100));
  EXPECT_TRUE(refuses(file_with(8, ~0u), ErrorCode::truncated, ~0u));
}

TEST_P(SavedTokens, OfAFileThatEndsEarlyOrIsDamagedAreRefused) {
  const Bytes whole = own_file(config, 3, {.checkpoints = {2, 1}});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const Bytes part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    const std::size_t end_of_tokens = 64 + 2 * 4 + 3 * 4;
    if (size < 72)
      EXPECT_TRUE(refuses(part, ErrorCode::buffer_too_small, size));
    else if (size < end_of_tokens + 8)
      EXPECT_TRUE(refuses(part, ErrorCode::truncated, "byte", size - 8));
    else
      EXPECT_TRUE(refuses(part, ErrorCode::truncated, whole.size(), size));
  }
  for (std::size_t i = 0; i < whole.size(); ++i) {
    Bytes bytes = whole;
    bytes[i] ^= std::byte{1};
    const Result<SnapshotTokens> saved = read(bytes);
    ASSERT_FALSE(saved) << "byte " << i;
    if (i >= 64 + 8) {
      EXPECT_EQ(name_of(saved.error().code()), "bad_checksum") << "byte " << i;
    }
  }
}

TEST_P(SavedTokens, OfALargeFileTakeMemoryForOnePiece) {
  Bytes bytes = own_file(config, 600);
  bytes.resize(3 * PieceReader::kPieceBytes);
  put_at(bytes, 8, std::uint64_t{bytes.size()});
  fix_checksum(bytes);
  const RecordedFile file(bytes);
  file.reads.reserve(100);
  const AllocationCounter counter;
  ASSERT_TRUE(read_snapshot_tokens(file, config, identity_of_tests().fingerprint, context));
  EXPECT_LT(counter.peak_bytes(), PieceReader::kPieceBytes + 16 * kKiB);
  EXPECT_EQ(file.read_bytes, bytes.size());
  EXPECT_LE(file.most_asked(), PieceReader::kPieceBytes);
}

}  // namespace
}  // namespace moeflux
