#include "base/printable.h"

#include <gtest/gtest.h>

namespace moeflux {
namespace {

TEST(Printable, KeepsPlainText) {
  EXPECT_EQ(printable(""), "");
  EXPECT_EQ(printable("model.layers.3.mlp.gate.weight"), "model.layers.3.mlp.gate.weight");
  EXPECT_EQ(printable("é東"), "é東");
}

TEST(Printable, ReplacesControlCharacters) { EXPECT_EQ(printable("\x1b[31m\n\x7f"), "?[31m??"); }

TEST(Printable, CutsLongTextAndMarksTheCut) {
  EXPECT_EQ(printable("abcdef", 6), "abcdef");
  EXPECT_EQ(printable("abcdef", 5), "abcde...");
  EXPECT_EQ(printable(std::string(10'000, 'x')).size(), 120 + 3);
}

TEST(Printable, DoesNotCutACharacterInHalf) {
  EXPECT_EQ(printable("aé東", 2), "a...");
  EXPECT_EQ(printable("aé東", 3), "aé...");
  EXPECT_EQ(printable("aé東", 5), "aé...");
  EXPECT_EQ(printable("aé東", 6), "aé東");
  EXPECT_EQ(printable("東", 2), "...");
}

}  // namespace
}  // namespace moeflux
