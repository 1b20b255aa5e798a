#include "text/unicode/utf8_stream.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "text/unicode/utf8.h"

namespace moeflux {
namespace {

TEST(Utf8Stream, HoldsBackTheBeginningOfACharacter) {
  Utf8Stream stream;
  std::string text;
  const std::string_view thumb = "\xF0\x9F\x91\x8D";
  for (std::size_t i = 0; i < 3; ++i) {
    stream.push(thumb.substr(i, 1), text);
    EXPECT_EQ(text, "");
    EXPECT_EQ(stream.held_back(), i + 1);
  }
  stream.push(thumb.substr(3), text);
  EXPECT_EQ(text, thumb);
  EXPECT_EQ(stream.held_back(), 0u);
}

TEST(Utf8Stream, ReplacesACharacterThatNeverEnds) {
  Utf8Stream stream;
  std::string text;
  stream.push("a\xE2\x82", text);
  stream.push("b\xE2", text);
  EXPECT_EQ(text, "a\uFFFDb");
  stream.finish(text);
  EXPECT_EQ(text, "a\uFFFDb\uFFFD");
  stream.push("\x82", text);  // as new
  EXPECT_EQ(text, "a\uFFFDb\uFFFD\uFFFD");
}

// Random bytes, many of them parts of characters.
rc::Gen<std::string> bytes() {
  return rc::gen::container<std::string>(
      rc::gen::map(rc::gen::oneOf(rc::gen::inRange(0, 256),
                                  rc::gen::elementOf(std::vector<int>{'a', 0x80, 0x9F, 0xA0, 0xBF, 0xC2, 0xE0,
                                                                      0xE2, 0xED, 0xF0, 0xF4})),
                   [](int byte) { return static_cast<char>(byte); }));
}

RC_GTEST_PROP(Utf8Stream, GivesTheSameTextForEveryCutOfTheBytes, ()) {
  const std::string all = *bytes();
  std::string whole, pieces;
  append_lossy(whole, all);
  Utf8Stream stream;
  for (std::size_t at = 0; at < all.size();) {
    const auto length = *rc::gen::inRange<std::size_t>(1, 7);  // never 0, or small cases would not end
    stream.push({}, pieces);
    stream.push(std::string_view(all).substr(at, length), pieces);
    RC_ASSERT(stream.held_back() <= 3);
    RC_ASSERT(is_valid_utf8(pieces));
    RC_ASSERT(whole.starts_with(pieces));
    at += length;
  }
  stream.finish(pieces);
  RC_ASSERT(pieces == whole);
}

}  // namespace
}  // namespace moeflux
