#include "experts/hint_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <utility>
#include <vector>

namespace moeflux {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

// Four layers of 3, 0, 2 and 3 experts.
constexpr std::array<std::uint32_t, 5> kFirstRecord = {0, 3, 3, 5, 8};

class Hints : public testing::Test {
 protected:
  void set(std::uint32_t layer, const std::vector<std::uint32_t>& experts, float confidence = 1) {
    table.set(LayerId(layer), experts, confidence);
  }
  // Visits all hints that are left.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> visit_all() {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> visited;
    for (auto hint = table.current(); hint; table.advance(), hint = table.current())
      visited.emplace_back(hint->layer.index(), hint->expert);
    return visited;
  }

  HintTable table{kFirstRecord};
};

TEST_F(Hints, AreVisitedInTheOrderInWhichTheLayersRunNext) {
  set(0, {2});
  set(2, {1, 0});
  set(3, {1});
  table.begin_layer(LayerId(2));
  EXPECT_THAT(visit_all(), ElementsAre(Pair(3, 1), Pair(0, 2), Pair(2, 1), Pair(2, 0)));
}

TEST_F(Hints, AreVisitedOnce) {
  set(3, {1, 2});
  table.begin_layer(LayerId(2));
  ASSERT_TRUE(table.current());
  table.advance();
  table.begin_layer(LayerId(1));
  EXPECT_THAT(visit_all(), ElementsAre(Pair(3, 2)));
  table.begin_layer(LayerId(2));
  EXPECT_THAT(visit_all(), IsEmpty());
}

TEST_F(Hints, OfALayerReplaceItsPreviousOnesAndAreVisitedAgain) {
  set(3, {1, 2});
  EXPECT_THAT(visit_all(), ElementsAre(Pair(3, 1), Pair(3, 2)));
  set(3, {2, 0}, 0.25F);
  EXPECT_THAT(table.of(LayerId(3)), ElementsAre(2, 0));
  ASSERT_TRUE(table.current());
  EXPECT_EQ(table.current()->confidence, 0.25F);
  EXPECT_THAT(visit_all(), ElementsAre(Pair(3, 2), Pair(3, 0)));
}

TEST_F(Hints, BeyondTheNumberOfExpertsAreDropped) {
  set(2, {1, 0, 1, 0});
  EXPECT_THAT(table.of(LayerId(2)), ElementsAre(1, 0));
  set(1, {0});
  EXPECT_THAT(table.of(LayerId(1)), IsEmpty());
}

TEST_F(Hints, ThatAreClearedAreNotVisited) {
  set(2, {1});
  set(3, {1});
  table.clear(LayerId(2));
  EXPECT_THAT(table.of(LayerId(2)), IsEmpty());
  EXPECT_THAT(visit_all(), ElementsAre(Pair(3, 1)));
}

TEST_F(Hints, KnowTheDistanceToTheLayerUnderTheCursor) {
  set(0, {1});
  table.begin_layer(LayerId(2));
  ASSERT_TRUE(table.current());
  EXPECT_EQ(table.distance(), 1u);
  EXPECT_EQ(table.distance_to(LayerId(3)), 0u);
  EXPECT_EQ(table.distance_to(LayerId(0)), 1u);
  EXPECT_EQ(table.distance_to(LayerId(2)), 3u);
  EXPECT_EQ(table.confidence(), 1);
}

}  // namespace
}  // namespace moeflux
