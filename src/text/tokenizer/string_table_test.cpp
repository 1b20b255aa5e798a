#include "text/tokenizer/string_table.h"

#include <gtest/gtest.h>

namespace moeflux {
namespace {

TEST(StringTable, NumbersTextsInOrder) {
  StringTable table(7);
  EXPECT_EQ(table.find(""), std::nullopt);
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(table.add(std::to_string(i)));
  EXPECT_TRUE(table.add(""));
  EXPECT_FALSE(table.add("500"));
  ASSERT_EQ(table.size(), 1001u);
  for (std::uint32_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(table.find(std::to_string(i)), i);
    ASSERT_EQ(table[i], std::to_string(i));
  }
  EXPECT_EQ(table.find(""), 1000u);
  EXPECT_EQ(table.find("1000"), std::nullopt);
}

}  // namespace
}  // namespace moeflux
