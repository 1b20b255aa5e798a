#include "text/template/jinja/syntax/lexer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/states.h"
#include "text/template/jinja/testing/render.h"

namespace moeflux::jinja {
namespace {

using test::States;
using testing::text_of;

std::string refusal(std::string_view source) {
  const auto tokens = tokenize(source, "t");
  return tokens ? "" : tokens.error().message();
}

TEST(Lexer, RemovesTheNewlineAfterABlockButNotAfterAPrint) {
  EXPECT_EQ(text_of("{% if true %}\na\n{% endif %}\nb"), "a\nb");
  EXPECT_EQ(text_of("{{ 1 }}\nb"), "1\nb");
  EXPECT_EQ(text_of("{# c #}\nb"), "b");
}

TEST(Lexer, RemovesTheSpacesBeforeABlockThatBeginsItsLine) {
  EXPECT_EQ(text_of("a\n  {% if true %}b{% endif %}"), "a\nb");
  EXPECT_EQ(text_of("a  {% if true %}b{% endif %}"), "a  b");
  EXPECT_EQ(text_of("a\n  {{ 1 }}"), "a\n  1");
}

// lstrip_blocks removes spaces only if nothing precedes them on their line, not even a tag.
TEST(Lexer, KeepsTheSpacesAfterATagOfTheSameLine) {
  EXPECT_EQ(text_of("{% if true %}  {% if true %}a{% endif %}{% endif %}"), "  a");
  EXPECT_EQ(text_of("{{ 1 }}  {% if true %}a{% endif %}"), "1  a");
  EXPECT_EQ(text_of("{# c #}  {# d #}a"), "  a");
  EXPECT_EQ(text_of("{% raw %}x{% endraw %}  {% if true %}a{% endif %}"), "x  a");
  EXPECT_EQ(text_of("{% if true %}\n  {% if true %}a{% endif %}{% endif %}"), "a") << "a line of its own";
}

TEST(Lexer, AppliesWhitespaceSigns) {
  EXPECT_EQ(text_of("a \n {%- if true -%} \n b {%- endif %} c"), "ab c");
  EXPECT_EQ(text_of("  {%+ if true +%}\nb{% endif %}"), "  \nb");
  EXPECT_EQ(text_of("a \n {{- 1 -}} \n b"), "a1b");
  EXPECT_EQ(text_of("a {#- c -#} b"), "ab");
}

TEST(Lexer, KeepsRawText) {
  EXPECT_EQ(text_of("{% raw %}{{ x }} {% if %}{# #}{% endraw %}"), "{{ x }} {% if %}{# #}");
  EXPECT_EQ(text_of("{%- raw -%}  a {%- endraw -%}  b"), "ab");
}

TEST(Lexer, DropsOneFinalNewlineAndReadsAllLineEnds) {
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

TEST(Lexer, NamesTheLineOfAnError) {
  EXPECT_THAT(refusal("a\n{{ 'x }}"), States("t:2:", "string", "closing quote"));
  EXPECT_THAT(refusal("\n\n{# x"), States("t:3:", "comment", "'#}'"));
  EXPECT_THAT(refusal("{% raw %}\n"), States("t:1:", "{% raw %}", "{% endraw %}"));
  EXPECT_THAT(refusal("\n{{ (1] }}"), States("t:2:", "unexpected ']'", "expected ')'"));
  EXPECT_THAT(refusal("{{ 1 ? 2 }}"), States("t:1:", "unexpected", "'?'"));
  EXPECT_THAT(refusal("{{ 1"), States("t:1:", "end of the template", "'}}'"));
  EXPECT_THAT(refusal(R"({{ '\xg' }})"), States("t:1:", "escape", "2 hexadecimal digits"));
  EXPECT_THAT(refusal(R"({{ '\ud800' }})"), States("t:1:", "escape", "U+D800"));
}

}  // namespace
}  // namespace moeflux::jinja
