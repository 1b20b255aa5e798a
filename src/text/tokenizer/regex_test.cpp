#include "text/tokenizer/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/states.h"
#include "text/tokenizer/regex_rewrite.h"

namespace moeflux {
namespace {

using test::States;

Regex compiled(std::string_view pattern) {
  Result<Regex> regex = Regex::compile(*rewrite_regex(pattern, "p"), "p");
  if (!regex) throw std::runtime_error(regex.error().message());
  return *std::move(regex);
}

std::vector<TextRange> matches_of(std::string_view pattern, std::string_view text) {
  const Regex regex = compiled(pattern);
  RegexScratch scratch;
  Matches matches(regex, text, scratch);
  std::vector<TextRange> all;
  while (true) {
    const auto match = matches.next();
    if (!match) throw std::runtime_error(match.error().message());
    if (!*match) return all;
    all.push_back(**match);
  }
}

TEST(Regex, FindsConsecutiveMatches) {
  EXPECT_EQ(matches_of("a+", "aabaa"), (std::vector<TextRange>{{0, 2}, {3, 5}}));
  EXPECT_EQ(matches_of("a", ""), std::vector<TextRange>{});
}

TEST(Regex, SkipsAnEmptyMatchAtTheEndOfTheLastOne) {
  EXPECT_EQ(matches_of("a*", "aab"), (std::vector<TextRange>{{0, 2}, {3, 3}}));
  EXPECT_EQ(matches_of("", "\u65e5x"), (std::vector<TextRange>{{0, 0}, {3, 3}, {4, 4}}));
}

TEST(Regex, NamesAPatternThatDoesNotCompile) {
  for (const std::string_view pattern : {"(", ")", "*", "(?<=a*)b", "[\\p{sc:nobody}]", "a{70000}"}) {
    const Result<Regex> regex = Regex::compile(pattern, "file: pre_tokenizer");
    ASSERT_FALSE(regex.has_value()) << pattern;
    EXPECT_EQ(regex.error().code(), ErrorCode::unsupported);
    EXPECT_THAT(regex, States("file: pre_tokenizer", "pattern"));
  }
  EXPECT_FALSE(Regex::compile(std::string(500, '(') + std::string(500, ')'), "p").has_value());
  EXPECT_FALSE(Regex::compile(std::string(1 << 20, 'a'), "p").has_value());
}

TEST(Regex, FailsOnAPatternThatBacktracksForever) {
  const Regex regex = compiled("(?:a+)+[bc]");
  RegexScratch scratch;
  const auto found = regex.find(std::string(50, 'a'), 0, scratch);
  ASSERT_FALSE(found.has_value());
  EXPECT_THAT(found, States("match limit"));
}

// Each repetition of a group adds a backtracking point, more than the stack of machine code can hold.
TEST(Regex, MatchesALongRunOfAGroup) {
  const std::string text(100'000, 'b');
  EXPECT_EQ(matches_of("[a-z&&[^aeiou]]+", text), (std::vector<TextRange>{{0, text.size()}}));
  EXPECT_EQ(matches_of("(?:b|c)+", text), (std::vector<TextRange>{{0, text.size()}}));
}

}  // namespace
}  // namespace moeflux
