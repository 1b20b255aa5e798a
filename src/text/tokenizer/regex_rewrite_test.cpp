#include "text/tokenizer/regex_rewrite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/states.h"
#include "text/tokenizer/regex.h"

namespace moeflux {
namespace {

using test::States;
using testing::HasSubstr;

std::string rewritten(std::string_view pattern) {
  const Result<std::string> result = rewrite_regex(pattern, "p");
  return result ? *result : result.error().message();
}

TEST(RegexRewrite, SpellsOutWhatPcre2ReadsDifferently) {
  EXPECT_EQ(rewritten("\\h"), "[0-9A-Fa-f]");
  EXPECT_EQ(rewritten("\\d\\D"), "[\\p{Nd}][^\\p{Nd}]");
  EXPECT_EQ(rewritten("\\v"), "\\x{b}");
  EXPECT_EQ(rewritten("(?m:.)"), "(?s:.)");
  EXPECT_EQ(rewritten("\\p{Han}\\p{^Letter}\\P{lu}"), "[\\p{sc:han}][\\P{L}][\\P{Lu}]");
  EXPECT_EQ(rewritten("a{,3}"), "a{0,3}");
  EXPECT_THAT(rewritten("\\s"), HasSubstr("\\x{3000}"));
  EXPECT_THAT(rewritten("[^\\s]"), HasSubstr("[^\\x{9}-\\x{d}"));
}

TEST(RegexRewrite, TurnsSetsIntoLookaheads) {
  EXPECT_EQ(rewritten("[a-z&&[^aeiou]]"), "(?:(?=[^aeiou])[a-z])");
  EXPECT_EQ(rewritten("[^a-z&&[^aeiou]]"), "(?:(?!(?=[^aeiou])[a-z])(?s:.))");
  EXPECT_EQ(rewritten("[a[bc]]"), "(?:(?:[a]|[bc]))");
  EXPECT_EQ(rewritten("[\\S]"), rewritten("[\\S]"));
}

TEST(RegexRewrite, RejectsWhatPcre2CannotExpress) {
  for (const std::string_view pattern :
       {"(a)\\1", "\\k<a>", "\\g<0>", "\\X",     "\\R",    "\\K",    "\\Qa\\E",     "(*UTF)a",
        "(?R)",   "(?1)",   "(?C)a",  "(?~a)",   "a(?i)b", "(?x:a)", "[[:alpha:]]", "a{2,3}+",
        "a{2}?",  "\\xE9",  "\\pL",   "[a-\\d]", "[a&&]",  "[&&a]",  "(?<n>a)",     "\\p{a/b}"}) {
    const Result<std::string> result = rewrite_regex(pattern, "file: pre_tokenizer");
    ASSERT_FALSE(result.has_value()) << pattern << " became " << *result;
    EXPECT_EQ(result.error().code(), ErrorCode::unsupported) << pattern;
    EXPECT_THAT(result, States("file: pre_tokenizer", "pattern"));
  }
}

TEST(RegexRewrite, RejectsInvalidPatterns) {
  for (const std::string_view pattern :
       {"\\", "[a", "[", "[^", "[a-", "[a\\", "\\x{", "\\x{110000}", "\\x{D800}", "\\u12", "\\x4", "\\p{L",
        "(?#", "[z-a]", "\\x{}", "\\uXYZW"}) {
    const Result<std::string> result = rewrite_regex(pattern, "p");
    ASSERT_FALSE(result.has_value()) << pattern << " became " << *result;
    EXPECT_EQ(result.error().code(), ErrorCode::corrupt_data) << pattern;
  }
  const std::string deep(1000, '[');
  EXPECT_FALSE(rewrite_regex(deep, "p").has_value());
}

TEST(RegexRewrite, WritesALiteralThatMatchesItself) {
  const std::string text = ".*+?()[]{}|^$\\ -#&~\n\u00e9\U0001F44D";
  const Result<Regex> regex = Regex::compile(regex_of_literal(text), "p");
  ASSERT_TRUE(regex.has_value());
  RegexScratch scratch;
  const auto found = regex->find("x" + text + "y", 0, scratch);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(*found, (TextRange{1, 1 + text.size()}));
}

}  // namespace
}  // namespace moeflux
