#include "text/template/jinja/builtins/characters.h"

#include <gtest/gtest.h>

namespace moeflux::jinja {
namespace {

TEST(Characters, ChangesCaseToSeveralCharacters) {
  EXPECT_EQ(upper_case("straße ﬃ ŉ"), "STRASSE FFI ʼN");
  EXPECT_EQ(lower_case("İ"), "i̇");
}

TEST(Characters, LowersASigmaAtAWordEndToFinalSigma) {
  EXPECT_EQ(lower_case("ΟΔΟΣ ΣΑΣ Σ"), "οδος σας σ");
  EXPECT_EQ(lower_case("ΑΣ'Α"), "ασ'α");  // an apostrophe does not end a word
}

TEST(Characters, ClassifiesSpaceAsPythonDoes) {
  for (const char32_t value : {U' ', U'\t', char32_t{0x1C}, char32_t{0x85}, char32_t{0xA0}, char32_t{0x3000}})
    EXPECT_TRUE(is_space(value));
  EXPECT_FALSE(is_space(0x200B));
  EXPECT_TRUE(is_line_end(0x2028));
  EXPECT_FALSE(is_line_end(U' '));
}

}  // namespace
}  // namespace moeflux::jinja
