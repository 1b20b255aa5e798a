#include "state/session_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/testing/allocation_counter.h"
#include "base/testing/expect_contract.h"
#include "state/testing/written_states.h"

namespace moeflux {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::IsEmpty;

constexpr std::uint32_t kContext = 1000;
const LayerId kNet(0), kAttention(1), kLastNet(2), kLastAttention(3);  // of small_qwen_config()
constexpr std::size_t kConv = 2 * 10, kDelta = 2 * 2 * 3;
constexpr Timeline kOther{1, 0};

SessionState created(const ModelConfig& config, BlockPool& pool, std::uint32_t context = kContext) {
  Result<SessionState> state = SessionState::create(config, pool, context);
  EXPECT_TRUE(state) << state.error().message();
  return *std::move(state);
}

void extend(SessionState& state, std::uint32_t rows, Timeline timeline = {}) {
  const Status run = run_step(state, rows, timeline);
  ASSERT_TRUE(run) << run.error().message();
}

Snapshot taken(const SessionState& state) { return state.snapshot(); }

// Expects the tokens and the state of the timeline at `position`.
void expect_at(SessionState& state, std::uint32_t position, Timeline timeline = {}) {
  EXPECT_EQ(state.position(), position);
  EXPECT_EQ(state.tokens_begin(), 0u);
  EXPECT_THAT(state.tokens(), ElementsAreArray(written_tokens(0, position, timeline)));
  EXPECT_TRUE(bits_of(state) == written_bits(state.shape(), position, timeline)) << position;
}

bool is_all(const float* numbers, std::uint64_t count, float value) {
  return std::all_of(numbers, numbers + count, [&](float number) { return number == value; });
}

// Bytes per position, all layers.
std::uint64_t row_bytes(const StateShape& shape) {
  std::uint64_t floats = 0;
  for (const KvShape& kv : shape.kv) floats += std::uint64_t{kv.heads} * (kv.key_dim + kv.value_dim);
  return floats * sizeof(float);
}

TEST(SessionState, BeginsAtPositionZeroWithoutBlocksAndWithZeroStates) {
  BlockPool pool(BlockPool::kNoBudget);
  SessionState state = created(small_qwen_config(), pool);
  EXPECT_EQ(state.context(), kContext);
  EXPECT_EQ(pool.used_bytes(), 0u);
  expect_at(state, 0);
  for (const LayerId layer : {kNet, kLastNet}) {
    EXPECT_TRUE(is_all(state.conv(layer).before, kConv, 0));
    EXPECT_TRUE(is_all(state.delta(layer).before, kDelta, 0));
  }
  EXPECT_THAT(state.kv(kAttention), IsEmpty());
}

TEST(SessionState, ReservesBlocksOf256PositionsAndNoMore) {
  BlockPool pool(BlockPool::kNoBudget);
  SessionState state = created(small_qwen_config(), pool);
  struct Case {
    std::uint32_t rows, blocks;
  };
  for (const Case next : {Case{1, 1}, Case{255, 1}, Case{1, 2}, Case{254, 2}, Case{1, 2}, Case{300, 4}}) {
    extend(state, next.rows);
    EXPECT_EQ(state.kv(kAttention).size(), next.blocks) << state.position();
    EXPECT_EQ(state.kv(kLastAttention).size(), next.blocks);
    EXPECT_THAT(state.kv(kNet), IsEmpty());
    EXPECT_EQ(pool.used_bytes(), state.shape().session_bytes(state.position())) << state.position();
  }
}

TEST(SessionState, ReservingIsIdempotent) {
  BlockPool pool(BlockPool::kNoBudget);
  SessionState state = created(small_qwen_config(), pool);
  ASSERT_TRUE(state.reserve(300));
  const float* const first = state.kv(kAttention)[0].keys;
  ASSERT_TRUE(state.reserve(300));
  ASSERT_TRUE(state.reserve(3));
  EXPECT_EQ(state.kv(kAttention).size(), 2u);
  EXPECT_EQ(state.kv(kAttention)[0].keys, first);
  EXPECT_EQ(state.position(), 0u);
}

TEST(SessionState, ReservingClaimsTheRowsInEveryBlock) {
  BlockPool pool(BlockPool::kNoBudget);
  SessionState state = created(small_qwen_config(), pool);
  const auto filled = [&] {
    std::vector<std::uint32_t> rows;
    for (const KvBlock& block : state.kv(kLastAttention)) rows.push_back(block.memory.filled());
    return rows;
  };
  ASSERT_TRUE(state.reserve(5));
  EXPECT_THAT(filled(), ElementsAre(5));
  extend(state, 600);
  EXPECT_THAT(filled(), ElementsAre(256, 256, 88));
  ASSERT_TRUE(state.reserve(0));
  EXPECT_THAT(filled(), ElementsAre(256, 256, 88));
  extend(state, 168);
  EXPECT_THAT(filled(), ElementsAre(256, 256, 256));
  ASSERT_TRUE(state.reserve(0));
  EXPECT_THAT(filled(), ElementsAre(256, 256, 256));
}

TEST(SessionState, KeepsWhatItsStepsWrote) {
  for (const ModelConfig& config : {small_qwen_config(), small_deepseek_config()}) {
    BlockPool pool(BlockPool::kNoBudget);
    SessionState state = created(config, pool);
    for (const std::uint32_t rows : {1u, 254u, 1u, 1u, 343u}) {
      const std::uint32_t before = state.position();
      extend(state, rows);
      expect_at(state, before + rows);
    }
    EXPECT_EQ(pool.copied_bytes(), 0u);
  }
}

TEST(SessionState, BlocksOfLatentAttentionHaveNoValues) {
  BlockPool pool(BlockPool::kNoBudget);
  SessionState state = created(tiny_deepseek_config(), pool);
  ASSERT_TRUE(state.reserve(257));
  for (const LayerId layer : {LayerId(0), LayerId(1)})
    for (const KvBlock& block : state.kv(layer)) {
      EXPECT_NE(block.keys, nullptr);
      EXPECT_EQ(block.values, nullptr);
    }
  EXPECT_EQ(pool.used_bytes(), 2u * 2 * BlockPool::block_bytes(256 * (64 + 16) * 4));
}

TEST(SessionState, AStepReadsOneBlockOfRecurrentStatesAndWritesAnother) {
  BlockPool pool(BlockPool::kNoBudget);
  SessionState state = created(small_qwen_config(), pool);
  const std::uint64_t all = 2 * (kConv + kDelta);
  EXPECT_EQ(state.shape().recurrent_bytes(), all * sizeof(float));
  extend(state, 1);
  EXPECT_EQ(state.conv(kNet).after, nullptr) << "outside of a step";
  ASSERT_TRUE(state.begin_step(written_tokens(1, 2)));
  const RecurrentView first = state.conv(kNet), last = state.delta(kLastNet);
  EXPECT_EQ(static_cast<std::uint64_t>(last.before + kDelta - first.before), all);
  EXPECT_EQ(static_cast<std::uint64_t>(last.after + kDelta - first.after), all);
  EXPECT_NE(first.after, first.before);
  state.commit();
  EXPECT_EQ(state.conv(kNet).before, first.after);
}

TEST(SessionState, ANewSessionHasNoBlocksUntilItsFirstStep) {
  BlockPool pool(BlockPool::kNoBudget);
  SessionState state = created(small_qwen_config(), pool);
  const Snapshot snapshot = taken(state);
  EXPECT_EQ(pool.slab_bytes(), 0u);
  extend(state, 1);
  EXPECT_EQ(pool.used_bytes(), state.shape().session_bytes(1));
  state.restore(snapshot);
  EXPECT_EQ(pool.used_bytes(), 0u);
  expect_at(state, 0);
}

TEST(SessionState, ReservedStepsAndASnapshotBetweenThemFindNoPoolEmpty) {
  for (const std::uint32_t snapshot_at : {0u, 1u, 2u, 3u, 4u}) {
    BlockPool pool(BlockPool::kNoBudget);
    SessionState state = created(small_qwen_config(), pool);
    ASSERT_TRUE(state.reserve(5, 5, snapshot_at == 0 ? 0 : 1));
    pool.set_budget_bytes(0);
    std::optional<Snapshot> snapshot;
    for (std::uint32_t step = 1; step <= 5; ++step) {
      extend(state, 1);
      if (step == snapshot_at) snapshot = taken(state);
    }
    expect_at(state, 5);
    EXPECT_EQ(pool.used_bytes(), state.shape().session_bytes(5) +
                                     (snapshot_at % 5 == 0 ? 0 : state.shape().recurrent_block_bytes()));
    if (snapshot) {
      EXPECT_TRUE(bits_of(state.shape(), *snapshot) == written_bits(state.shape(), snapshot_at))
          << snapshot_at;
    }
  }
}

TEST(SessionState, ABlockThatEachStepReplacesIsNotReturnedToTheSystem) {
  BlockPool pool(BlockPool::kNoBudget);
  SessionState state = created(small_qwen_config(), pool);
  extend(state, 2);
  const std::uint64_t slabs = pool.slab_bytes();
  for (int step = 0; step < 10; ++step) {
    extend(state, 1);
    EXPECT_EQ(pool.slab_bytes(), slabs);
  }
}

TEST(SessionState, RecurrentStatesAreReplacedOnlyOnCommit) {
  BlockPool pool(BlockPool::kNoBudget);
  SessionState state = created(small_qwen_config(), pool);
  const auto write = [&](float number) {
    for (const LayerId layer : {kNet, kLastNet}) {
      std::fill_n(state.conv(layer).after, kConv, number);
      std::fill_n(state.delta(layer).after, kDelta, number + 0.5f);
    }
  };
  const auto expect = [&](float conv, float delta) {
    for (const LayerId layer : {kNet, kLastNet}) {
      EXPECT_TRUE(is_all(state.conv(layer).before, kConv, conv));
      EXPECT_TRUE(is_all(state.delta(layer).before, kDelta, delta));
    }
  };
  const std::vector<TokenId> token{TokenId(7)};
  ASSERT_TRUE(state.begin_step(token));
  write(1);
  expect(0, 0);  // as if the step had failed
  ASSERT_TRUE(state.begin_step(token));
  write(2);
  state.commit();
  expect(2, 2.5f);
  ASSERT_TRUE(state.begin_step(token));
  write(3);
  expect(2, 2.5f);
  state.commit();
  expect(3, 3.5f);
  EXPECT_THAT(state.tokens(), ElementsAre(TokenId(7), TokenId(7)));
}

// More rows may be reserved than a step runs. The committed state is that after all rows of the step.
TEST(SessionState, CommitsAllRowsOfTheStepHoweverManyAreReserved) {
  for (const ModelConfig& config : {small_qwen_config(), small_deepseek_config()})
    for (const std::uint32_t reserved : {0u, 3u, 5u, 300u}) {
      BlockPool pool(BlockPool::kNoBudget);
      SessionState state = created(config, pool);
      extend(state, 10);
      ASSERT_TRUE(state.reserve(reserved));
      extend(state, 3);
      expect_at(state, 13);
      extend(state, 2);
      expect_at(state, 15);
    }
}

TEST(SessionState, AStepThatIsNotCommittedIsReplacedByTheNext) {
  BlockPool pool(BlockPool::kNoBudget);
  SessionState state = created(small_qwen_config(), pool);
  extend(state, 10);
  for (const std::uint32_t rows : {300u, 2u}) {
    ASSERT_TRUE(state.begin_step(written_tokens(10, 10 + rows, kOther)));
    write_step(state, rows, kOther);
    expect_at(state, 10);
  }
  extend(state, 5);
  expect_at(state, 15);
}

TEST(SessionState, AStepThatIsDroppedLeavesNoTokens) {
  const auto drop = [](SessionState& state, int way, const Snapshot& snapshot) {
    if (way == 0) state.abandon();
    if (way == 1) state.restore(snapshot);
    if (way == 2) state.truncate(10);
  };
  for (int way = 0; way < 3; ++way) {
    BlockPool pool(BlockPool::kNoBudget);
    SessionState state = created(small_deepseek_config(), pool);
    extend(state, 10);
    const Snapshot snapshot = taken(state);
    ASSERT_TRUE(state.begin_step(written_tokens(10, 20, kOther)));
    EXPECT_THAT(taken(state).tokens(), ElementsAreArray(written_tokens(0, 10)));
    drop(state, way, snapshot);
    expect_at(state, 10);
    extend(state, 5);
    expect_at(state, 15);
  }
}

TEST(SessionState, AFailedReserveChangesNothingVisible) {
  const ModelConfig config = small_qwen_config();
  const std::uint64_t one_block = BlockPool::block_bytes(state_shape_of(config).kv[1].block_bytes());
  const std::uint64_t recurrent = state_shape_of(config).recurrent_block_bytes();
  BlockPool pool(3 * one_block + 3 * recurrent);
  SessionState other = created(config, pool);
  std::optional<SessionState> state = created(config, pool);
  extend(other, 10);
  for (int again = 0; again < 3; ++again) {
    const Status refused = state->reserve(20);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::out_of_memory);
    expect_at(*state, 0);
    EXPECT_EQ(pool.used_bytes(), other.shape().session_bytes(10));
  }
  other.clear();
  extend(*state, 20);
  expect_at(*state, 20);
  EXPECT_EQ(pool.used_bytes(), state->shape().session_bytes(20));
  state.reset();
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST(SessionState, AFailedStepDoesNotAffectTheNext) {
  for (const std::uint32_t before : {0u, 10u, 255u, 256u}) {
    BlockPool pool(BlockPool::kNoBudget);
    SessionState state = created(small_qwen_config(), pool);
    if (before != 0) extend(state, before);
    ASSERT_TRUE(state.begin_step(written_tokens(before, before + 300, kOther)));
    write_step(state, 300, kOther);
    expect_at(state, before);
    extend(state, 3);
    expect_at(state, before + 3);
    extend(state, 300);
    expect_at(state, before + 303);
    EXPECT_EQ(pool.copied_bytes(), 0u);  // the blocks are not shared
  }
}

TEST(SessionState, ClearRestoresTheInitialState) {
  BlockPool pool(BlockPool::kNoBudget);
  SessionState state = created(small_qwen_config(), pool);
  for (const bool committed : {true, false}) {
    ASSERT_TRUE(state.begin_step(written_tokens(0, 300)));
    write_step(state, 300, kOther);
    if (committed) state.commit();
    state.clear();
    expect_at(state, 0);
    EXPECT_EQ(pool.used_bytes(), 0u);
    EXPECT_THAT(state.kv(kAttention), IsEmpty());
  }
  extend(state, 300);
  expect_at(state, 300);
}

TEST(SessionState, ReturnsItsBlocksWhenDestroyed) {
  BlockPool pool(BlockPool::kNoBudget);
  {
    SessionState state = created(small_qwen_config(), pool);
    extend(state, 700);
    SessionState moved(std::move(state));
    expect_at(moved, 700);
    EXPECT_EQ(pool.used_bytes(), moved.shape().session_bytes(700));
  }
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST(SessionState, ReturnsItsBlocksWhenAssignedTo) {
  BlockPool pool(BlockPool::kNoBudget), other_pool(BlockPool::kNoBudget);
  SessionState state = created(small_qwen_config(), pool);
  SessionState other = created(small_qwen_config(), other_pool, 50);
  extend(state, 700);
  extend(other, 30, kOther);
  const float* const keys = other.kv(kAttention)[0].keys;
  const float* const conv = other.conv(kNet).before;
  state = std::move(other);
  EXPECT_EQ(pool.used_bytes(), 0u);
  EXPECT_EQ(other_pool.used_bytes(), state.shape().session_bytes(30));
  EXPECT_EQ(state.context(), 50u);
  EXPECT_EQ(state.kv(kAttention)[0].keys, keys);
  EXPECT_EQ(state.conv(kNet).before, conv);
  expect_at(state, 30, kOther);
  state.clear();
  EXPECT_EQ(other_pool.used_bytes(), 0u);
}

TEST(SessionState, AllocatesNothingWhileItGrows) {
  BlockPool pool(BlockPool::kNoBudget);
  SessionState state = created(small_qwen_config(), pool);
  extend(state, 1);
  const std::vector<TokenId> token{TokenId(1)};
  const AllocationCounter counter;
  while (state.position() < state.context()) {
    ASSERT_TRUE(state.begin_step(token));
    state.commit();
  }
  EXPECT_EQ(counter.allocations(), 0u);
  EXPECT_EQ(state.kv(kAttention).size(), 4u);
  EXPECT_EQ(state.tokens().size(), kContext);
}

TEST(SessionState, AllocatesNothingWhenGoingBack) {
  for (const ModelConfig& config : {small_qwen_config(), small_deepseek_config()}) {
    BlockPool pool(BlockPool::kNoBudget);
    SessionState state = created(config, pool);
    extend(state, 300);
    const Snapshot snapshot = taken(state);
    extend(state, 300);
    const std::vector<TokenId> tokens = written_tokens(300, 600);
    const AllocationCounter counter;
    state.restore(snapshot);
    ASSERT_TRUE(state.begin_step(tokens));
    state.commit();
    if (state.can_truncate()) state.truncate(100);
    state.clear();
    EXPECT_EQ(counter.allocations(), 0u);
  }
}

// ---- Going back without a snapshot ----

TEST(SessionStateTruncate, IsOnlyForModelsWithoutRecurrentStates) {
  BlockPool pool(BlockPool::kNoBudget);
  EXPECT_TRUE(created(small_deepseek_config(), pool).can_truncate());
  EXPECT_FALSE(created(small_qwen_config(), pool).can_truncate());
}

TEST(SessionStateTruncate, DropsEverythingFromThePositionOn) {
  for (const std::uint32_t kept : {600u, 599u, 513u, 512u, 511u, 256u, 255u, 1u, 0u}) {
    BlockPool pool(BlockPool::kNoBudget);
    SessionState state = created(small_deepseek_config(), pool);
    extend(state, 600);
    state.truncate(kept);
    expect_at(state, kept);
    EXPECT_EQ(pool.used_bytes(), state.shape().session_bytes(kept));
    const Timeline after{1, kept};
    extend(state, 400, after);
    expect_at(state, kept + 400, after);
    EXPECT_EQ(pool.copied_bytes(), 0u);
  }
}

TEST(SessionStateTruncate, ReturnsTheBlocksOfAFailedStep) {
  BlockPool pool(BlockPool::kNoBudget);
  SessionState state = created(small_deepseek_config(), pool);
  extend(state, 10);
  ASSERT_TRUE(state.reserve(600));
  state.truncate(10);
  expect_at(state, 10);
  EXPECT_EQ(pool.used_bytes(), state.shape().session_bytes(10));
}

TEST(SessionStateTruncate, DoesNotChangeSnapshotsOfLaterPositions) {
  for (const std::uint32_t kept : {300u, 299u, 257u, 256u, 100u, 0u}) {
    BlockPool pool(BlockPool::kNoBudget);
    SessionState state = created(small_deepseek_config(), pool);
    extend(state, 300);
    const Snapshot snapshot = taken(state);
    state.truncate(kept);
    const Timeline after{1, kept};
    extend(state, 300, after);
    expect_at(state, kept + 300, after);
    EXPECT_TRUE(bits_of(state.shape(), snapshot) == written_bits(state.shape(), 300)) << kept;
    const std::uint32_t rows_seen_by_both = kept == 300 ? 0 : kept % 256;  // in the block that is written to
    EXPECT_EQ(pool.copied_bytes(), rows_seen_by_both * row_bytes(state.shape())) << kept;
  }
}

TEST(SessionStateTruncate, BelowTheFirstKnownTokenLeavesNone) {
  BlockPool pool(BlockPool::kNoBudget);
  SessionState state = created(small_deepseek_config(), pool);
  extend(state, 20);
  const Snapshot known = taken(state);
  // The same state with tokens only from 15 on, as after an import at position 15.
  auto contents = std::make_shared<Snapshot::Contents>();
  contents->position = 20;
  contents->blocks = known.contents().blocks;
  contents->tokens = written_tokens(15, 20);
  contents->tokens_begin = 15;
  const Snapshot imported(contents);
  for (const std::uint32_t kept : {18u, 15u, 14u, 0u}) {
    state.restore(imported);
    EXPECT_EQ(state.tokens_begin(), 15u);
    state.truncate(kept);
    EXPECT_EQ(state.tokens_begin(), std::min(kept, 15u));
    EXPECT_THAT(state.tokens(), ElementsAreArray(written_tokens(15, std::max(kept, 15u))));
    EXPECT_EQ(state.tokens_begin() + state.tokens().size(), state.position());
  }
}

// ---- Snapshots and copies ----

TEST(SessionStateSnapshot, ContinuingTheSameSessionCopiesNothing) {
  for (const ModelConfig& config : {small_qwen_config(), small_deepseek_config()}) {
    BlockPool pool(BlockPool::kNoBudget);
    SessionState state = created(config, pool);
    std::vector<Snapshot> snapshots;
    for (const std::uint32_t rows : {10u, 1u, 244u, 1u, 1u, 400u}) {
      extend(state, rows);
      snapshots.push_back(taken(state));
    }
    extend(state, 100);
    expect_at(state, 757);
    EXPECT_EQ(pool.copied_bytes(), 0u);
    EXPECT_EQ(pool.used_bytes(),
              state.shape().session_bytes(757) + snapshots.size() * state.shape().recurrent_block_bytes());
    for (const Snapshot& snapshot : snapshots)
      EXPECT_TRUE(bits_of(state.shape(), snapshot) == written_bits(state.shape(), snapshot.position()))
          << snapshot.position();
  }
}

TEST(SessionStateSnapshot, ASecondSessionCopiesItsRowsOfTheBlockItWritesTo) {
  for (const ModelConfig& config : {small_qwen_config(), small_deepseek_config()})
    for (const std::uint32_t position : {1u, 100u, 255u, 257u, 600u}) {
      BlockPool pool(BlockPool::kNoBudget);
      SessionState first = created(config, pool), second = created(config, pool);
      const Timeline after_first{1, position}, after_second{2, position};
      extend(first, position);
      const Snapshot snapshot = taken(first);
      second.restore(snapshot);
      expect_at(second, position);
      EXPECT_EQ(pool.used_bytes(), first.shape().session_bytes(position));

      extend(first, 1, after_first);
      EXPECT_EQ(pool.copied_bytes(), 0u);  // its position is where the claimed rows end
      extend(second, 2, after_second);
      const std::uint64_t copied = position % 256 * row_bytes(first.shape());
      EXPECT_EQ(pool.copied_bytes(), copied) << position;

      extend(first, 300, after_first);
      extend(second, 300, after_second);
      EXPECT_EQ(pool.copied_bytes(), copied);  // only once: it owns the copy
      expect_at(first, position + 301, after_first);
      expect_at(second, position + 302, after_second);
      EXPECT_TRUE(bits_of(first.shape(), snapshot) == written_bits(first.shape(), position));
    }
}

TEST(SessionStateSnapshot, TheFirstSessionToWriteContinuesInPlace) {
  BlockPool pool(BlockPool::kNoBudget);
  SessionState first = created(small_qwen_config(), pool), second = created(small_qwen_config(), pool);
  extend(first, 100);
  second.restore(taken(first));
  const Timeline after_first{1, 100}, after_second{2, 100};
  extend(second, 5, after_second);
  EXPECT_EQ(pool.copied_bytes(), 0u);
  extend(first, 5, after_first);
  EXPECT_EQ(pool.copied_bytes(), 100 * row_bytes(first.shape()));
  expect_at(first, 105, after_first);
  expect_at(second, 105, after_second);
}

TEST(SessionStateSnapshot, TheNextRowsAreClaimedBeforeTheStepRuns) {
  // The sessions of a batch all begin their steps before any of them writes.
  BlockPool pool(BlockPool::kNoBudget);
  SessionState first = created(small_qwen_config(), pool), second = created(small_qwen_config(), pool);
  extend(first, 100);
  second.restore(taken(first));
  const Timeline after_first{1, 100}, after_second{2, 100};
  ASSERT_TRUE(first.begin_step(written_tokens(100, 101, after_first)));
  ASSERT_TRUE(second.begin_step(written_tokens(100, 101, after_second)));
  write_step(second, 1, after_second);
  write_step(first, 1, after_first);
  first.commit();
  second.commit();
  expect_at(first, 101, after_first);
  expect_at(second, 101, after_second);
}

TEST(SessionStateSnapshot, AtABlockBoundaryNothingIsCopied) {
  for (const std::uint32_t position : {256u, 512u}) {
    BlockPool pool(BlockPool::kNoBudget);
    SessionState first = created(small_qwen_config(), pool), second = created(small_qwen_config(), pool);
    const Timeline after_first{1, position}, after_second{2, position};
    extend(first, position);
    const Snapshot snapshot = taken(first);
    extend(first, 10, after_first);
    second.restore(snapshot);
    extend(second, 20, after_second);
    first.restore(snapshot);
    extend(first, 30, Timeline{3, position});
    EXPECT_EQ(pool.copied_bytes(), 0u);
    expect_at(first, position + 30, Timeline{3, position});
    expect_at(second, position + 20, after_second);
  }
}

TEST(SessionStateSnapshot, AfterAFailedStepTheSessionContinuesInPlace) {
  for (const bool is_abandoned : {false, true}) {
    BlockPool pool(BlockPool::kNoBudget);
    SessionState state = created(small_qwen_config(), pool);
    extend(state, 100);
    const Snapshot snapshot = taken(state);
    ASSERT_TRUE(state.begin_step(written_tokens(100, 300, kOther)));
    write_step(state, 200, kOther);
    if (is_abandoned) state.abandon();
    EXPECT_EQ(pool.used_bytes(), state.shape().session_bytes(is_abandoned ? 100 : 300) +
                                     (is_abandoned ? 0 : state.shape().recurrent_block_bytes()));
    extend(state, 7);
    extend(state, 200);
    expect_at(state, 307);
    EXPECT_EQ(pool.copied_bytes(), 0u);
    EXPECT_TRUE(bits_of(state.shape(), snapshot) == written_bits(state.shape(), 100));
  }
}

TEST(SessionStateSnapshot, AbandoningWithoutAClaimKeepsTheRowsOfOthers) {
  BlockPool pool(BlockPool::kNoBudget);
  SessionState first = created(small_qwen_config(), pool), second = created(small_qwen_config(), pool);
  extend(first, 100);
  second.restore(taken(first));
  const Timeline after_first{1, 100}, after_second{2, 100};
  extend(first, 20, after_first);
  second.abandon();
  extend(second, 30, after_second);
  expect_at(first, 120, after_first);
  expect_at(second, 130, after_second);
}

TEST(SessionStateSnapshot, RowsReservedForSeveralStepsAreClaimedOnce) {
  BlockPool pool(BlockPool::kNoBudget);
  SessionState state = created(small_qwen_config(), pool), other = created(small_qwen_config(), pool);
  extend(state, 100);
  other.restore(taken(state));
  const Timeline after_other{1, 100};
  ASSERT_TRUE(state.reserve(300));
  extend(state, 150);
  extend(other, 40, after_other);  // its next rows are claimed, so it copies
  EXPECT_EQ(pool.copied_bytes(), 100 * row_bytes(state.shape()));
  extend(state, 150);
  EXPECT_EQ(pool.copied_bytes(), 100 * row_bytes(state.shape()));
  expect_at(state, 400);
  expect_at(other, 140, after_other);
}

TEST(SessionStateSnapshot, AFailedCopyChangesNothingVisible) {
  const ModelConfig config = small_qwen_config();
  const std::uint64_t one_block = BlockPool::block_bytes(state_shape_of(config).kv[1].block_bytes());
  // Both sessions together need four blocks of keys and values, and three of recurrent states.
  BlockPool pool(3 * one_block + 3 * state_shape_of(config).recurrent_block_bytes());
  SessionState first = created(config, pool), second = created(config, pool);
  extend(first, 100);
  second.restore(taken(first));
  const Timeline after_first{1, 100}, after_second{2, 100};
  extend(first, 1, after_first);
  for (int again = 0; again < 2; ++again) {
    const Status refused = second.reserve(1);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::out_of_memory);
    expect_at(second, 100);
    expect_at(first, 101, after_first);
  }
  first.clear();
  extend(second, 5, after_second);
  expect_at(second, 105, after_second);
}

TEST(SessionStateSnapshot, ABlockThatIsNoLongerSharedIsWrittenInPlace) {
  BlockPool pool(BlockPool::kNoBudget);
  SessionState state = created(small_qwen_config(), pool);
  extend(state, 100);
  std::optional<Snapshot> snapshot = taken(state);
  extend(state, 50);
  state.restore(*snapshot);  // rows 100 to 149 stay claimed but are not visible
  snapshot.reset();
  extend(state, 20, {1, 100});
  expect_at(state, 120, {1, 100});
  EXPECT_EQ(pool.copied_bytes(), 0u);
}

TEST(SessionStateSnapshot, CanBeRestoredIntoAnotherSession) {
  for (const ModelConfig& config : {small_qwen_config(), small_deepseek_config()})
    for (const std::uint32_t position : {0u, 1u, 256u, 300u})
      for (const bool is_committed : {false, true}) {
        BlockPool pool(BlockPool::kNoBudget);
        std::optional<Snapshot> snapshot;
        {
          SessionState first = created(config, pool);
          if (position != 0) extend(first, position);
          snapshot = taken(first);
        }
        SessionState state = created(config, pool);
        extend(state, 700, kOther);
        if (!is_committed) {
          ASSERT_TRUE(state.begin_step(written_tokens(700, 1000, kOther)));
          write_step(state, 300, kOther);
        }
        state.restore(*snapshot);
        expect_at(state, position);
        EXPECT_EQ(pool.used_bytes(),
                  state.shape().session_bytes(position));  // the previous blocks are returned
        extend(state, 10);
        expect_at(state, position + 10);
      }
}

TEST(SessionStateSnapshot, RestoringIsIdempotent) {
  BlockPool pool(BlockPool::kNoBudget);
  SessionState state = created(small_qwen_config(), pool);
  extend(state, 100);
  const Snapshot snapshot = taken(state);
  for (std::uint32_t again = 1; again < 4; ++again) {
    extend(state, 200, {again, 100});
    state.restore(snapshot);
    state.restore(snapshot);
    expect_at(state, 100);
  }
  EXPECT_EQ(pool.used_bytes(), state.shape().session_bytes(100));
}

TEST(SessionStateSnapshot, OutlivesItsSession) {
  BlockPool pool(BlockPool::kNoBudget);
  std::optional<Snapshot> snapshot;
  StateShape shape;
  {
    SessionState state = created(small_qwen_config(), pool);
    shape = state.shape();
    extend(state, 300);
    snapshot = taken(state);
    extend(state, 400);
  }
  EXPECT_EQ(pool.used_bytes(), shape.session_bytes(300));
  EXPECT_TRUE(bits_of(shape, *snapshot) == written_bits(shape, 300));
  snapshot.reset();
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST(SessionStateSnapshot, DuringAStepIsOfThePositionBeforeIt) {
  BlockPool pool(BlockPool::kNoBudget);
  SessionState state = created(small_qwen_config(), pool);
  extend(state, 10);
  ASSERT_TRUE(state.begin_step(written_tokens(10, 610, kOther)));
  write_step(state, 600, kOther);
  const Snapshot snapshot = taken(state);
  EXPECT_EQ(snapshot.contents().blocks[1].size(), 1u);
  EXPECT_TRUE(bits_of(state.shape(), snapshot) == written_bits(state.shape(), 10));
  state.clear();
  EXPECT_EQ(pool.used_bytes(), state.shape().session_bytes(10));
}

// The cost of a checkpoint, at a length where copying the keys and values would dominate.
TEST(SessionStateSnapshot, Of4096PositionsOwnsRecurrentStatesAndTokensOnly) {
  BlockPool pool(BlockPool::kNoBudget);
  SessionState state = created(small_qwen_config(), pool, 5000);
  extend(state, 4096);
  const std::uint64_t used = pool.used_bytes();
  const Snapshot snapshot = taken(state);
  EXPECT_EQ(snapshot.own_bytes(), state.shape().recurrent_bytes() + 4096 * sizeof(TokenId));
  EXPECT_EQ(pool.used_bytes(), used);
  EXPECT_EQ(pool.copied_bytes(), 0u);
}

TEST(SessionStateContract, PositionsAreInTheContext) {
  BlockPool pool(BlockPool::kNoBudget);
  SessionState state = created(small_qwen_config(), pool, 10);
  extend(state, 7);
  ASSERT_TRUE(state.reserve(3));
  EXPECT_CONTRACT((void)state.reserve(4), "the positions are in the context");
}

TEST(SessionStateContract, OnlyAStepThatWasBegunIsCommitted) {
  BlockPool pool(BlockPool::kNoBudget);
  SessionState state = created(small_qwen_config(), pool);
  EXPECT_CONTRACT((void)state.begin_step({}), "a step has at least one token");
  ASSERT_TRUE(state.reserve(3));
  EXPECT_CONTRACT(state.commit(), "a step was begun");
  extend(state, 3);
  EXPECT_CONTRACT(state.commit(), "a step was begun");
  ASSERT_TRUE(state.begin_step(written_tokens(3, 5)));
  state.abandon();
  EXPECT_CONTRACT(state.commit(), "a step was begun");
}

TEST(SessionStateContract, OnlyStatesWithoutRecurrentLayersAreTruncated) {
  BlockPool pool(BlockPool::kNoBudget);
  SessionState qwen = created(small_qwen_config(), pool), deepseek = created(small_deepseek_config(), pool);
  EXPECT_CONTRACT(qwen.truncate(0), "no layer has a recurrent state");
  EXPECT_CONTRACT(deepseek.truncate(1), "positions are dropped from the end");
}

TEST(SessionStateContract, ARestoredSnapshotMatchesTheModelAndTheContext) {
  BlockPool pool(BlockPool::kNoBudget);
  SessionState qwen = created(small_qwen_config(), pool), small = created(small_qwen_config(), pool, 10);
  SessionState deepseek = created(small_deepseek_config(), pool);
  extend(qwen, 11);
  const Snapshot snapshot = taken(qwen);
  EXPECT_CONTRACT(small.restore(snapshot), "a snapshot of this model that fits the context");
  EXPECT_CONTRACT(deepseek.restore(snapshot), "a snapshot of this model that fits the context");
}

}  // namespace
}  // namespace moeflux
