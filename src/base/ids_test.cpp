#include "base/ids.h"

#include <gtest/gtest.h>

#include <type_traits>
#include <unordered_set>

namespace moeflux {
namespace {

static_assert(!std::is_convertible_v<LayerId, ExpertId>);
static_assert(!std::is_convertible_v<std::uint32_t, LayerId>);
static_assert(!std::is_convertible_v<LayerId, std::uint32_t>);

TEST(Id, ComparesByIndex) {
  EXPECT_EQ(LayerId(3), LayerId(3));
  EXPECT_LT(LayerId(3), LayerId(4));
  EXPECT_EQ(TokenId(248'045).index(), 248'045);
}

TEST(ExpertKey, OrdersByLayerThenExpert) {
  const ExpertKey key{LayerId(1), ExpertId(7)};
  EXPECT_EQ(key, (ExpertKey{LayerId(1), ExpertId(7)}));
  EXPECT_LT(key, (ExpertKey{LayerId(1), ExpertId(8)}));
  EXPECT_LT(key, (ExpertKey{LayerId(2), ExpertId(0)}));
}

TEST(ExpertKey, HasDistinctHashesForAllExpertsOfAModel) {
  std::unordered_set<std::size_t> hashes;
  for (std::uint32_t layer = 0; layer < 60; ++layer) {
    for (std::uint32_t expert = 0; expert < 512; ++expert) {
      hashes.insert(std::hash<ExpertKey>{}({LayerId(layer), ExpertId(expert)}));
    }
  }
  EXPECT_EQ(hashes.size(), 60 * 512);
}

}  // namespace
}  // namespace moeflux
