// The checkpoints of a session in its file: what is instant before a save is instant after a load.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "engine/testing/test_models.h"
#include "io/posix_file_system.h"
#include "io/testing/temporary_directory.h"

namespace moeflux {
namespace {

class LoadedCheckpoints : public OnSmallModels {
 protected:
  static constexpr std::uint32_t kEnd = 530, kContext = 1024;
  using Bytes = std::vector<std::byte>;

  std::span<const TokenId> text_up_to(std::uint32_t position) const {
    return std::span(text).first(position);
  }
  // At kEnd of the text, with checkpoints that were made in this order, which is ascending.
  Session session_with(std::initializer_list<std::uint32_t> checkpoints) {
    Session session = new_session(*engine);
    session.set_max_checkpoints(1000);
    for (const std::uint32_t place : checkpoints) {
      EXPECT_TRUE(succeeds(session.extend(text_up_to(place).subspan(session.position()))));
      session.checkpoint();
    }
    EXPECT_TRUE(succeeds(session.extend(std::span(text).subspan(session.position()))));
    return session;
  }
  Session loaded(const Bytes& bytes, Engine& into) {
    Session session = new_session(into);
    EXPECT_TRUE(succeeds(session.load(bytes)));
    return session;
  }
  Logits fresh_at(std::uint32_t position) {
    return fresh_logits(*engine, joined(text_up_to(position), detour));
  }
  bool is_recurrent() const { return config.family == Family::qwen3_5_moe; }

  std::shared_ptr<Engine> engine = model.open({.threads = 1, .context = kContext});
  Tokens text = random_tokens(*engine, kEnd);
  Tokens detour = random_tokens(*engine, 4, 2);
};
INSTANTIATE_TEST_SUITE_P(, LoadedCheckpoints, testing::Values("qwen", "deepseek"), name_of_model);

TEST_P(LoadedCheckpoints, MakeARewindRunOnlyTheTokensAfterThem) {
  const Bytes bytes = saved(session_with({90, 256, 500}));
  const auto other = model.open({.threads = 2, .context = kContext, .step_rows = 7});
  for (const std::uint32_t place : {529u, 513u, 500u, 499u, 257u, 256u, 255u, 90u, 89u, 0u}) {
    Session session = loaded(bytes, *other);
    EXPECT_EQ(session.checkpoint_count(), 3u);
    const Result<StepStatistics> run = session.rewind(place);
    ASSERT_TRUE(succeeds(run));
    const std::uint32_t base = place >= 500 ? 500 : place >= 256 ? 256 : place >= 90 ? 90 : 0;
    EXPECT_EQ(run->rows, is_recurrent() ? place - base : 0) << place;
    EXPECT_EQ(session.checkpoint_count(), (place >= 90) + (place >= 256) + (place >= 500u)) << place;
    EXPECT_TRUE(same_bits(logits_after(session, detour), fresh_at(place))) << place;
  }
}

TEST_P(LoadedCheckpoints, MakeAReplacementRunOnlyTheTokensAfterThem) {
  const Bytes bytes = saved(session_with({90, 256, 500}));
  for (const std::uint32_t kept : {520u, 500u, 300u, 50u}) {
    Session session = loaded(bytes, *engine);
    Logits logits(config.vocabulary);
    const auto run = session.replace_after(kept, detour, logits, {}, [](const auto&) { return Status(); });
    ASSERT_TRUE(succeeds(run));
    const std::uint32_t base = kept >= 500 ? 500 : kept >= 256 ? 256 : 0;
    EXPECT_EQ(run->rows, detour.size() + (is_recurrent() ? kept - base : 0)) << kept;
    EXPECT_TRUE(same_bits(logits, fresh_at(kept))) << kept;
  }
}

TEST_P(LoadedCheckpoints, AreRestoredAnyNumberOfTimes) {
  Session session = loaded(saved(session_with({0, 1, 255, 257})), *engine);
  for (const std::uint32_t place : {257u, 255u, 1u, 0u})
    for (int again = 0; again < 2; ++again) {
      ASSERT_TRUE(succeeds(session.restore_to(place)));
      EXPECT_TRUE(std::ranges::equal(session.tokens(), text_up_to(place)));
      EXPECT_TRUE(same_bits(logits_after(session, detour), fresh_at(place))) << place;
    }
  EXPECT_TRUE(fails_with(session.restore_to(255), ErrorCode::no_checkpoint));
}

TEST_P(LoadedCheckpoints, AreThoseOfAFileToo) {
  const TemporaryDirectory temporary;
  PosixFileSystem disk;
  const Session origin = session_with({90, 500});
  ASSERT_TRUE(succeeds(origin.save(disk, temporary / "session")));
  EXPECT_EQ(std::filesystem::file_size(temporary / "session"), origin.saved_bytes());
  Session session = new_session(*engine);
  ASSERT_TRUE(succeeds(session.load(disk, temporary / "session")));
  EXPECT_EQ(session.checkpoint_count(), 2u);
  const Result<StepStatistics> run = session.rewind(501);
  ASSERT_TRUE(succeeds(run));
  EXPECT_EQ(run->rows, is_recurrent() ? 1 : 0);
}

TEST_P(LoadedCheckpoints, TakeNoMemoryForKeysAndValues) {
  const Session origin = session_with({90, 256, 500});
  const Bytes bytes = saved(origin);
  const StateShape shape = state_shape_of(config);
  EXPECT_EQ(origin.saved_bytes(), bytes.size());
  EXPECT_EQ(bytes.size() - saved_state(origin).size(), 3 * (4 + shape.recurrent_bytes()));
  const auto other = model.open({.threads = 1, .context = kContext});
  const Session session = loaded(bytes, *other);
  EXPECT_EQ(other->state_pool().used_bytes(), shape.session_bytes(kEnd) + 3 * shape.recurrent_block_bytes());
  EXPECT_EQ(other->state_pool().copied_bytes(), 0u);
}

TEST_P(LoadedCheckpoints, AreSavedAgainInTheSameOrderOfUse) {
  Session origin = session_with({0, 90, 256, 500});
  origin.set_max_checkpoints(4);
  if (is_recurrent()) {  // a rewind that fails uses the checkpoint at 90 and drops none
    const std::atomic<bool> cancel = true;
    EXPECT_TRUE(fails_with(origin.rewind(100, {.cancel = &cancel}), ErrorCode::cancelled));
  }
  const Bytes bytes = saved(origin);
  Session session = loaded(bytes, *engine);
  EXPECT_TRUE(saved(session) == bytes);
  const std::uint32_t oldest = is_recurrent() ? 256 : 90;
  for (Session* const either : {&origin, &session}) {
    ASSERT_TRUE(either->extend(detour));
    either->checkpoint();
    EXPECT_EQ(either->checkpoint_count(), 4u);
    EXPECT_TRUE(fails_with(either->restore_to(oldest), ErrorCode::no_checkpoint)) << "evicted";
    for (const std::uint32_t place : {kEnd + 4, 500u, 256u, 90u, 0u})
      if (place != oldest) {
        ASSERT_TRUE(succeeds(either->restore_to(place)));
      }
  }
}

TEST_P(LoadedCheckpoints, AreAsManyAsTheSessionKeeps) {
  const Bytes bytes = saved(session_with({0, 90, 256, 400, 500}));
  const struct {
    std::size_t most;
    std::vector<std::uint32_t> kept;
  } cases[] = {{0, {500, 0}}, {1, {500, 0}}, {2, {500, 0}}, {3, {500, 400, 0}}, {9, {500, 400, 256, 90, 0}}};
  for (const auto& [most, kept] : cases) {
    Session session = new_session(*engine);
    session.set_max_checkpoints(most);
    ASSERT_TRUE(succeeds(session.load(bytes)));
    EXPECT_EQ(session.checkpoint_count(), kept.size()) << most;
    for (const std::uint32_t place : kept) ASSERT_TRUE(succeeds(session.restore_to(place))) << most;
  }
}

TEST_P(LoadedCheckpoints, StayWithinTheByteBudget) {
  const Bytes bytes = saved(session_with({90, 256, 500}));
  const std::uint64_t recurrent = state_shape_of(config).recurrent_bytes();
  Session session = new_session(*engine);
  session.set_checkpoint_budget_bytes(2 * recurrent + (256 + 500) * sizeof(TokenId));
  ASSERT_TRUE(succeeds(session.load(bytes)));
  EXPECT_EQ(session.checkpoint_count(), 2u);
  ASSERT_TRUE(succeeds(session.restore_to(256)));
  EXPECT_TRUE(fails_with(session.restore_to(90), ErrorCode::no_checkpoint));
}

TEST_P(LoadedCheckpoints, AreGivenUpIfThePoolHasNoRoomForThem) {
  const StateShape shape = state_shape_of(config);
  const Bytes bytes = saved(session_with({90, 256, 500}));
  const auto small =
      model.open({.threads = 1,
                  .context = kContext,
                  .kv_budget_bytes = shape.session_bytes(kEnd) + 2 * shape.recurrent_block_bytes()});
  Session session = loaded(bytes, *small);
  EXPECT_EQ(session.checkpoint_count(), is_recurrent() ? 2u : 3u);
  ASSERT_TRUE(succeeds(session.restore_to(500)));
  ASSERT_TRUE(succeeds(session.restore_to(256)));
  EXPECT_TRUE(same_bits(logits_after(session, detour), fresh_at(256)));
}

TEST_P(LoadedCheckpoints, AreEvictedForAStepLikeOthers) {
  const StateShape shape = state_shape_of(config);
  const Bytes bytes = saved(session_with({90, 256, 500}));
  const auto small =
      model.open({.threads = 1,
                  .context = kContext,
                  .kv_budget_bytes = shape.session_bytes(kEnd) + 3 * shape.recurrent_block_bytes()});
  Session session = loaded(bytes, *small);
  EXPECT_EQ(session.checkpoint_count(), 3u);
  ASSERT_TRUE(succeeds(session.extend(detour)));
  EXPECT_EQ(session.checkpoint_count(), is_recurrent() ? 2u : 3u);
  EXPECT_EQ(session.restore_to(90).has_value(), !is_recurrent());
}

TEST_P(LoadedCheckpoints, ReplaceThoseOfTheSession) {
  Session session = session_with({7, 20});
  ASSERT_TRUE(succeeds(session.load(saved(session_with({90, 500})))));
  EXPECT_EQ(session.checkpoint_count(), 2u);
  EXPECT_TRUE(fails_with(session.restore_to(20), ErrorCode::no_checkpoint));
  ASSERT_TRUE(succeeds(session.restore_to(90)));
}

TEST_P(LoadedCheckpoints, AreTheLast256OfASessionWithMore) {
  Session origin = new_session(*engine);
  origin.set_max_checkpoints(1000);
  for (std::uint32_t i = 0; i < 300; ++i) {
    ASSERT_TRUE(origin.extend(text_up_to(i + 1).subspan(i)));
    origin.checkpoint();
  }
  const Bytes bytes = saved(origin);
  EXPECT_EQ(origin.saved_bytes(), bytes.size());
  Session session = new_session(*engine);
  session.set_max_checkpoints(1000);
  ASSERT_TRUE(succeeds(session.load(bytes)));
  EXPECT_EQ(session.checkpoint_count(), 256u);
  ASSERT_TRUE(succeeds(session.restore_to(45)));
  EXPECT_TRUE(fails_with(session.restore_to(44), ErrorCode::no_checkpoint));
}

// A file of version 3 has the bytes of one of version 4 without checkpoints, but for its version.
TEST_P(LoadedCheckpoints, AreNoneOfAFileOfVersion3) {
  Bytes bytes = saved(session_with({}));
  const std::uint32_t version = 3;
  std::memcpy(bytes.data() + 4, &version, sizeof version);
  const std::size_t end = bytes.size() - sizeof(std::uint64_t);
  const std::uint64_t checksum = checksum_of(std::span(bytes).first(end));
  std::memcpy(bytes.data() + end, &checksum, sizeof checksum);
  Session session = loaded(bytes, *engine);
  EXPECT_EQ(session.checkpoint_count(), 0u);
  const Result<StepStatistics> run = session.rewind(400);
  ASSERT_TRUE(succeeds(run));
  EXPECT_EQ(run->rows, is_recurrent() ? 400 : 0);
  EXPECT_TRUE(same_bits(logits_after(session, detour), fresh_at(400)));
}

// A checkpoint keeps rows that the session computed in other blocks since.
TEST_P(LoadedCheckpoints, MayHaveHadTheirOwnBlocks) {
  Session origin = session_with({300});
  ASSERT_TRUE(succeeds(origin.restore_to(300)));
  ASSERT_TRUE(succeeds(origin.extend(detour)));  // copies the rows before 300 of the last block
  EXPECT_GT(engine->state_pool().copied_bytes(), 0u);
  Session session = loaded(saved(origin), *engine);
  EXPECT_EQ(session.checkpoint_count(), 1u);
  ASSERT_TRUE(succeeds(session.restore_to(300)));
  EXPECT_TRUE(same_bits(logits_after(session, detour), fresh_at(300)));
}

}  // namespace
}  // namespace moeflux
