// No template takes more than its limits, whatever it does.

#include <gtest/gtest.h>

#include <string>

#include "text/jinja/testing/render.h"

namespace moeflux::jinja {
namespace {

using testing::render;

// The message of a template that must end at a limit.
std::string limited(std::string_view source, const Json& variables = Json::object(),
                    const Limits& limits = {}) {
  const Result<MarkedText> out = render(source, variables, limits);
  if (out) return "it rendered";
  EXPECT_EQ(out.error().code(), ErrorCode::unsupported) << out.error().message();
  return out.error().message();
}

TEST(Limits, EndEndlessLoops) {
  EXPECT_EQ(limited("\n{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"),
            "test.jinja:2: the template takes more than 1,000,000 steps");
}

TEST(Limits, BoundEveryString) {
  for (const char* source :
       {"{{ 'a' * 10**9 }}", "{{ ('a' * 10**7) ~ ('b' * 10**7) }}", "{{ 'a'.center(10**9) }}",
        "{{ 'a'.zfill(10**9) }}", "{{ ('a' * 10000).replace('a', 'b' * 10000) }}",
        "{{ ('a' * 1000000) | indent(10**9) }}", "{{ (['a' * 5000] * 5000) | join }}",
        "{{ [1]|tojson(indent=10**9) }}", "{{ '%1000000000d' % 1 }}", "{{ '{:1000000000}'.format(1) }}",
        "{{ [1]|batch(10**9, 1)|list }}"}) {
    const std::string message = limited(source);
    EXPECT_TRUE(message.find("bytes") != std::string::npos || message.find("too many") != std::string::npos)
        << source << ": " << message;
  }
}

TEST(Limits, BoundTheOutputTogether) {
  const std::string message = limited("{% for i in range(100) %}{{ 'a' * 1000000 }}{% endfor %}");
  EXPECT_NE(message.find("more than 16,777,216 bytes"), std::string::npos) << message;
  EXPECT_NE(limited("{% macro m(n) %}{{ 'a' * 1000000 }}{{ m(n) }}{% endmacro %}{{ m(1) }}"), "it rendered");
}

TEST(Limits, BoundContainersThatDouble) {
  const std::string doubling =
      "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}";
  EXPECT_NE(limited(doubling).find("bytes"), std::string::npos);
  // The same list twice, in a list, in a list: small in memory, endless for whoever goes through it.
  const std::string sharing =
      "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}"
      "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}";
  EXPECT_NE(limited(sharing + "{{ ns.a == ns.b }}").find("bytes of work"), std::string::npos);
  EXPECT_NE(limited(sharing + "{{ ns.a }}").find("bytes"), std::string::npos);
  EXPECT_NE(limited(sharing + "{{ ns.a|tojson }}").find("bytes"), std::string::npos);
}

TEST(Limits, BoundHowDeepValuesNest) {
  const std::string message = limited(
      "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor %}");
  EXPECT_NE(message.find("nests deeper than 128"), std::string::npos) << message;
  limited(
      "{% set ns = namespace(l=1) %}{% for i in range(90000) %}{% set ns.l = namespace(l=ns.l) %}{% endfor "
      "%}");
}

TEST(Limits, BoundRecursion) {
  EXPECT_NE(limited("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}").find("deeper than 64"),
            std::string::npos);
  limited("{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}");
  std::string maps = "{{ 'a'|map('map'";
  for (int i = 0; i < 5000; ++i) maps += ", 'map'";
  limited(maps + ")|list }}");
}

TEST(Limits, BoundWorkThatIsHiddenInOneStep) {
  const std::string needle = "{% set a = 'a' * 1000000 %}{% set b = 'a' * 1000 ~ 'b' %}";
  EXPECT_NE(limited(needle + "{% for i in range(100000) %}{% set x = b in a %}{% endfor %}").find("work"),
            std::string::npos);
  EXPECT_NE(limited(needle + "{% for i in range(100000) %}{% set x = a.rfind(b) %}{% endfor %}").find("work"),
            std::string::npos);
  EXPECT_NE(limited(needle + "{% for i in range(100000) %}{% set x = a.strip(a) %}{% endfor %}").find("work"),
            std::string::npos);
}

TEST(Limits, GiveMemoryBackThatIsNoLongerUsed) {
  // Each turn forgets a megabyte; together they would be beyond the memory limit many times.
  const auto out = render("{% for i in range(200) %}{% set x = 'a' * 1000000 %}{% endfor %}ok");
  ASSERT_TRUE(out) << out.error().message();
  EXPECT_EQ(out->bytes, "ok");
}

TEST(Limits, TakeValuesApartThatContainThemselves) {
  const auto out = render(
      "{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.f = [ns] %}"
      "{% macro m() %}{{ ns }}{% endmacro %}{% set ns.m = m %}"
      "{% for i in [1] %}{{ loop.changed(loop) }}{% set ns.l = loop %}{% endfor %}");
  ASSERT_TRUE(out) << out.error().message();
  EXPECT_EQ(limited("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}"),
            "test.jinja:1: a value nests too deeply to be shown");
}

TEST(Limits, CanBeSet) {
  Limits limits;
  limits.nodes = 10;
  EXPECT_NE(limited("{{ 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 }}", {}, limits).find("10 steps"),
            std::string::npos);
  limits = {};
  limits.string_bytes = 3;
  EXPECT_NE(limited("abcd", {}, limits).find("more than 3 bytes"), std::string::npos);
  limits = {};
  limits.memory_bytes = 1000;
  EXPECT_NE(limited("{{ x }}", {{"x", std::string(2000, 'a')}}, limits).find("1,000 bytes of memory"),
            std::string::npos);
}

TEST(Limits, RefuseIntegersBeyond64Bits) {
  for (const char* source :
       {"{{ 9223372036854775807 + 1 }}", "{{ 2 ** 63 }}", "{{ 10 ** 19 }}", "{{ -9223372036854775807 - 2 }}",
        "{{ 9223372036854775808 }}", "{{ '9223372036854775808'|int }}", "{{ 1e300|int }}",
        "{{ (-9223372036854775807 - 1) // -1 }}", "{{ (-9223372036854775807 - 1)|abs }}"})
    EXPECT_NE(limited(source).find("64 bits"), std::string::npos) << source;
}

}  // namespace
}  // namespace moeflux::jinja
