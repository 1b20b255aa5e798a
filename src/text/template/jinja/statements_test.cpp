// Control, scopes and macros.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/states.h"
#include "text/template/jinja/testing/render.h"

namespace moeflux::jinja {
namespace {

using test::States;
using testing::text_of;

TEST(Statements, SetLeaksOutOfAnIfButNotOutOfALoop) {
  EXPECT_EQ(text_of("{% set x = 1 %}{% for i in [2, 3] %}{{ x }}{% set x = i %}{{ x }}{% endfor %}{{ x }}"),
            "12131");
  EXPECT_EQ(text_of("{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}"), "2");
}

TEST(Statements, ANameThatABlockSetsIsLocalToTheWholeBlock) {
  const Json x = {{"x", "outside"}};
  EXPECT_EQ(text_of("{% for i in [1] %}[{{ x }}]{% endfor %}{% set x = 1 %}", x), "[]");
  EXPECT_EQ(text_of("{{ x }}{% for i in [1] %}[{{ x }}]{% endfor %}{% set x = 1 %}", x), "outside[outside]");
  EXPECT_EQ(text_of("{% if false %}{% set x = 1 %}{% endif %}{{ x }}", x), "outside");
  EXPECT_EQ(text_of("{% set x %}[{{ x }}]{% endset %}{{ x }}", x), "[]");
}

TEST(Statements, NamespacesCarryValuesOutOfLoops) {
  EXPECT_EQ(text_of("{% set ns = namespace(n=0) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% endfor "
                    "%}{{ ns.n }}"),
            "3");
  EXPECT_THAT(text_of("\n{% set d = {} %}{% set d.x = 1 %}"),
              States("error", "test.jinja:2:", "namespace", "'d'"));
}

TEST(Statements, LoopsReportTheirPosition) {
  EXPECT_EQ(
      text_of("{% for x in 'abc' %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.first }}"
              "{{ loop.last }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('-', '+') }} {% endfor %}"),
      "103TrueFalseb- 212FalseFalseac+ 321FalseTrueb- ");
  EXPECT_EQ(text_of("{% for x in [1, 1, 2] %}{{ loop.changed(x) }} {% endfor %}"), "True False True ");
}

TEST(Statements, LoopsFilterUnpackBreakAndContinue) {
  EXPECT_EQ(text_of("{% for x in range(6) if x is odd %}{{ x }}/{{ loop.length }} {% endfor %}"),
            "1/3 3/3 5/3 ");
  EXPECT_EQ(text_of("{% for k, (a, b) in [(1, (2, 3))] %}{{ k }}{{ a }}{{ b }}{% endfor %}"), "123");
  EXPECT_EQ(text_of("{% for x in range(9) %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 3 %}{% break "
                    "%}{% endif %}{{ x }}{% endfor %}"),
            "02");
  EXPECT_EQ(text_of("{% for x in [] %}a{% else %}none{% endfor %}"), "none");
  EXPECT_THAT(text_of("{% for a, b in [1] %}{% endfor %}"),
              States("error", "test.jinja:1:", "'int'", "iterable"));
}

TEST(Statements, LoopsRecurse) {
  const Json tree = Json::parse(R"([{"v": 1, "c": [{"v": 2, "c": []}]}])");
  EXPECT_EQ(text_of("{% for n in t recursive %}[{{ n.v }}.{{ loop.depth }}{{ loop(n.c) }}]{% endfor %}",
                    {{"t", tree}}),
            "[1.1[2.2]]");
}

TEST(Statements, MacrosTakeArgumentsLikePythonFunctions) {
  const std::string macro = "{% macro m(a, b=a) %}{{ a }}-{{ b }}{% endmacro %}";
  EXPECT_EQ(
      text_of(macro +
              "{{ m(1) }} {{ m(1, 2) }} {{ m(b=1, a=2) }} {{ m(*[3, 4]) }} {{ m(**{'a': 5}) }} {{ m() }}"),
      "1-1 1-2 2-1 3-4 5-5 -");
  EXPECT_THAT(text_of(macro + "{{ m(1, 2, 3) }}"),
              States("error", "test.jinja:1:", "macro 'm'", "2 arguments"));
  EXPECT_THAT(text_of(macro + "{{ m(c=1) }}"), States("error", "test.jinja:1:", "macro 'm'", "argument 'c'"));
  EXPECT_EQ(text_of("{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, x=2) }}"), "(1,){'x': 2}");
}

TEST(Statements, MacrosSeeTheNamesAroundThemInTheSource) {
  EXPECT_EQ(
      text_of("{% macro m() %}{{ x }}{% endmacro %}{% set x = 1 %}{% for x in [2] %}{{ m() }}{% endfor %}"),
      "1");
}

TEST(Statements, CallBlocksPassTheirBody) {
  EXPECT_EQ(text_of("{% macro m() %}<{{ caller(1) }}>{% endmacro %}{% set y = 2 %}{% call(x) m() %}{{ x }}{{ "
                    "y }}{% endcall %}"),
            "<12>");
}

TEST(Statements, BlocksOfTextAreCapturedAndFiltered) {
  EXPECT_EQ(text_of("{% set x | upper %}a{{ 1 }}{% endset %}{{ x }}{% filter replace('b', 'c') | upper "
                    "%}ab{% endfilter %}"),
            "A1AC");
  EXPECT_EQ(text_of("{% with a = 1 %}{% with a = 2, b = a %}{{ b }}{% endwith %}{% endwith %}{{ a }}"), "1");
  EXPECT_EQ(text_of("{% generation %}a{% set z = 1 %}{% endgeneration %}{{ z }}"), "a");
}

TEST(Statements, UndefinedValuesPrintNothingAndFailWhenUsed) {
  EXPECT_EQ(text_of("[{{ x }}]{{ x is defined }}{% if x %}{% endif %}{% for y in x %}{% endfor %}"),
            "[]False");
  EXPECT_THAT(text_of("\n\n{{ x.y }}"), States("error", "test.jinja:3:", "'x'", "undefined"));
  EXPECT_THAT(text_of("{{ m.a.b }}", {{"m", Json::object()}}),
              States("error", "test.jinja:1:", "dict", "attribute 'a'"));
  EXPECT_THAT(text_of("{{ m[7].b }}", {{"m", Json::array()}}),
              States("error", "test.jinja:1:", "list", "element 7"));
  EXPECT_THAT(text_of("{{ x + 1 }}"), States("error", "test.jinja:1:", "'x'", "undefined"));
}

TEST(Statements, ErrorsNameTheInnermostLine) {
  EXPECT_THAT(text_of("{% if true %}\n{{ 1\n  + nil.x.y }}\n{% endif %}", {{"nil", nullptr}}),
              States("error", "test.jinja:3:", "'None'", "attribute 'x'"));
  EXPECT_THAT(text_of("{% macro m() %}\n{{ 1 / 0 }}{% endmacro %}\n\n{{ m() }}"),
              States("error", "test.jinja:2:", "division by zero"));
}

TEST(Statements, ExceptionsOfTheTemplateAreReported) {
  const auto out = testing::render("a\n{{ raise_exception('roles must alternate ' ~ 1) }}");
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().code(), ErrorCode::invalid_argument);
  EXPECT_THAT(out, States("test.jinja:2:", "the template says: roles must alternate 1"));
}

TEST(Statements, TheSandboxForbidsChanges) {
  EXPECT_THAT(text_of("{{ [].append(1) }}"),
              States("error", "test.jinja:1:", "'append'", "'list'", "refused"));
  EXPECT_THAT(text_of("{{ {}.update({}) }}"),
              States("error", "test.jinja:1:", "'update'", "'dict'", "refused"));
  EXPECT_EQ(text_of("[{{ ''.__class__ }}]"), "[]");
}

TEST(Statements, DotsFindMethodsFirstAndBracketsElements) {
  const Json d = {{"items", "mine"}, {"a", 1}};
  EXPECT_EQ(
      text_of("{{ d.items()|length }}{{ d['items'] }}{{ d.a }}{{ d['a'] }}{{ d['get']('a') }}", {{"d", d}}),
      "2mine111");
}

}  // namespace
}  // namespace moeflux::jinja
