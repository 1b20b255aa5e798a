#include "text/unicode/utf8.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace moeflux {
namespace {

std::string lossy(std::string_view bytes) {
  std::string text;
  append_lossy(text, bytes);
  return text;
}

TEST(Utf8, RecognizesValidText) {
  EXPECT_TRUE(is_valid_utf8("aß日😀"));
  EXPECT_TRUE(is_valid_utf8("\xEF\xBF\xBD"));  // the replacement character itself
  for (const char* bad :
       {"\x80", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF0\x9F\x98", "a\xFF"})
    EXPECT_FALSE(is_valid_utf8(bad));
}

TEST(Utf8, CountsAndFindsCodePoints) {
  EXPECT_EQ(count_code_points("aß日😀"), 4u);
  EXPECT_EQ(byte_of_code_point("aß日😀", 2), 3u);
  EXPECT_EQ(byte_of_code_point("aß日😀", 9), 10u);
  EXPECT_EQ(previous_code_point("aß日", 6), 3u);
}

// Invalid bytes never cause a read outside of the text.
TEST(Utf8, ReadsInvalidBytesOneByOneWithinTheText) {
  const std::string bytes = "a\xF0\x9F\x98";  // a cut character at the end of its buffer
  const std::vector<char> exact(bytes.begin(), bytes.end());
  const std::string_view text(exact.data(), exact.size());
  for (std::size_t at = 1; at < text.size(); ++at) {
    EXPECT_EQ(code_point_at(text, at).value, char32_t{0xFFFD}) << at;
    EXPECT_EQ(code_point_at(text, at).bytes, 1u) << at;
  }
  EXPECT_EQ(previous_code_point(text, 4), 1u);
  EXPECT_EQ(previous_code_point("\x80\x80\x80\x80\x80\x80", 6), 2u);
  EXPECT_EQ(previous_code_point("\x80\x80", 2), 0u);
}

TEST(Utf8, KeepsValidText) {
  const std::string text = "a\u00e9\u65e5\U0001F44D\U0010FFFF\u0000b";
  EXPECT_EQ(lossy(text), text);
  EXPECT_EQ(valid_utf8_prefix(text), text.size());
}

// The examples of the Unicode Standard, tables 3-8 to 3-11.
TEST(Utf8, ReplacesEachMaximalSubpartOnce) {
  EXPECT_EQ(lossy("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd");
  EXPECT_EQ(lossy("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(lossy("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(lossy("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), "\uFFFD\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(lossy("\xF4\x90\x80\x80\xF5\xFF"), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
}

TEST(Utf8, WritesAndReadsEveryScalarValue) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, code);
    const Utf8Step step = utf8_step(text);
    ASSERT_EQ(step.kind, Utf8Step::Kind::character) << static_cast<std::uint32_t>(code);
    ASSERT_EQ(step.value, code);
    ASSERT_EQ(step.bytes, text.size());
    ASSERT_EQ(code_point_before(text, text.size()).value, code);
    ASSERT_EQ(valid_utf8_prefix(text), text.size());
    for (std::size_t cut = 1; cut < text.size(); ++cut)
      ASSERT_EQ(utf8_step(text.substr(0, cut)).kind, Utf8Step::Kind::incomplete);
  }
}

}  // namespace
}  // namespace moeflux
