// No template exceeds its limits.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/testing/states.h"
#include "text/template/jinja/testing/render.h"

namespace moeflux::jinja {
namespace {

using test::States;
using ::testing::AnyOf;
using testing::render;

// The error message of a template that must exceed a limit.
std::string limited(std::string_view source, const Json& variables = Json::object(),
                    const Limits& limits = {}) {
  const Result<MarkedText> out = render(source, variables, limits);
  if (out) return "it rendered";
  EXPECT_EQ(out.error().code(), ErrorCode::unsupported) << out.error().message();
  return out.error().message();
}

TEST(Limits, EndEndlessLoops) {
  EXPECT_THAT(limited("\n{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"),
              States("test.jinja:2:", "1,000,000 steps"));
}

TEST(Limits, BoundEveryString) {
  for (const char* source :
       {"{{ 'a' * 10**9 }}", "{{ ('a' * 10**7) ~ ('b' * 10**7) }}", "{{ 'a'.center(10**9) }}",
        "{{ 'a'.zfill(10**9) }}", "{{ ('a' * 10000).replace('a', 'b' * 10000) }}",
        "{{ ('a' * 1000000) | indent(10**9) }}", "{{ (['a' * 5000] * 5000) | join }}",
        "{{ [1]|tojson(indent=10**9) }}", "{{ '%1000000000d' % 1 }}", "{{ '{:1000000000}'.format(1) }}",
        "{{ [1]|batch(10**9, 1)|list }}"}) {
    const std::string message = limited(source);
    EXPECT_THAT(message, AnyOf(States("bytes"), States("too many"))) << source;
  }
}

TEST(Limits, BoundTheWholeOutput) {
  const std::string message = limited("{% for i in range(100) %}{{ 'a' * 1000000 }}{% endfor %}");
  EXPECT_THAT(message, States("16,777,216 bytes"));
  EXPECT_NE(limited("{% macro m(n) %}{{ 'a' * 1000000 }}{{ m(n) }}{% endmacro %}{{ m(1) }}"), "it rendered");
}

TEST(Limits, BoundContainersThatDouble) {
  const std::string doubling =
      "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}";
  EXPECT_THAT(limited(doubling), States("bytes"));
  // A list that holds the previous list twice: small in memory, exponential for a walk over it.
  const std::string sharing =
      "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}"
      "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}";
  EXPECT_THAT(limited(sharing + "{{ ns.a == ns.b }}"), States("bytes of work"));
  EXPECT_THAT(limited(sharing + "{{ ns.a }}"), States("bytes"));
  EXPECT_THAT(limited(sharing + "{{ ns.a|tojson }}"), States("bytes"));
}

TEST(Limits, BoundTheNestingOfValues) {
  const std::string message = limited(
      "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor %}");
  EXPECT_THAT(message, States("nests deeper", 128));
  limited(
      "{% set ns = namespace(l=1) %}{% for i in range(90000) %}{% set ns.l = namespace(l=ns.l) %}{% endfor "
      "%}");
}

TEST(Limits, BoundRecursion) {
  EXPECT_THAT(limited("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), States("macros", "deeper", 64));
  limited("{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}");
  std::string maps = "{{ 'a'|map('map'";
  for (int i = 0; i < 5000; ++i) maps += ", 'map'";
  limited(maps + ")|list }}");
}

TEST(Limits, BoundTheWorkInsideOneStep) {
  const std::string needle = "{% set a = 'a' * 1000000 %}{% set b = 'a' * 1000 ~ 'b' %}";
  for (const char* operation : {"b in a", "a.rfind(b)", "a.strip(a)"}) {
    const std::string loop =
        fmt::format("{{% for i in range(100000) %}}{{% set x = {} %}}{{% endfor %}}", operation);
    EXPECT_THAT(limited(needle + loop), States("bytes of work")) << operation;
  }
}

TEST(Limits, ReturnMemoryThatIsNoLongerUsed) {
  // Each iteration releases a megabyte; together they would exceed the memory limit many times.
  const auto out = render("{% for i in range(200) %}{% set x = 'a' * 1000000 %}{% endfor %}ok");
  ASSERT_TRUE(out) << out.error().message();
  EXPECT_EQ(out->bytes, "ok");
}

TEST(Limits, ReleaseValuesThatContainThemselves) {
  const auto out = render(
      "{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.f = [ns] %}"
      "{% macro m() %}{{ ns }}{% endmacro %}{% set ns.m = m %}"
      "{% for i in [1] %}{{ loop.changed(loop) }}{% set ns.l = loop %}{% endfor %}");
  ASSERT_TRUE(out) << out.error().message();
  EXPECT_THAT(limited("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}"),
              States("test.jinja:1:", "nests"));
}

TEST(Limits, CanBeSet) {
  Limits limits;
  limits.nodes = 10;
  EXPECT_THAT(limited("{{ 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 }}", {}, limits), States("10 steps"));
  limits = {};
  limits.string_bytes = 3;
  EXPECT_THAT(limited("abcd", {}, limits), States("3 bytes"));
  limits = {};
  limits.memory_bytes = 1000;
  EXPECT_THAT(limited("{{ x }}", {{"x", std::string(2000, 'a')}}, limits), States("1,000 bytes of memory"));
}

TEST(Limits, RejectIntegersBeyond64Bits) {
  for (const char* source :
       {"{{ 9223372036854775807 + 1 }}", "{{ 2 ** 63 }}", "{{ 9223372036854775807 * 2 }}",
        "{{ 3037000500 * 3037000500 }}", "{{ (-9223372036854775807 - 1) * -1 }}",
        "{{ -4611686018427387905 * 2 }}", "{{ 10 ** 19 }}", "{{ -9223372036854775807 - 2 }}",
        "{{ 9223372036854775808 }}", "{{ '9223372036854775808'|int }}", "{{ 1e300|int }}",
        "{{ (-9223372036854775807 - 1) // -1 }}", "{{ (-9223372036854775807 - 1)|abs }}"})
    EXPECT_THAT(limited(source), States("64 bits")) << source;
  EXPECT_EQ(testing::text_of("{{ 3037000499 * 3037000499 }} {{ -4611686018427387904 * 2 }}"),
            "9223372030926249001 -9223372036854775808");
}

}  // namespace
}  // namespace moeflux::jinja
