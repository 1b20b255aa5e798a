// The checkpoints in a snapshot file: positions and recurrent states, sharing the rows of the session.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "state/snapshot_file.h"
#include "state/testing/recorded_file.h"
#include "state/testing/snapshot_files.h"

namespace moeflux {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::IsEmpty;

class SavedCheckpoints : public testing::TestWithParam<const char*> {
 protected:
  static constexpr std::uint32_t kContext = 1000, kPosition = 600;

  SessionState new_state() {
    Result<SessionState> state = SessionState::create(config, pool, kContext);
    EXPECT_TRUE(state) << state.error().message();
    return *std::move(state);
  }
  // A session at kPosition with these checkpoints, in the order of the file.
  SavedSession session_with(const std::vector<std::uint32_t>& checkpoints) {
    SessionState state = new_state();
    std::vector<Snapshot> kept(checkpoints.size(), state.snapshot());
    std::vector<std::uint32_t> ascending = checkpoints;
    ascending.push_back(kPosition);
    std::ranges::sort(ascending);
    for (const std::uint32_t position : ascending) {
      if (position > state.position()) {
        EXPECT_TRUE(run_step(state, position - state.position()));
      }
      for (std::size_t i = 0; i < checkpoints.size(); ++i)
        if (checkpoints[i] == position) kept[i] = state.snapshot();
    }
    return session_to_save(shape, state.snapshot(), std::move(kept));
  }
  Bytes written(const SavedSession& session) {
    Bytes bytes;
    EXPECT_TRUE(
        write_snapshot(shape, identity_of_tests(), session, [&](std::span<const std::byte> piece) -> Status {
          bytes.insert(bytes.end(), piece.begin(), piece.end());
          return {};
        }));
    EXPECT_EQ(bytes.size(), snapshot_bytes(shape, session));
    return bytes;
  }
  Result<SavedSession> read(const Bytes& bytes, BlockPool& from, std::size_t most = 100) {
    return read_snapshot(bytes, {config, identity_of_tests(), from, kContext, {}, most});
  }
  static std::vector<std::uint32_t> positions_of(const SavedSession& session) {
    std::vector<std::uint32_t> positions;
    for (const Snapshot& checkpoint : session.checkpoints) positions.push_back(checkpoint.position());
    return positions;
  }
  void expect_written(const Snapshot& snapshot) {
    EXPECT_THAT(snapshot.tokens(), ElementsAreArray(written_tokens(0, snapshot.position())));
    EXPECT_EQ(snapshot.tokens_begin(), 0u);
    EXPECT_TRUE(bits_of(shape, snapshot) == written_bits(shape, snapshot.position()))
        << "at " << snapshot.position();
  }
  bool is_recurrent() const { return shape.recurrent_size != 0; }

  ModelConfig config =
      std::string(GetParam()) == "deepseek" ? small_deepseek_config() : striped_qwen_config();
  StateShape shape = state_shape_of(config);
  BlockPool pool{BlockPool::kNoBudget};
};
INSTANTIATE_TEST_SUITE_P(, SavedCheckpoints, testing::Values("qwen", "deepseek"),
                         [](const auto& name) { return std::string(name.param); });

const std::vector<std::uint32_t> kOrders[] = {{}, {1}, {255, 256, 257}, {512, 3, 599, 256}, {0, 300, 600}};

TEST_P(SavedCheckpoints, AreWrittenAsDocumented) {
  for (const std::vector<std::uint32_t>& order : kOrders)
    EXPECT_TRUE(written(session_with(order)) == own_file(config, kPosition, {.checkpoints = order}));
}

TEST_P(SavedCheckpoints, AreReadAsTheyWereWritten) {
  for (const std::vector<std::uint32_t>& order : kOrders) {
    const Bytes bytes = own_file(config, kPosition, {.checkpoints = order});
    const Result<SavedSession> session = read(bytes, pool);
    ASSERT_TRUE(session) << session.error().message();
    EXPECT_THAT(positions_of(*session), ElementsAreArray(order));
    expect_written(session->snapshot);
    for (const Snapshot& checkpoint : session->checkpoints) expect_written(checkpoint);
    EXPECT_TRUE(written(*session) == bytes);
  }
}

TEST_P(SavedCheckpoints, ShareTheRowsOfTheSession) {
  {
    const Result<SavedSession> session =
        read(own_file(config, kPosition, {.checkpoints = {300, 0, 600, 5}}), pool);
    ASSERT_TRUE(session) << session.error().message();
    EXPECT_EQ(pool.used_bytes(), shape.session_bytes(kPosition) + 2 * shape.recurrent_block_bytes())
        << "those at 0 and at the position of the session have no recurrent states of their own";
    const Snapshot::Contents& whole = session->snapshot.contents();
    for (const Snapshot& checkpoint : session->checkpoints)
      for (std::size_t layer = 0; layer < shape.kv.size(); ++layer)
        for (std::size_t b = 0; b < checkpoint.contents().blocks[layer].size(); ++b)
          EXPECT_EQ(checkpoint.contents().blocks[layer][b].memory, whole.blocks[layer][b].memory);
  }
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST_P(SavedCheckpoints, TakeBytesForTheirPositionsAndRecurrentStatesOnly) {
  const std::uint64_t without = own_file(config, kPosition).size();
  EXPECT_EQ(snapshot_bytes(shape, kPosition, kPosition), without);
  for (const std::vector<std::uint32_t>& order : kOrders) {
    const auto own = static_cast<std::uint64_t>(
        std::ranges::count_if(order, [](std::uint32_t at) { return at != 0 && at != kPosition; }));
    EXPECT_EQ(snapshot_bytes(shape, kPosition, kPosition, order),
              without + 4 * order.size() + own * shape.recurrent_bytes());
  }
}

TEST_P(SavedCheckpoints, CanBeContinued) {
  const Result<SavedSession> session =
      read(own_file(config, kPosition, {.checkpoints = {255, 0, 512, 599, 600}}), pool);
  ASSERT_TRUE(session) << session.error().message();
  for (const Snapshot& checkpoint : session->checkpoints) {
    const std::uint32_t position = checkpoint.position();
    SessionState state = new_state();
    state.restore(checkpoint);
    ASSERT_TRUE(run_step(state, 30, {1, position}));
    EXPECT_TRUE(bits_of(state) == written_bits(shape, position + 30, {1, position})) << position;
  }
  expect_written(session->snapshot);
  for (const Snapshot& checkpoint : session->checkpoints) expect_written(checkpoint);
}

TEST_P(SavedCheckpoints, AreLeftOutBeyondTheMaximumOfTheReader) {
  const Bytes bytes = own_file(config, kPosition, {.checkpoints = {300, 0, 7, 600, 20}});
  const std::vector<std::vector<std::uint32_t>> expected = {
      {0, 600}, {300, 0, 600}, {300, 0, 7, 600}, {300, 0, 7, 600, 20}};
  for (std::size_t most = 0; most < expected.size(); ++most) {
    const Result<SavedSession> session = read(bytes, pool, most);
    ASSERT_TRUE(session) << session.error().message();
    EXPECT_THAT(positions_of(*session), ElementsAreArray(expected[most]));
    for (const Snapshot& checkpoint : session->checkpoints) expect_written(checkpoint);
  }
}

TEST_P(SavedCheckpoints, AreLeftOutIfThePoolHasNoRoomForTheirStates) {
  if (!is_recurrent()) return;  // they have no states
  const Bytes bytes = own_file(config, kPosition, {.checkpoints = {300, 0, 7, 600, 20}});
  for (std::uint64_t room = 0; room <= 3; ++room) {
    BlockPool small(shape.session_bytes(kPosition) + room * shape.recurrent_block_bytes());
    {
      const Result<SavedSession> session = read(bytes, small);
      ASSERT_TRUE(session) << session.error().message();
      EXPECT_EQ(session->checkpoints.size(), 2 + room);
      EXPECT_EQ(session->checkpoints[0].position(), room == 0 ? 0u : 300u);
      for (const Snapshot& checkpoint : session->checkpoints) expect_written(checkpoint);
    }
    EXPECT_EQ(small.used_bytes(), 0u);
    Bytes damaged = bytes;
    damaged[bytes.size() - 12] ^= std::byte{1};  // in the states of the last checkpoint
    const Result<SavedSession> refused = read(damaged, small);
    ASSERT_FALSE(refused);
    EXPECT_EQ(name_of(refused.error().code()), "bad_checksum");
    EXPECT_EQ(small.used_bytes(), 0u);
  }
}

TEST_P(SavedCheckpoints, MayBeAll256) {
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < kMostSavedCheckpoints; ++i) order.push_back(2 * i + 1);
  const Bytes bytes = own_file(config, kPosition, {.checkpoints = order});
  const Result<SavedSession> session = read(bytes, pool, 1000);
  ASSERT_TRUE(session) << session.error().message();
  EXPECT_THAT(positions_of(*session), ElementsAreArray(order));
  // One more is the least recently used one and is not saved.
  SavedSession more = *session;
  more.checkpoints.push_back(more.checkpoints.front());
  const SavedSession saved = session_to_save(shape, more.snapshot, more.checkpoints);
  EXPECT_EQ(saved.checkpoints.size(), kMostSavedCheckpoints);
  EXPECT_TRUE(written(saved) == bytes);
}

TEST_P(SavedCheckpoints, AreLeftOutOfTheFileIfTheyAreOnAnotherTimeline) {
  SessionState state = new_state();
  ASSERT_TRUE(run_step(state, 100));
  const Snapshot at_100 = state.snapshot();
  ASSERT_TRUE(run_step(state, 20));
  SessionState other = new_state();
  other.restore(at_100);
  ASSERT_TRUE(run_step(other, 10, {1, 100}));
  const Snapshot elsewhere = other.snapshot();
  const SavedSession saved = session_to_save(shape, state.snapshot(), {elsewhere, at_100});
  EXPECT_THAT(positions_of(saved), ElementsAre(100));
  EXPECT_THAT(positions_of(session_to_save(shape, at_100, {state.snapshot()})), IsEmpty());
  EXPECT_TRUE(written(saved) == own_file(config, 120, {.checkpoints = {100}}));
}

TEST_P(SavedCheckpoints, OfAnImportedStateAreAtKnownPositions) {
  const OwnFile file{.tokens_begin = 258, .checkpoints = {258, 300}};
  const Bytes bytes = own_file(config, kPosition, file);
  const Result<SavedSession> session = read(bytes, pool);
  ASSERT_TRUE(session) << session.error().message();
  EXPECT_THAT(session->checkpoints[0].tokens(), IsEmpty());
  EXPECT_THAT(session->checkpoints[1].tokens(), ElementsAreArray(written_tokens(258, 300)));
  for (const Snapshot& checkpoint : session->checkpoints) {
    EXPECT_EQ(checkpoint.tokens_begin(), 258u);
    EXPECT_TRUE(bits_of(shape, checkpoint) == written_bits(shape, checkpoint.position()));
  }
  EXPECT_TRUE(written(session_to_save(shape, session->snapshot, session->checkpoints)) == bytes);
}

}  // namespace
}  // namespace moeflux
