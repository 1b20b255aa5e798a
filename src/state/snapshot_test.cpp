#include "state/snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>

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

}  // namespace
}  // namespace moeflux
