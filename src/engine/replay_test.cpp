// A snapshot file of another arithmetic: load() refuses it, and its tokens can run again.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "engine/testing/test_models.h"
#include "io/posix_file_system.h"
#include "io/testing/temporary_directory.h"

namespace moeflux {
namespace {

class Replaying : public OnSmallModels {
 protected:
  static constexpr std::uint32_t kEnd = 300, kContext = 400;
  using Bytes = std::vector<std::byte>;

  static Status ignore(const StepStatistics&) { return {}; }

  // At kEnd, with checkpoints at 0, 90 and 257.
  Session session_of(Engine& other) const {
    Session session = new_session(other);
    for (const std::uint32_t place : {0u, 90u, 257u}) {
      EXPECT_TRUE(succeeds(session.extend(text_up_to(place).subspan(session.position()))));
      session.checkpoint();
    }
    EXPECT_TRUE(succeeds(session.extend(text_up_to(kEnd).subspan(session.position()))));
    return session;
  }
  std::span<const TokenId> text_up_to(std::uint32_t position) const {
    return std::span(text).first(position);
  }
  void write_file(const Bytes& bytes) const {
    temporary.write("session", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  // The file with another number in its header.
  static Bytes with_word(Bytes bytes, std::size_t offset, std::uint32_t word) {
    std::memcpy(bytes.data() + offset, &word, sizeof word);
    const std::size_t end = bytes.size() - sizeof(std::uint64_t);
    const std::uint64_t checksum = checksum_of(std::span(bytes).first(end));
    std::memcpy(bytes.data() + end, &checksum, sizeof checksum);
    return bytes;
  }
  Logits fresh_at(std::uint32_t position) {
    return fresh_logits(*engine, joined(text_up_to(position), detour));
  }
  bool is_recurrent() const { return config.family == Family::qwen3_5_moe; }

  std::shared_ptr<Engine> engine = model.open({.threads = 1, .context = kContext, .step_rows = 64});
  Tokens text = random_tokens(*engine, kEnd);
  Tokens detour = random_tokens(*engine, 4, 2);
  TemporaryDirectory temporary;
  std::filesystem::path path = temporary / "session";
  PosixFileSystem disk;
};
INSTANTIATE_TEST_SUITE_P(, Replaying, testing::Values("qwen", "deepseek"), name_of_model);

TEST_P(Replaying, GivesTheStateThatThisArithmeticComputes) {
  const std::vector<std::shared_ptr<Engine>> others = {
      model.open({.precision = Precision::exact, .threads = 1, .context = kContext}),
      model.open({.threads = 1, .context = kContext, .experts_per_token = 1}),
      model.open({.threads = 1, .context = kContext, .kv_dtype = KvDtype::int8})};
  for (const std::shared_ptr<Engine>& other : others) {
    ASSERT_TRUE(succeeds(session_of(*other).save(disk, path)));
    Session session = new_session(*engine);
    EXPECT_TRUE(fails_with(session.load(disk, path), ErrorCode::wrong_numerics, path.native(), "300 tokens"));
    const Result<SnapshotTokens> saved = session.read_tokens(disk, path);
    ASSERT_TRUE(succeeds(saved));
    EXPECT_EQ(saved->identity, other->snapshot_identity());
    std::uint64_t reported = 0;
    const auto run = session.replay(*saved, {}, [&](const StepStatistics& step) -> Status {
      reported += step.rows;
      return {};
    });
    ASSERT_TRUE(succeeds(run));
    EXPECT_EQ(run->rows, kEnd);
    EXPECT_EQ(reported, kEnd);
    EXPECT_EQ(session.position(), kEnd);
    EXPECT_TRUE(saved_state(session) == saved_state(session_of(*engine)));
    EXPECT_TRUE(same_bits(logits_after(session, detour), fresh_at(kEnd)));
  }
}

TEST_P(Replaying, AFileOfAnotherLawKeepsItsCheckpoints) {
  write_file(with_word(saved(session_of(*engine)), 32, kLawVersion - 1));
  Session session = new_session(*engine);
  EXPECT_TRUE(fails_with(session.load(disk, path), ErrorCode::wrong_numerics, "300 tokens"));
  const Result<SnapshotTokens> saved = session.read_tokens(disk, path);
  ASSERT_TRUE(succeeds(saved));
  EXPECT_EQ(saved->identity.law, kLawVersion - 1);
  ASSERT_TRUE(succeeds(session.replay(*saved, {}, ignore)));
  EXPECT_EQ(session.checkpoint_count(), 3u);
  const Result<StepStatistics> run = session.rewind(260);
  ASSERT_TRUE(succeeds(run));
  EXPECT_EQ(run->rows, is_recurrent() ? 3 : 0);
  for (const std::uint32_t place : {257u, 90u, 0u}) {
    ASSERT_TRUE(succeeds(session.restore_to(place)));
    EXPECT_TRUE(same_bits(logits_ahead(session, detour), fresh_at(place)));
  }
}

TEST_P(Replaying, KeepsAsManyCheckpointsAsTheSession) {
  write_file(saved(session_of(*engine)));
  Session session = new_session(*engine);
  session.set_max_checkpoints(1);
  const Result<SnapshotTokens> saved = session.read_tokens(disk, path);
  ASSERT_TRUE(succeeds(saved));
  ASSERT_TRUE(succeeds(session.replay(*saved, {}, ignore)));
  EXPECT_EQ(session.checkpoint_count(), 1u);
  ASSERT_TRUE(succeeds(session.restore_to(257)));
}

TEST_P(Replaying, StopsAfterTheLastStepThatSucceeded) {
  write_file(saved(session_of(*engine)));
  Session session = new_session(*engine);
  const Result<SnapshotTokens> saved = session.read_tokens(disk, path);
  ASSERT_TRUE(succeeds(saved));
  int steps = 0;
  const auto run = session.replay(*saved, {}, [&](const StepStatistics&) -> Status {
    if (++steps < 3) return {};
    return Error(ErrorCode::cancelled, "enough");
  });
  EXPECT_TRUE(fails_with(run, ErrorCode::cancelled, "enough"));
  EXPECT_EQ(session.position(), 90u + 64u) << "steps of 64 and 26 rows up to the checkpoint, and one of 64";
  EXPECT_TRUE(std::ranges::equal(session.tokens(), text_up_to(154)));
  EXPECT_TRUE(same_bits(logits_after(session, detour), fresh_at(154)));
}

TEST_P(Replaying, ReplacesWhatTheSessionWas) {
  write_file(saved(session_of(*engine)));
  Session session = new_session(*engine);
  ASSERT_TRUE(session.extend(detour));
  session.checkpoint();
  const Bytes before = saved(session);
  const Result<SnapshotTokens> saved_tokens = session.read_tokens(disk, path);
  ASSERT_TRUE(succeeds(saved_tokens));
  EXPECT_TRUE(saved(session) == before) << "reading tokens changes nothing";
  ASSERT_TRUE(succeeds(session.replay(*saved_tokens, {}, ignore)));
  EXPECT_TRUE(std::ranges::equal(session.tokens(), text));
  EXPECT_TRUE(fails_with(session.restore_to(4), ErrorCode::no_checkpoint));
}

TEST_P(Replaying, NeedsAFileOfTheSameModelWithAllTokensInTheContext) {
  Session session = new_session(*engine);
  EXPECT_TRUE(fails_with(session.read_tokens(disk, path), ErrorCode::not_found, path.native()));
  const Bytes bytes = saved(session_of(*engine));
  write_file(with_word(bytes, 16, 7));
  EXPECT_TRUE(fails_with(session.read_tokens(disk, path), ErrorCode::wrong_model, path.native()));
  const auto small = model.open({.threads = 1, .context = kEnd - 1});
  write_file(bytes);
  Session in_small = new_session(*small);
  EXPECT_TRUE(fails_with(in_small.read_tokens(disk, path), ErrorCode::length_overflow, kEnd, kEnd - 1));
  SnapshotTokens too_many{engine->snapshot_identity(), text, {}};
  EXPECT_TRUE(fails_with(in_small.replay(too_many, {}, ignore), ErrorCode::context_full));
  too_many.tokens = {TokenId(100)};
  EXPECT_TRUE(fails_with(in_small.replay(too_many, {}, ignore), ErrorCode::token_out_of_range));
}

}  // namespace
}  // namespace moeflux
