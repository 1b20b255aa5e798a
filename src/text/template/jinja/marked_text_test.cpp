#include "text/template/jinja/marked_text.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

namespace moeflux::jinja {
namespace {

using Ranges = std::vector<TextRange>;

TEST(TextBuilder, MergesAdjacentRanges) {
  TextBuilder out(100);
  out.add("ab", true);
  out.add("cd", true);
  out.add("--");
  out.add("", true);
  out.add("ef", true);
  const MarkedText text = out.take();
  EXPECT_EQ(text.bytes, "abcd--ef");
  EXPECT_EQ(text.data, (Ranges{{0, 4}, {6, 8}}));
}

TEST(TextBuilder, StopsAtItsLimitAndReportsIt) {
  TextBuilder out(4);
  out.add("abcd");
  EXPECT_FALSE(out.over());
  out.add("e");
  EXPECT_TRUE(out.over());
  EXPECT_EQ(out.take().bytes, "abcd");
}

TEST(TextBuilder, CountsRangesAgainstItsLimit) {
  TextBuilder out(1000);
  for (int i = 0; i < 1000 && !out.over(); ++i) {
    out.add("a", true);
    out.add("b");
  }
  EXPECT_TRUE(out.over());
  EXPECT_LT(out.size(), 200u);
}

TEST(MarkedText, SliceCutsRanges) {
  TextBuilder out(100);
  out.add("..");
  out.add("data", true);
  out.add("..");
  const MarkedText text = out.take();
  EXPECT_EQ(slice(text, 3, 5).data, (Ranges{{0, 2}}));
  EXPECT_EQ(slice(text, 0, 3).data, (Ranges{{2, 3}}));
  EXPECT_EQ(slice(text, 5, 8).data, (Ranges{{0, 1}}));
  EXPECT_EQ(slice(text, 6, 8).data, Ranges{});
  EXPECT_FALSE(text.is_data(1));
  EXPECT_TRUE(text.is_data(2));
  EXPECT_TRUE(text.is_data(5));
  EXPECT_FALSE(text.is_data(6));
}

// The ranges must agree with one flag per byte.
RC_GTEST_PROP(MarkedText, AgreesWithOneFlagPerByte,
              (const std::vector<std::pair<std::uint8_t, bool>>& pieces)) {
  TextBuilder out(1u << 20);
  std::vector<bool> flags;
  for (const auto& [length, data] : pieces) {
    out.add(std::string(length % 5, 'x'), data);
    flags.insert(flags.end(), length % 5, data);
  }
  const MarkedText text = out.take();
  const std::size_t begin = *rc::gen::inRange<std::size_t>(0, flags.size() + 1);
  const std::size_t end = *rc::gen::inRange<std::size_t>(begin, flags.size() + 1);
  const MarkedText part = slice(text, begin, end);
  RC_ASSERT(part.bytes.size() == end - begin);
  for (std::size_t i = begin; i < end; ++i) RC_ASSERT(part.is_data(i - begin) == flags[i]);
  for (std::size_t i = 1; i < part.data.size(); ++i) RC_ASSERT(part.data[i - 1].end < part.data[i].begin);
}

}  // namespace
}  // namespace moeflux::jinja
