#include "text/reply/stop_strings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/testing/expect_contract.h"
#include "base/testing/states.h"

namespace moeflux {
namespace {

using test::States;

struct Outcome {
  std::string text;
  std::optional<std::size_t> which;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// The reference: the contract of the header, applied to the whole text at once.
Outcome found_in(const std::string& text, const std::vector<std::string>& stops) {
  for (std::size_t begin = 0; begin < text.size(); ++begin) {
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < stops.size(); ++i) {
      if (text.compare(begin, stops[i].size(), stops[i]) != 0) continue;
      if (!best || stops[i].size() < stops[*best].size()) best = i;
    }
    if (best) return {text.substr(0, begin), best};
  }
  return {text, std::nullopt};
}

Outcome streamed(const std::vector<std::string>& pieces, const std::vector<std::string>& stops) {
  StopStrings matcher(stops);
  Outcome outcome;
  for (const std::string& piece : pieces) {
    const StopStrings::Pushed pushed = matcher.push(piece);
    outcome.text += pushed.text;
    if (pushed.stopped()) outcome.which = pushed.which;
  }
  const StopStrings::Pushed rest = matcher.finish();
  outcome.text += rest.text;
  if (rest.stopped()) outcome.which = rest.which;
  return outcome;
}

std::vector<std::string> single_bytes(std::string_view text) {
  std::vector<std::string> pieces;
  for (const char c : text) pieces.emplace_back(1, c);
  return pieces;
}

TEST(StopStrings, HoldsBackAPossibleStopString) {
  const std::vector<std::string> stops{"STOP"};
  StopStrings matcher(stops);
  EXPECT_EQ(matcher.push("one S").text, "one ");
  EXPECT_EQ(matcher.push("T").text, "");
  EXPECT_EQ(matcher.push("ART ST").text, "START ");
  const auto pushed = matcher.push("OP and more");
  EXPECT_EQ(pushed.text, "");
  EXPECT_EQ(pushed.which, 0u);
  EXPECT_EQ(matcher.push("later").text, "");
  EXPECT_EQ(matcher.finish().text, "");
}

TEST(StopStrings, ReleasesHeldTextAtTheEnd) {
  const std::vector<std::string> stops{"END"};
  StopStrings matcher(stops);
  EXPECT_EQ(matcher.push("the EN").text, "the ");
  const auto rest = matcher.finish();
  EXPECT_EQ(rest.text, "EN");
  EXPECT_FALSE(rest.stopped());
}

TEST(StopStrings, TheEarliestBeginningWins) {
  // "xabcy" begins before "abc" but completes after it, so only the next byte decides.
  const std::vector<std::string> stops{"abc", "xabcy"};
  EXPECT_EQ(streamed(single_bytes("-xabcy-"), stops), (Outcome{"-", 1}));
  EXPECT_EQ(streamed(single_bytes("-xabcz-"), stops), (Outcome{"-x", 0}));
  EXPECT_EQ(streamed(single_bytes("-xabc"), stops), (Outcome{"-x", 0}));
}

TEST(StopStrings, TheShorterOfTwoThatBeginTogetherStopsAtOnce) {
  const std::vector<std::string> stops{"\n\n", "\n"};
  StopStrings matcher(stops);
  const auto pushed = matcher.push("line\n");
  EXPECT_EQ(pushed.text, "line");
  EXPECT_EQ(pushed.which, 1u);
}

TEST(StopStrings, TheFirstOfEqualStringsIsFound) {
  const std::vector<std::string> stops{"no", "yes", "yes"};
  EXPECT_EQ(streamed({"oh yes"}, stops), (Outcome{"oh ", 1}));
}

TEST(StopStrings, AcceptsBytesOfAnyValue) {
  const std::vector<std::string> stops{std::string("\0\xff", 2), "é"};
  EXPECT_EQ(streamed(single_bytes(std::string("a\0b\0\xff", 5)), stops),
            (Outcome{std::string("a\0b", 3), 0}));
  EXPECT_EQ(streamed(single_bytes("caf\xc3\xa8 \xc3\xa9!"), stops), (Outcome{"caf\xc3\xa8 ", 1}));
}

TEST(StopStrings, HoldsAtMostOneByteLessThanTheLongestString) {
  std::vector<std::string> stops(1, std::string(255, 'a'));
  stops.front() += 'b';
  StopStrings matcher(stops);
  std::size_t pushed = 0;
  std::size_t shown = 0;
  for (int i = 0; i < 5000; ++i) {
    ++pushed;
    shown += matcher.push("a").text.size();
    ASSERT_LE(pushed - shown, StopStrings::kMaxBytes - 1);
  }
  EXPECT_TRUE(matcher.push("b").stopped());
}

TEST(StopStrings, TheLargestAllowedSetIsFound) {
  std::vector<std::string> stops;
  for (std::size_t i = 0; i < StopStrings::kMaxStrings; ++i)
    stops.push_back(static_cast<char>(1 + i) +
                    std::string(StopStrings::kMaxBytes - 1, static_cast<char>(100 + i)));
  ASSERT_TRUE(StopStrings::check(stops));
  for (std::size_t i = 0; i < stops.size(); ++i)
    EXPECT_EQ(streamed({"begin ", stops[i].substr(0, 100), stops[i].substr(100)}, stops),
              (Outcome{"begin ", i}));
}

TEST(StopStrings, RejectsListsOutOfBounds) {
  EXPECT_THAT(StopStrings::check({}), States("stop strings", "1 to 64", "found 0"));
  EXPECT_THAT(StopStrings::check(std::vector<std::string>(65, "x")), States("1 to 64", 65));
  EXPECT_THAT(StopStrings::check(std::vector<std::string>{"a", ""}),
              States("stop string 1", "1 to 256 bytes", "found 0"));
  const Status long_one = StopStrings::check(std::vector<std::string>(1, std::string(257, 'x')));
  EXPECT_THAT(long_one, States("stop string 0", "1 to 256 bytes", 257));
  EXPECT_EQ(long_one.error().code(), ErrorCode::invalid_argument);
  EXPECT_CONTRACT(StopStrings(std::vector<std::string>{}), "the stop strings were checked");
}

TEST(StopStrings, NoTextFollowsTheEnd) {
  const std::vector<std::string> stops{"x"};
  StopStrings matcher(stops);
  (void)matcher.finish();
  EXPECT_CONTRACT((void)matcher.push("a"), "no text follows the end of the text");
}

RC_GTEST_PROP(StopStrings, AgreesWithAPlainSearchHoweverTheTextIsCut, ()) {
  const auto letter = rc::gen::element('a', 'b', 'c');
  const auto text = *rc::gen::container<std::string>(letter);
  const auto stops = *rc::gen::resize(6, rc::gen::nonEmpty(rc::gen::container<std::vector<std::string>>(
                                             rc::gen::nonEmpty(rc::gen::container<std::string>(letter)))));
  std::vector<std::string> pieces;
  for (std::size_t at = 0; at < text.size();) {
    const auto size = *rc::gen::inRange<std::size_t>(1, 6);  // at least 1 even at size 0, so the loop ends
    pieces.push_back(text.substr(at, size));
    at += size;
  }
  const Outcome expected = found_in(text, stops);
  RC_ASSERT(streamed(pieces, stops) == expected);
  RC_ASSERT(streamed(single_bytes(text), stops) == expected);
  RC_ASSERT(streamed({text}, stops) == expected);
}

}  // namespace
}  // namespace moeflux
