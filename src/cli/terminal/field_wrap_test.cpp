#include "cli/terminal/field_wrap.h"

#include <gtest/gtest.h>

namespace moeflux::cli {
namespace {

TEST(FieldWrap, LeavesALineThatFits) {
  EXPECT_EQ(break_between_fields("one · two three · four", 22), "one · two three · four");
  EXPECT_EQ(break_between_fields("", 5), "");
  EXPECT_EQ(break_between_fields("no fields but many words", 5), "no fields but many words");
}

TEST(FieldWrap, BreaksBeforeTheSeparatorOfTheFieldThatDoesNotFit) {
  EXPECT_EQ(break_between_fields("one · two three · four", 21), "one · two three\n· four");
  EXPECT_EQ(break_between_fields("one · two three · four", 14), "one\n· two three\n· four");
  EXPECT_EQ(break_between_fields("one · two · six", 9), "one · two\n· six");
  EXPECT_EQ(break_between_fields("one · two · six · ten", 11), "one · two\n· six · ten");
}

TEST(FieldWrap, LeavesAFieldWiderThanTheRowWhole) {
  EXPECT_EQ(break_between_fields("one · two three four · five", 8), "one\n· two three four\n· five");
}

TEST(FieldWrap, CountsEveryLineAnewAndWideCharactersTwice) {
  EXPECT_EQ(break_between_fields("one · two\nsix · ten\n", 9), "one · two\nsix · ten\n");
  EXPECT_EQ(break_between_fields("日本 · 日本", 11), "日本 · 日本");
  EXPECT_EQ(break_between_fields("日本 · 日本", 10), "日本\n· 日本");
}

}  // namespace
}  // namespace moeflux::cli
