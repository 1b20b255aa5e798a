// Operators, printing, filters, tests and methods: the cases that must hold without Jinja2. The comparison
// with Jinja2 in many more cases is tests/text/template_oracle_test.py.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/states.h"
#include "text/template/jinja/builtins/formatting.h"
#include "text/template/jinja/builtins/strftime.h"
#include "text/template/jinja/testing/render.h"

namespace moeflux::jinja {
namespace {

using test::States;
using testing::text_of;

std::string value(std::string_view expression, const Json& variables = Json::object()) {
  return text_of("{{ " + std::string(expression) + " }}", variables);
}

TEST(Values, FloatsPrintAsInPython) {
  EXPECT_EQ(python_float(1.0), "1.0");
  EXPECT_EQ(python_float(1e-5), "1e-05");
  EXPECT_EQ(python_float(0.0001), "0.0001");
  EXPECT_EQ(python_float(1e16), "1e+16");
  EXPECT_EQ(python_float(123456789012345680.0), "1.2345678901234568e+17");
  EXPECT_EQ(python_float(-0.1), "-0.1");
  EXPECT_EQ(python_float(1e15), "1000000000000000.0");
  EXPECT_EQ(python_float(-0.0), "-0.0");
}

TEST(Values, ContainersPrintAsInPython) {
  EXPECT_EQ(value(R"([1, 'a', none, true, 2.0, (1,), {'k': "it's"}, '\n'])"),
            R"([1, 'a', None, True, 2.0, (1,), {'k': "it's"}, '\n'])");
  EXPECT_EQ(value("range(1, 9, 2)"), "range(1, 9, 2)");
}

TEST(Values, NumbersFollowPython) {
  EXPECT_EQ(value("[7 // 2, -7 // 2, -7 % 3, 7 % -3, 7 / 2, 2 ** -1, -7.5 // 2]"),
            "[3, -4, 2, -2, 3.5, 0.5, -4.0]");
  EXPECT_EQ(value("[1 == 1.0, 1 == true, '1' == 1, 1 < 2 < 3, 1 < 2 > 3]"),
            "[True, True, False, True, False]");
  EXPECT_THAT(value("1 // 0"), States("error", "test.jinja:1:", "division by zero"));
}

TEST(Values, StringsConsistOfCodePoints) {
  const Json u = {{"u", "aß日😀"}};
  EXPECT_EQ(value("u|length", u), "4");
  EXPECT_EQ(value("u[1] ~ u[-1] ~ u[1:3] ~ u[::-1]", u), "ß😀ß日😀日ßa");
  EXPECT_EQ(value("u.find('日')", u), "2");
}

TEST(Values, SlicesFollowPython) {
  EXPECT_EQ(value("[0, 1, 2, 3][::-1]"), "[3, 2, 1, 0]");
  EXPECT_EQ(value("[0, 1, 2, 3][-3:-1] + [0, 1, 2, 3][10:] + [0, 1, 2, 3][3:0:-2]"), "[1, 2, 3, 1]");
  EXPECT_THAT(value("'abc'[::0]"), States("error", "test.jinja:1:", "slice", 0));
}

TEST(Values, JsonIsWrittenAsInPython) {
  const Json d = Json::parse(R"({"b": [1, 2.0, null, true], "a": "é\"\n<&"})");
  EXPECT_EQ(value("d|tojson", {{"d", d}}), R"({"b": [1, 2.0, null, true], "a": "é\"\n<&"})");
  EXPECT_EQ(value("d|tojson(ensure_ascii=true, sort_keys=true, separators=(',', ':'))", {{"d", d}}),
            R"({"a":"\u00e9\"\n<&","b":[1,2.0,null,true]})");
  EXPECT_EQ(value("{'a': [1], 'b': {}}|tojson(indent=2)"), "{\n  \"a\": [\n    1\n  ],\n  \"b\": {}\n}");
  EXPECT_THAT(value("x|tojson"), States("error", "test.jinja:1:", "'Undefined'", "JSON"));
}

TEST(Values, FormatsFollowPython) {
  EXPECT_EQ(value("'%s %05d %.2f %x %%' % ('a', 42, 2.5, 255)"), "a 00042 2.50 ff %");
  EXPECT_EQ(value("'{} {b:>4} {c[0]}'.format(1, b='x', c=[7])"), "1    x 7");
}

TEST(Values, FiltersSelectAndSort) {
  const Json users = Json::parse(R"([{"n": "b", "v": 1}, {"n": "A"}, {"n": "c", "v": 0}])");
  EXPECT_EQ(value("u|selectattr('v')|map(attribute='n')|join", {{"u", users}}), "b");
  EXPECT_EQ(value("u|rejectattr('v', 'defined')|map(attribute='n')|list", {{"u", users}}), "['A']");
  EXPECT_EQ(value("u|sort(attribute='n')|map(attribute='n')|join", {{"u", users}}), "Abc");
  EXPECT_EQ(value("u|map(attribute='v', default='-')|list", {{"u", users}}), "[1, '-', 0]");
  EXPECT_EQ(value("{'b': 1, 'A': 2}|dictsort"), "[('A', 2), ('b', 1)]");
  EXPECT_EQ(value("[3, 1, 2]|sort(reverse=true)"), "[3, 2, 1]");
  EXPECT_THAT(value("[1, 'a']|sort"), States("error", "test.jinja:1:", "'str'", "'int'", "order"));
}

TEST(Values, GeneratorsAreReadOnce) {
  EXPECT_EQ(text_of("{% set g = [1, 2]|map('string') %}{{ g|join }}|{{ g|join }}"), "12|");
}

TEST(Values, TestsRecognizeTypes) {
  EXPECT_EQ(
      value(
          "[1 is number, true is integer, 's' is sequence, {} is mapping, none is none, 4 is divisibleby 2]"),
      "[True, False, True, True, True, True]");
  EXPECT_EQ(value("[1 is in [1], 2 is odd, 'a' is lower, 1 is not string, 3 is gt 2, 1 is true]"),
            "[True, False, True, True, True, False]");
}

TEST(Values, MethodsSplitAndStrip) {
  EXPECT_EQ(value("'a,b,,c'.split(',')"), "['a', 'b', '', 'c']");
  EXPECT_EQ(value("' a  b '.split() + 'a b c'.rsplit(none, 1)"), "['a', 'b', 'a b', 'c']");
  EXPECT_EQ(value("'xxaxx'.strip('x') ~ 'ab'.removeprefix('a') ~ 'a-b'.partition('-')[2]"), "abb");
  EXPECT_THAT(value("'a'.nosuch()"), States("error", "test.jinja:1:", "str", "attribute 'nosuch'"));
}

TEST(Values, DictsKeepTheOrderOfTheirKeys) {
  std::string source = "{", expected;
  for (int i = 40; i > 0; --i) {
    source += "'k" + std::to_string(i) + "': " + std::to_string(i) + ", ";
    expected += "k" + std::to_string(i);
  }
  EXPECT_EQ(value("(" + source + "}).keys()|join"), expected);
  EXPECT_EQ(value("(" + source + "})['k7']"), "7");
  EXPECT_EQ(value("{1: 'a', true: 'b', 1.0: 'c'}"), "{1: 'c'}");
}

TEST(Values, TimeIsTheGivenTime) {
  std::tm time{};
  time.tm_year = 124;
  time.tm_mon = 6;
  time.tm_mday = 4;
  time.tm_hour = 13;
  time.tm_wday = 4;
  time.tm_yday = 185;
  const auto formatted = format_time("%Y-%m-%d %d %b %Y %A %-d %I%p %j %%", time);
  ASSERT_TRUE(formatted);
  EXPECT_EQ(*formatted, "2024-07-04 04 Jul 2024 Thursday 4 01PM 186 %");
  EXPECT_FALSE(format_time("%Q", time));
  EXPECT_FALSE(format_time("%", time));
  EXPECT_THAT(value("strftime_now('%Y')"), States("error", "strftime_now()", "no time"));
}

}  // namespace
}  // namespace moeflux::jinja
