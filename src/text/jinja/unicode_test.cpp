#include "text/jinja/unicode.h"

#include "text/utf8.h"

#include <gtest/gtest.h>

namespace moeflux::jinja {
namespace {

TEST(Unicode, KnowsValidUtf8) {
  EXPECT_TRUE(is_valid_utf8("aß日😀"));
  EXPECT_TRUE(is_valid_utf8("\xEF\xBF\xBD"));  // the replacement character itself
  for (const char* bad :
       {"\x80", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF0\x9F\x98", "a\xFF"})
    EXPECT_FALSE(is_valid_utf8(bad));
}

TEST(Unicode, CountsAndFindsCodePoints) {
  EXPECT_EQ(count_code_points("aß日😀"), 4u);
  EXPECT_EQ(byte_of_code_point("aß日😀", 2), 3u);
  EXPECT_EQ(byte_of_code_point("aß日😀", 9), 10u);
  EXPECT_EQ(previous_code_point("aß日", 6), 3u);
}

TEST(Unicode, RoundTripsEveryLengthOfUtf8) {
  for (const char32_t value : {U'a', U'ß', U'日', U'😀', char32_t{0x10FFFF}}) {
    std::string text;
    append_utf8(text, value);
    EXPECT_EQ(code_point_at(text, 0).value, value);
    EXPECT_EQ(code_point_at(text, 0).bytes, text.size());
  }
}

TEST(Unicode, HasCasesThatAreLongerThanTheirCharacter) {
  EXPECT_EQ(upper_case("straße ﬃ ŉ"), "STRASSE FFI ʼN");
  EXPECT_EQ(lower_case("İ"), "i̇");
}

TEST(Unicode, EndsGreekWordsInFinalSigma) {
  EXPECT_EQ(lower_case("ΟΔΟΣ ΣΑΣ Σ"), "οδος σας σ");
  EXPECT_EQ(lower_case("ΑΣ'Α"), "ασ'α");  // an apostrophe does not end a word
}

TEST(Unicode, KnowsWhatPythonStrips) {
  for (const char32_t value : {U' ', U'\t', char32_t{0x1C}, char32_t{0x85}, char32_t{0xA0}, char32_t{0x3000}})
    EXPECT_TRUE(is_space(value));
  EXPECT_FALSE(is_space(0x200B));
  EXPECT_TRUE(is_line_end(0x2028));
  EXPECT_FALSE(is_line_end(U' '));
}

}  // namespace
}  // namespace moeflux::jinja
