#include "engine/checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace moeflux {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// A snapshot that owns `tokens` known tokens of 4 bytes each.
Snapshot snapshot_at(std::uint32_t position, std::size_t tokens = 0) {
  auto contents = std::make_shared<Snapshot::Contents>();
  contents->position = position;
  contents->tokens.assign(tokens, TokenId(0));
  contents->tokens_begin = position - static_cast<std::uint32_t>(tokens);
  return Snapshot(std::move(contents));
}

void keep(Checkpoints& checkpoints, std::initializer_list<std::uint32_t> positions) {
  for (const std::uint32_t position : positions) checkpoints.keep(snapshot_at(position));
}

TEST(Checkpoints, StartEmpty) {
  Checkpoints checkpoints;
  EXPECT_EQ(checkpoints.count(), 0u);
  EXPECT_EQ(checkpoints.own_bytes(), 0u);
  EXPECT_THAT(checkpoints.positions(), IsEmpty());
  EXPECT_EQ(checkpoints.find(0), nullptr);
  EXPECT_EQ(checkpoints.deepest_up_to(1000), nullptr);
}

TEST(Checkpoints, AreFoundAtExactlyTheirPosition) {
  Checkpoints checkpoints;
  keep(checkpoints, {30, 10, 20});
  for (const std::uint32_t position : {10u, 20u, 30u}) {
    ASSERT_NE(checkpoints.find(position), nullptr);
    EXPECT_EQ(checkpoints.find(position)->position(), position);
  }
  for (const std::uint32_t position : {0u, 9u, 11u, 29u, 31u})
    EXPECT_EQ(checkpoints.find(position), nullptr) << position;
  EXPECT_THAT(checkpoints.positions(), ElementsAre(10, 20, 30));
}

TEST(Checkpoints, DeepestUpToFindsTheLastAtOrBeforeAPosition) {
  Checkpoints checkpoints;
  keep(checkpoints, {30, 10, 20});
  EXPECT_EQ(checkpoints.deepest_up_to(9), nullptr);
  struct Case {
    std::uint32_t position, deepest;
  };
  for (const Case at :
       {Case{10, 10}, Case{19, 10}, Case{20, 20}, Case{29, 20}, Case{30, 30}, Case{~0u, 30}}) {
    const Snapshot* const found = checkpoints.deepest_up_to(at.position);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->position(), at.deepest) << at.position;
  }
}

TEST(Checkpoints, AreAtMostFourByDefault) {
  Checkpoints checkpoints;
  for (std::uint32_t position = 1; position <= 20; ++position) {
    keep(checkpoints, {position});
    EXPECT_EQ(checkpoints.count(), std::min(position, 4u));
  }
  EXPECT_THAT(checkpoints.positions(), ElementsAre(17, 18, 19, 20));
}

TEST(Checkpoints, EvictsTheLeastRecentlyMadeWhateverItsPosition) {
  Checkpoints checkpoints;
  keep(checkpoints, {30, 10, 40, 20});
  keep(checkpoints, {25});
  EXPECT_THAT(checkpoints.positions(), ElementsAre(10, 20, 25, 40));
  keep(checkpoints, {5});
  EXPECT_THAT(checkpoints.positions(), ElementsAre(5, 20, 25, 40));
}

TEST(Checkpoints, FindingOneCountsAsUse) {
  Checkpoints checkpoints;
  keep(checkpoints, {10, 20, 30, 40});
  EXPECT_NE(checkpoints.find(10), nullptr);
  EXPECT_NE(checkpoints.deepest_up_to(25), nullptr);
  keep(checkpoints, {50, 60});
  EXPECT_THAT(checkpoints.positions(), ElementsAre(10, 20, 50, 60));
  keep(checkpoints, {70});
  EXPECT_THAT(checkpoints.positions(), ElementsAre(20, 50, 60, 70));
}

TEST(Checkpoints, AreListedByTheirLastUse) {
  Checkpoints checkpoints;
  EXPECT_THAT(checkpoints.by_last_use(), IsEmpty());
  keep(checkpoints, {10, 30, 20, 0});
  EXPECT_NE(checkpoints.find(30), nullptr);
  EXPECT_NE(checkpoints.deepest_up_to(15), nullptr);
  std::vector<std::uint32_t> positions;
  for (const Snapshot& snapshot : checkpoints.by_last_use()) positions.push_back(snapshot.position());
  EXPECT_THAT(positions, ElementsAre(10, 30, 0, 20));
}

TEST(Checkpoints, AFailedLookupIsNoUse) {
  Checkpoints checkpoints;
  keep(checkpoints, {10, 20, 30, 40});
  EXPECT_EQ(checkpoints.find(15), nullptr);
  EXPECT_EQ(checkpoints.deepest_up_to(5), nullptr);
  keep(checkpoints, {50});
  EXPECT_THAT(checkpoints.positions(), ElementsAre(20, 30, 40, 50));
}

TEST(Checkpoints, NeverEvictsPositionZero) {
  Checkpoints checkpoints;
  keep(checkpoints, {0});
  for (std::uint32_t position = 1; position <= 20; ++position) keep(checkpoints, {position});
  EXPECT_THAT(checkpoints.positions(), ElementsAre(0, 18, 19, 20));
}

TEST(Checkpoints, NeverEvictsTheNewest) {
  Checkpoints checkpoints;
  checkpoints.set_most(0);
  keep(checkpoints, {10});
  EXPECT_THAT(checkpoints.positions(), ElementsAre(10));
  EXPECT_NE(checkpoints.find(10), nullptr);  // a use, so that the order of creation alone does not decide
  keep(checkpoints, {5});
  EXPECT_THAT(checkpoints.positions(), ElementsAre(5));
  keep(checkpoints, {0, 7});
  EXPECT_THAT(checkpoints.positions(), ElementsAre(0, 7));
}

TEST(Checkpoints, ASecondOneAtAPositionReplacesTheFirst) {
  Checkpoints checkpoints;
  keep(checkpoints, {10, 20, 30, 40});
  checkpoints.keep(snapshot_at(10, 3));
  EXPECT_THAT(checkpoints.positions(), ElementsAre(10, 20, 30, 40));
  EXPECT_EQ(checkpoints.find(10)->tokens().size(), 3u);
  keep(checkpoints, {50});  // 10 was made first but is now the second most recently used
  EXPECT_THAT(checkpoints.positions(), ElementsAre(10, 30, 40, 50));
}

TEST(Checkpoints, DropAfterAPosition) {
  Checkpoints checkpoints;
  keep(checkpoints, {10, 20, 30, 40});
  checkpoints.drop_after(45);
  EXPECT_EQ(checkpoints.count(), 4u);
  checkpoints.drop_after(20);
  EXPECT_THAT(checkpoints.positions(), ElementsAre(10, 20));
  checkpoints.drop_after(19);
  EXPECT_THAT(checkpoints.positions(), ElementsAre(10));
  checkpoints.drop_after(0);
  EXPECT_THAT(checkpoints.positions(), IsEmpty());
  keep(checkpoints, {0, 1});
  checkpoints.drop_after(0);
  EXPECT_THAT(checkpoints.positions(), ElementsAre(0));
  checkpoints.clear();
  EXPECT_EQ(checkpoints.count(), 0u);
}

TEST(Checkpoints, OwnTheBytesOfTheirSnapshots) {
  Checkpoints checkpoints;
  checkpoints.keep(snapshot_at(10, 10));
  checkpoints.keep(snapshot_at(20, 5));
  EXPECT_EQ(checkpoints.own_bytes(), 15 * sizeof(TokenId));
}

TEST(Checkpoints, ShareTheSnapshotsTheyKeep) {
  Checkpoints checkpoints;
  const Snapshot snapshot = snapshot_at(10, 10);
  checkpoints.keep(snapshot);
  EXPECT_EQ(&checkpoints.find(10)->contents(), &snapshot.contents());
}

TEST(Checkpoints, StayWithinTheirByteBudget) {
  Checkpoints checkpoints;
  checkpoints.set_budget_bytes(30 * sizeof(TokenId));
  for (const std::uint32_t position : {10u, 20u, 30u}) checkpoints.keep(snapshot_at(position, 10));
  EXPECT_THAT(checkpoints.positions(), ElementsAre(10, 20, 30));
  EXPECT_NE(checkpoints.find(10), nullptr);
  checkpoints.keep(snapshot_at(40, 1));
  EXPECT_THAT(checkpoints.positions(), ElementsAre(10, 30, 40));
  checkpoints.keep(snapshot_at(50, 20));  // evicts several
  EXPECT_THAT(checkpoints.positions(), ElementsAre(40, 50));
  EXPECT_LE(checkpoints.own_bytes(), 30 * sizeof(TokenId));
}

TEST(Checkpoints, ProtectedOnesMayExceedTheByteBudget) {
  Checkpoints checkpoints;
  checkpoints.set_budget_bytes(1);
  keep(checkpoints, {0});
  checkpoints.keep(snapshot_at(10, 10));
  EXPECT_THAT(checkpoints.positions(), ElementsAre(0, 10));
  checkpoints.keep(snapshot_at(20, 10));
  EXPECT_THAT(checkpoints.positions(), ElementsAre(0, 20));
}

TEST(Checkpoints, ASmallerCountAppliesFromTheNextOneOn) {
  Checkpoints checkpoints;
  keep(checkpoints, {10, 20, 30, 40});
  checkpoints.set_most(2);
  EXPECT_EQ(checkpoints.count(), 4u);
  keep(checkpoints, {50});
  EXPECT_THAT(checkpoints.positions(), ElementsAre(40, 50));
  checkpoints.set_most(3);
  keep(checkpoints, {60});
  EXPECT_THAT(checkpoints.positions(), ElementsAre(40, 50, 60));
}

TEST(Checkpoints, ASmallerBudgetAppliesFromTheNextOneOn) {
  Checkpoints checkpoints;
  for (const std::uint32_t position : {10u, 20u, 30u}) checkpoints.keep(snapshot_at(position, 10));
  checkpoints.set_budget_bytes(20 * sizeof(TokenId));
  EXPECT_EQ(checkpoints.count(), 3u);
  checkpoints.keep(snapshot_at(40, 10));
  EXPECT_THAT(checkpoints.positions(), ElementsAre(30, 40));
}

}  // namespace
}  // namespace moeflux
