#include "text/jinja/lexer.h"

#include <gtest/gtest.h>

#include "text/jinja/testing/render.h"

namespace moeflux::jinja {
namespace {

using testing::text_of;

std::string refusal(std::string_view source) {
  const auto tokens = tokenize(source, "t");
  return tokens ? "" : tokens.error().message();
}

TEST(Lexer, TakesTheNewlineBehindABlockButNotBehindAPrint) {
  EXPECT_EQ(text_of("{% if true %}\na\n{% endif %}\nb"), "a\nb");
  EXPECT_EQ(text_of("{{ 1 }}\nb"), "1\nb");
  EXPECT_EQ(text_of("{# c #}\nb"), "b");
}

TEST(Lexer, TakesTheSpacesInFrontOfABlockThatBeginsItsLine) {
  EXPECT_EQ(text_of("a\n  {% if true %}b{% endif %}"), "a\nb");
  EXPECT_EQ(text_of("a  {% if true %}b{% endif %}"), "a  b");
  EXPECT_EQ(text_of("a\n  {{ 1 }}"), "a\n  1");
}

TEST(Lexer, ObeysSigns) {
  EXPECT_EQ(text_of("a \n {%- if true -%} \n b {%- endif %} c"), "ab c");
  EXPECT_EQ(text_of("  {%+ if true +%}\nb{% endif %}"), "  \nb");
  EXPECT_EQ(text_of("a \n {{- 1 -}} \n b"), "a1b");
  EXPECT_EQ(text_of("a {#- c -#} b"), "ab");
}

TEST(Lexer, LeavesRawTextAlone) {
  EXPECT_EQ(text_of("{% raw %}{{ x }} {% if %}{# #}{% endraw %}"), "{{ x }} {% if %}{# #}");
  EXPECT_EQ(text_of("{%- raw -%}  a {%- endraw -%}  b"), "ab");
}

TEST(Lexer, DropsOneNewlineAtTheEndAndKnowsAllKinds) {
  EXPECT_EQ(text_of("a\n"), "a");
  EXPECT_EQ(text_of("a\n\n"), "a\n");
  EXPECT_EQ(text_of("a\r\nb\rc"), "a\nb\nc");
}

TEST(Lexer, ReadsEscapesAsPythonDoes) {
  EXPECT_EQ(text_of(R"({{ '\n\t\\\'\x41\u00e9\U0001F600\101\q' }})"),
            "\n\t\\'A\xC3\xA9\xF0\x9F\x98\x80"
            "A\\q");
  EXPECT_EQ(text_of("{{ 'a' \"b\" 'c' }}"), "abc");
}

TEST(Lexer, ReadsNumbers) {
  EXPECT_EQ(text_of("{{ 1_000 + 0x1F + 0b11 + 0o17 }} {{ 1.5e3 }} {{ 1e5 }}"), "1049 1500.0 100000.0");
}

TEST(Lexer, PointsAtTheLineOfWhatItRefuses) {
  EXPECT_EQ(refusal("a\n{{ 'x }}"), "t:2: string without a closing quote");
  EXPECT_EQ(refusal("\n\n{# x"), "t:3: comment without an end");
  EXPECT_EQ(refusal("{% raw %}\n"), "t:1: {% raw %} without {% endraw %}");
  EXPECT_EQ(refusal("\n{{ (1] }}"), "t:2: unexpected ']', expected ')'");
  EXPECT_EQ(refusal("{{ 1 ? 2 }}"), "t:1: unexpected character '?'");
  EXPECT_EQ(refusal("{{ 1"), "t:1: unexpected end of the template, expected '}}'");
  EXPECT_EQ(refusal(R"({{ '\xg' }})"), "t:1: escape in a string without 2 hexadecimal digits");
  EXPECT_EQ(refusal(R"({{ '\ud800' }})"), "t:1: escape U+D800 in a string is not a character");
}

}  // namespace
}  // namespace moeflux::jinja
