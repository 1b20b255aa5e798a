#include "quant/delta_state.h"

#include <gtest/gtest.h>

#include <vector>

namespace moeflux {
namespace {

TEST(DeltaState, IsStripsOfSixteenChannelsWithOneRowPerKey) {
  constexpr DeltaStateShape kShape{.key_dim = 3, .value_dim = 40};
  EXPECT_EQ(kShape.place(0, 0), 0u);
  EXPECT_EQ(kShape.place(0, 15), 15u);
  EXPECT_EQ(kShape.place(1, 0), 16u);
  EXPECT_EQ(kShape.place(0, 16), 3u * 16);
  EXPECT_EQ(kShape.place(2, 31), 2u * 3 * 16 - 1);
  // The last strip has eight channels.
  EXPECT_EQ(kShape.place(0, 32), 2u * 3 * 16);
  EXPECT_EQ(kShape.place(1, 33), 2u * 3 * 16 + 8 + 1);
  EXPECT_EQ(kShape.place(2, 39), kShape.size() - 1);
}

TEST(DeltaState, UsesEveryIndexExactlyOnce) {
  for (std::size_t key_dim = 1; key_dim <= 5; ++key_dim)
    for (std::size_t value_dim = 1; value_dim <= 70; ++value_dim) {
      const DeltaStateShape shape{key_dim, value_dim};
      std::vector<int> taken(shape.size());
      for (std::size_t key = 0; key < key_dim; ++key)
        for (std::size_t value = 0; value < value_dim; ++value) {
          ASSERT_LT(shape.place(key, value), shape.size());
          ++taken[shape.place(key, value)];
        }
      EXPECT_EQ(taken, std::vector<int>(shape.size(), 1)) << key_dim << " and " << value_dim;
    }
}

}  // namespace
}  // namespace moeflux
