#include "state/session_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/allocation_counter.h"
#include "base/expect_contract.h"
#include "model/testing/tiny_packed_model.h"

namespace moeflux {
namespace {

constexpr std::uint32_t kContext = 1000;
const LayerId kNet(0), kAttention(1);  // of tiny_qwen_config()

// Two of each kind.
ModelConfig four_layers() {
  ModelConfig config = tiny_qwen_config();
  config.layers.insert(config.layers.end(), {config.layers[0], config.layers[1]});
  return config;
}

SessionState created(const ModelConfig& config, KvPool& pool, std::uint32_t context = kContext) {
  Result<SessionState> state = SessionState::create(config, pool, context);
  EXPECT_TRUE(state) << state.error().message();
  return *std::move(state);
}

void extend(SessionState& state, std::uint32_t rows) {
  const Status reserved = state.reserve(rows);
  ASSERT_TRUE(reserved) << reserved.error().message();
  state.commit(rows);
}

bool is_all(const float* numbers, std::uint64_t count, float value) {
  return std::all_of(numbers, numbers + count, [&](float number) { return number == value; });
}

TEST(KvShape, IsThatOfTheMixer) {
  const ModelConfig qwen = tiny_qwen_config(), deepseek = tiny_deepseek_config();
  EXPECT_EQ(kv_shape_of(qwen.layers[0].mixer).block_bytes(), 0u);
  EXPECT_EQ(kv_shape_of(qwen.layers[1].mixer).block_bytes(), 1u * 256 * (32 + 32) * 4);
  EXPECT_EQ(kv_shape_of(deepseek.layers[0].mixer).block_bytes(), 1u * 256 * (64 + 16) * 4);
}

TEST(SessionState, IsNewAtPositionZeroWithNoBlocksAndStatesOfZero) {
  const ModelConfig config = four_layers();
  KvPool pool(KvPool::kNoBudget);
  SessionState state = created(config, pool);
  EXPECT_EQ(state.position(), 0u);
  EXPECT_EQ(state.context(), kContext);
  EXPECT_EQ(pool.used_bytes(), 0u);
  for (const LayerId layer : {LayerId(0), LayerId(2)}) {
    const RecurrentShape shape = recurrent_shape_of(config.layers[layer.index()].mixer);
    EXPECT_EQ(shape.conv, 3u * 128);
    EXPECT_EQ(shape.delta, 4u * 16 * 16);
    EXPECT_TRUE(is_all(state.conv(layer).before, shape.conv, 0));
    EXPECT_TRUE(is_all(state.delta(layer).before, shape.delta, 0));
  }
  EXPECT_TRUE(state.kv(kAttention).empty());
}

TEST(SessionState, ReservesBlocksOf256PositionsAndNoMore) {
  const ModelConfig config = four_layers();
  KvPool pool(KvPool::kNoBudget);
  SessionState state = created(config, pool);
  struct Case {
    std::uint32_t rows, blocks;
  };
  for (const Case next : {Case{1, 1}, Case{255, 1}, Case{1, 2}, Case{254, 2}, Case{1, 2}, Case{300, 4}}) {
    extend(state, next.rows);
    EXPECT_EQ(state.kv(kAttention).size(), next.blocks) << state.position();
    EXPECT_EQ(state.kv(LayerId(3)).size(), next.blocks);
    EXPECT_TRUE(state.kv(kNet).empty());
    EXPECT_EQ(pool.used_bytes(), SessionState::kv_bytes(config, state.position())) << state.position();
  }
}

TEST(SessionState, ReservingTwiceIsReservingOnce) {
  const ModelConfig config = four_layers();
  KvPool pool(KvPool::kNoBudget);
  SessionState state = created(config, pool);
  ASSERT_TRUE(state.reserve(300));
  const KvBlock first = state.kv(kAttention)[0];
  ASSERT_TRUE(state.reserve(300));
  ASSERT_TRUE(state.reserve(3));
  EXPECT_EQ(state.kv(kAttention).size(), 2u);
  EXPECT_EQ(state.kv(kAttention)[0].keys, first.keys);
  EXPECT_EQ(state.position(), 0u);
}

TEST(SessionState, BlocksHoldTheirKeysAndValues) {
  const ModelConfig config = four_layers();
  KvPool pool(KvPool::kNoBudget);
  SessionState state = created(config, pool);
  ASSERT_TRUE(state.reserve(600));
  const std::uint64_t size = 256 * 32;  // floats of either
  const auto mark_of = [](std::uint32_t layer, std::size_t block) {
    return static_cast<float>(10 * layer + block);
  };
  for (const std::uint32_t layer : {1u, 3u})
    for (std::size_t i = 0; i < 3; ++i) {
      const KvBlock& block = state.kv(LayerId(layer))[i];
      std::fill_n(block.keys, size, mark_of(layer, i));
      std::fill_n(block.values, size, -mark_of(layer, i));
    }
  state.commit(600);
  for (const std::uint32_t layer : {1u, 3u})
    for (std::size_t i = 0; i < 3; ++i) {
      const KvBlock& block = state.kv(LayerId(layer))[i];
      EXPECT_TRUE(is_all(block.keys, size, mark_of(layer, i)));
      EXPECT_TRUE(is_all(block.values, size, -mark_of(layer, i)));
    }
}

TEST(SessionState, BlocksOfLatentAttentionHaveNoValues) {
  const ModelConfig config = tiny_deepseek_config();
  KvPool pool(KvPool::kNoBudget);
  SessionState state = created(config, pool);
  extend(state, 257);
  for (const LayerId layer : {LayerId(0), LayerId(1)})
    for (const KvBlock& block : state.kv(layer)) {
      EXPECT_NE(block.keys, nullptr);
      EXPECT_EQ(block.values, nullptr);
    }
  EXPECT_EQ(pool.used_bytes(), 2u * 2 * 256 * (64 + 16) * 4);
  EXPECT_EQ(SessionState::kv_bytes(config, 257), pool.used_bytes());
  EXPECT_EQ(SessionState::fixed_bytes(config), 0u);
}

TEST(SessionState, FixedBytesAreTheTwoSidesOfItsRecurrentStates) {
  const ModelConfig config = four_layers();
  KvPool pool(KvPool::kNoBudget);
  SessionState state = created(config, pool);
  const RecurrentView first = state.conv(LayerId(0)), last = state.delta(LayerId(2));
  const std::uint64_t side = 2 * (3 * 128 + 4 * 16 * 16);
  EXPECT_EQ(SessionState::fixed_bytes(config), 2 * side * sizeof(float));
  EXPECT_EQ(static_cast<std::uint64_t>(last.before + 4 * 16 * 16 - first.before), side);
  EXPECT_EQ(first.after, first.before + side);
  EXPECT_EQ(last.after, last.before + side);
}

TEST(SessionState, SidesTurnRoundOnlyOnCommit) {
  const ModelConfig config = four_layers();
  KvPool pool(KvPool::kNoBudget);
  SessionState state = created(config, pool);
  const auto write = [&](float number) {
    for (const LayerId layer : {LayerId(0), LayerId(2)}) {
      std::fill_n(state.conv(layer).after, 3 * 128, number);
      std::fill_n(state.delta(layer).after, 4 * 16 * 16, number + 0.5f);
    }
  };
  const auto expect = [&](float conv, float delta) {
    for (const LayerId layer : {LayerId(0), LayerId(2)}) {
      EXPECT_TRUE(is_all(state.conv(layer).before, 3 * 128, conv));
      EXPECT_TRUE(is_all(state.delta(layer).before, 4 * 16 * 16, delta));
    }
  };
  write(1);
  ASSERT_TRUE(state.reserve(1));
  expect(0, 0);  // as if the step had failed
  write(2);
  state.commit(1);
  expect(2, 2.5f);
  write(3);
  expect(2, 2.5f);
  state.commit(1);
  expect(3, 3.5f);
}

TEST(SessionState, AReserveThatFailsIsNotSeen) {
  const ModelConfig config = four_layers();
  const std::uint64_t one_block = kv_shape_of(config.layers[1].mixer).block_bytes();
  KvPool pool(3 * one_block);
  SessionState other = created(config, pool);
  std::optional<SessionState> state = created(config, pool);
  extend(other, 10);
  for (int again = 0; again < 3; ++again) {
    const Status refused = state->reserve(20);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::out_of_memory);
    EXPECT_EQ(state->position(), 0u);
    EXPECT_LE(pool.used_bytes(), pool.budget_bytes());
  }
  other.clear();
  extend(*state, 20);
  EXPECT_EQ(pool.used_bytes(), SessionState::kv_bytes(config, 20));
  state.reset();
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST(SessionState, ClearIsAsNew) {
  const ModelConfig config = four_layers();
  KvPool pool(KvPool::kNoBudget);
  SessionState state = created(config, pool);
  for (const bool committed : {true, false}) {
    ASSERT_TRUE(state.reserve(300));
    std::fill_n(state.conv(kNet).after, 3 * 128, 1.0f);
    std::fill_n(state.delta(LayerId(2)).after, 4 * 16 * 16, 1.0f);
    if (committed) state.commit(300);
    state.clear();
    EXPECT_EQ(state.position(), 0u);
    EXPECT_EQ(pool.used_bytes(), 0u);
    EXPECT_TRUE(state.kv(kAttention).empty());
    EXPECT_TRUE(is_all(state.conv(kNet).before, 3 * 128, 0));
    EXPECT_TRUE(is_all(state.delta(LayerId(2)).before, 4 * 16 * 16, 0));
  }
}

TEST(SessionState, GivesItsBlocksBackWhenItEnds) {
  const ModelConfig config = four_layers();
  KvPool pool(KvPool::kNoBudget);
  {
    SessionState state = created(config, pool);
    extend(state, 700);
    SessionState moved(std::move(state));
    EXPECT_EQ(moved.position(), 700u);
    EXPECT_EQ(pool.used_bytes(), SessionState::kv_bytes(config, 700));
  }
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST(SessionState, GivesItsBlocksBackWhenAnotherTakesItsPlace) {
  const ModelConfig config = four_layers();
  KvPool pool(KvPool::kNoBudget), other_pool(KvPool::kNoBudget);
  SessionState state = created(config, pool);
  SessionState other = created(config, other_pool, 50);
  extend(state, 700);
  extend(other, 30);
  const float* const keys = other.kv(kAttention)[0].keys;
  const float* const conv = other.conv(kNet).before;
  state = std::move(other);
  EXPECT_EQ(pool.used_bytes(), 0u);
  EXPECT_EQ(other_pool.used_bytes(), SessionState::kv_bytes(config, 30));
  EXPECT_EQ(state.position(), 30u);
  EXPECT_EQ(state.context(), 50u);
  EXPECT_EQ(state.kv(kAttention)[0].keys, keys);
  EXPECT_EQ(state.conv(kNet).before, conv);
  state.clear();
  EXPECT_EQ(other_pool.used_bytes(), 0u);
}

TEST(SessionState, AllocatesNothingWhileItGrows) {
  const ModelConfig config = four_layers();
  KvPool pool(KvPool::kNoBudget);
  SessionState state = created(config, pool);
  extend(state, 1);
  const AllocationCounter counter;
  while (state.position() < state.context()) extend(state, 1);
  EXPECT_EQ(counter.allocations(), 0u);
  EXPECT_EQ(state.kv(kAttention).size(), 4u);
}

TEST(SessionStateContract, PositionsAreInTheContext) {
  const ModelConfig config = four_layers();
  KvPool pool(KvPool::kNoBudget);
  SessionState state = created(config, pool, 10);
  extend(state, 7);
  ASSERT_TRUE(state.reserve(3));
  EXPECT_CONTRACT((void)state.reserve(4), "the positions are in the context");
}

}  // namespace
}  // namespace moeflux
