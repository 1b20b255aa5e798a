#include "state/snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/expect_contract.h"
#include "state/testing/written_states.h"

namespace moeflux {
namespace {

using testing::ElementsAreArray;

TEST(StateShape, FollowsFromTheMixers) {
  const StateShape qwen = state_shape_of(tiny_qwen_config()),
                   deepseek = state_shape_of(tiny_deepseek_config());
  ASSERT_EQ(qwen.kv.size(), 2u);
  EXPECT_EQ(qwen.kv[0], KvShape{});
  EXPECT_EQ(qwen.kv[1], (KvShape{1, 32, 32}));
  EXPECT_EQ(qwen.recurrent[0].conv_size, 3u * 128);
  EXPECT_EQ(qwen.recurrent[0].delta_size(), 4u * 16 * 16);
  EXPECT_EQ(qwen.recurrent[1], RecurrentShape{});
  for (const KvShape& kv : deepseek.kv) EXPECT_EQ(kv, (KvShape{1, 64 + 16, 0}));
  EXPECT_EQ(deepseek.recurrent_bytes(), 0u);
}

TEST(StateShape, RecurrentStatesAreContiguous) {
  const StateShape shape = state_shape_of(small_qwen_config());
  constexpr std::uint64_t kConv = 2 * 10, kDelta = 2 * 2 * 3;
  constexpr DeltaStateShape kHead{.key_dim = 2, .value_dim = 3};
  EXPECT_EQ(shape.recurrent[0], (RecurrentShape{0, kConv, kConv, 2, kHead}));
  EXPECT_EQ(shape.recurrent[2], (RecurrentShape{kConv + kDelta, kConv, 2 * kConv + kDelta, 2, kHead}));
  EXPECT_EQ(shape.recurrent[2].delta_size(), kDelta);
  EXPECT_EQ(shape.recurrent_size, 2 * (kConv + kDelta));
  EXPECT_EQ(shape.recurrent_bytes(), 4 * shape.recurrent_size);
}

TEST(StateShape, CountsWholeBlocksLikeThePool) {
  const StateShape qwen = state_shape_of(tiny_qwen_config()),
                   deepseek = state_shape_of(tiny_deepseek_config());
  EXPECT_EQ(qwen.kv[1].block_bytes(), 256u * (32 + 32) * 4);
  EXPECT_EQ(deepseek.kv[0].block_bytes(), 256u * (64 + 16) * 4);
  EXPECT_EQ(qwen.kv_bytes(0), 0u);
  EXPECT_EQ(qwen.kv_bytes(1), BlockPool::block_bytes(256 * 64 * 4));
  EXPECT_EQ(qwen.kv_bytes(256), qwen.kv_bytes(1));
  EXPECT_EQ(qwen.kv_bytes(257), 2 * qwen.kv_bytes(1));
  EXPECT_EQ(deepseek.kv_bytes(600), 2 * 3 * BlockPool::block_bytes(256 * 80 * 4));
}

Snapshot snapshot_at(BlockPool& pool, std::uint32_t position, std::shared_ptr<const void> owner = {}) {
  Result<SessionState> state = SessionState::create(small_qwen_config(), pool, 1000);
  EXPECT_TRUE(state && run_step(*state, position));
  return state->snapshot(std::move(owner));
}

TEST(Snapshot, HasThePositionAndTokensOfItsSession) {
  BlockPool pool(BlockPool::kNoBudget);
  const Snapshot snapshot = snapshot_at(pool, 300);
  EXPECT_EQ(snapshot.position(), 300u);
  EXPECT_EQ(snapshot.tokens_begin(), 0u);
  EXPECT_THAT(snapshot.tokens(), ElementsAreArray(written_tokens(0, 300)));
}

TEST(Snapshot, OwnsRecurrentStatesAndTokensAndSharesTheRest) {
  BlockPool pool(BlockPool::kNoBudget);
  const Snapshot snapshot = snapshot_at(pool, 300);
  const StateShape shape = state_shape_of(small_qwen_config());
  EXPECT_EQ(snapshot.own_bytes(), shape.recurrent_bytes() + 300 * sizeof(TokenId));
  EXPECT_EQ(pool.used_bytes(), shape.session_bytes(300));
}

TEST(Snapshot, CopiesShareTheirContents) {
  BlockPool pool(BlockPool::kNoBudget);
  std::optional<Snapshot> snapshot = snapshot_at(pool, 300);
  const std::uint64_t used = pool.used_bytes();
  const Snapshot copy = *snapshot;
  EXPECT_EQ(&copy.contents(), &snapshot->contents());
  EXPECT_EQ(pool.used_bytes(), used);
  snapshot.reset();
  EXPECT_EQ(pool.used_bytes(), used);
  EXPECT_TRUE(bits_of(state_shape_of(small_qwen_config()), copy) ==
              written_bits(state_shape_of(small_qwen_config()), 300));
}

TEST(Snapshot, KeepsThePoolAliveUntilItsBlocksAreReturned) {
  auto pool = std::make_shared<BlockPool>(BlockPool::kNoBudget);
  const std::weak_ptr<BlockPool> watched = pool;
  std::optional<Snapshot> snapshot = snapshot_at(*pool, 300, pool);
  std::optional<Snapshot> copy = snapshot;
  pool.reset();
  snapshot.reset();
  ASSERT_FALSE(watched.expired());
  EXPECT_EQ(watched.lock()->used_bytes(), state_shape_of(small_qwen_config()).session_bytes(300));
  copy.reset();  // the contract of the pool: all blocks are returned before it is destroyed
  EXPECT_TRUE(watched.expired());
}

// ---- Timelines ----

class OnATimeline : public testing::TestWithParam<const char*> {
 protected:
  SessionState new_state() {
    Result<SessionState> state = SessionState::create(config, pool, 1000);
    EXPECT_TRUE(state) << state.error().message();
    return *std::move(state);
  }
  SessionState state_at(std::uint32_t position, Timeline timeline = {}) {
    SessionState state = new_state();
    EXPECT_TRUE(run_step(state, position, timeline));
    return state;
  }
  bool is_on(const Snapshot& earlier, const Snapshot& later) { return is_on_timeline(shape, earlier, later); }

  ModelConfig config = std::string(GetParam()) == "deepseek" ? small_deepseek_config() : small_qwen_config();
  StateShape shape = state_shape_of(config);
  BlockPool pool{BlockPool::kNoBudget};
};
INSTANTIATE_TEST_SUITE_P(, OnATimeline, testing::Values("qwen", "deepseek"),
                         [](const auto& name) { return std::string(name.param); });

TEST_P(OnATimeline, IsEveryEarlierStateOfASession) {
  SessionState state = new_state();
  std::vector<Snapshot> snapshots = {state.snapshot()};
  for (const std::uint32_t rows : {1u, 254u, 1u, 1u, 300u}) {
    ASSERT_TRUE(run_step(state, rows));
    snapshots.push_back(state.snapshot());
  }
  for (std::size_t i = 0; i < snapshots.size(); ++i)
    for (std::size_t j = 0; j < snapshots.size(); ++j)
      EXPECT_EQ(is_on(snapshots[i], snapshots[j]), i <= j) << i << ", " << j;
}

TEST_P(OnATimeline, IsAStateWithEqualRowsInOtherBlocks) {
  SessionState state = state_at(300);
  const Snapshot snapshot = state.snapshot();
  ASSERT_TRUE(run_step(state, 20));  // claims the next rows of the last block
  SessionState copy = new_state();
  copy.restore(snapshot);
  ASSERT_TRUE(run_step(copy, 30, {1, 300}));
  EXPECT_GT(pool.copied_bytes(), 0u);
  EXPECT_TRUE(is_on(snapshot, copy.snapshot()));
  EXPECT_TRUE(is_on(state_at(270).snapshot(), state.snapshot())) << "computed again";
}

TEST_P(OnATimeline, IsNoStateWithOtherTokens) {
  EXPECT_FALSE(is_on(state_at(300, {1, 299}).snapshot(), state_at(400).snapshot()));
  EXPECT_FALSE(is_on(state_at(300).snapshot(), state_at(400, {1, 299}).snapshot()));
  EXPECT_TRUE(is_on(state_at(300).snapshot(), state_at(400, {1, 300}).snapshot()));
}

// Timeline 96 has the tokens of timeline 0 and other rows.
TEST_P(OnATimeline, IsNoStateWithOtherRowsOfTheSameTokens) {
  ASSERT_EQ(written_token(96, 299), written_token(0, 299));
  for (const std::uint32_t place : {0u, 255u, 256u, 299u})
    EXPECT_FALSE(is_on(state_at(300, {96, place}).snapshot(), state_at(400).snapshot())) << place;
  EXPECT_TRUE(is_on(state_at(300).snapshot(), state_at(400, {96, 300}).snapshot()));
}

TEST_P(OnATimeline, IsNoStateAtTheSamePositionWithOtherRecurrentStates) {
  if (shape.recurrent_size == 0) return;
  const Snapshot snapshot = state_at(300).snapshot();
  Result<BlockRef> block = pool.acquire(shape.recurrent_bytes());
  ASSERT_TRUE(block);
  std::copy_n(snapshot.contents().recurrent.data(), shape.recurrent_size, block->data());
  EXPECT_TRUE(is_on(earlier_snapshot(snapshot, 300, *block), snapshot));
  EXPECT_TRUE(is_on(earlier_snapshot(snapshot, 299, *block), snapshot)) << "its own";
  block->data()[shape.recurrent_size - 1] += 1;
  EXPECT_FALSE(is_on(earlier_snapshot(snapshot, 300, *block), snapshot));
  const Snapshot at_0 = earlier_snapshot(snapshot, 0, *block);
  EXPECT_FALSE(is_on(at_0, snapshot)) << "not zero";
  EXPECT_TRUE(is_on(at_0, at_0));
  std::fill_n(block->data(), shape.recurrent_size, 0.0f);
  EXPECT_TRUE(is_on(earlier_snapshot(snapshot, 0, *block), snapshot));
  EXPECT_FALSE(is_on(earlier_snapshot(snapshot, 300, *block), snapshot));
}

TEST_P(OnATimeline, IsNoStateWithOtherUnknownTokens) {
  const Snapshot known = state_at(300).snapshot();
  auto contents = std::make_shared<Snapshot::Contents>(known.contents());
  contents->tokens.erase(contents->tokens.begin(), contents->tokens.begin() + 10);
  contents->tokens_begin = 10;
  const Snapshot unknown(contents);
  EXPECT_FALSE(is_on(known, unknown));
  EXPECT_FALSE(is_on(unknown, known));
  EXPECT_TRUE(is_on(unknown, unknown));
}

TEST_P(OnATimeline, AnEarlierStateSharesBlocksAndTokens) {
  const Snapshot later = state_at(600).snapshot();
  const std::uint64_t used = pool.used_bytes();
  const Snapshot earlier = earlier_snapshot(later, 257, later.contents().recurrent);
  EXPECT_EQ(pool.used_bytes(), used);
  EXPECT_EQ(earlier.position(), 257u);
  EXPECT_THAT(earlier.tokens(), ElementsAreArray(written_tokens(0, 257)));
  for (std::size_t layer = 0; layer < shape.kv.size(); ++layer)
    EXPECT_EQ(earlier.contents().blocks[layer].size(), shape.kv[layer].heads == 0 ? 0u : 2u);
  SessionState state = new_state();
  state.restore(earlier_snapshot(later, 0, {}));
  ASSERT_TRUE(run_step(state, 10, {2, 0}));
  EXPECT_TRUE(bits_of(state) == written_bits(shape, 10, {2, 0}));
  EXPECT_CONTRACT((void)earlier_snapshot(earlier, 258, {}), "the position is on the timeline");
}

}  // namespace
}  // namespace moeflux
