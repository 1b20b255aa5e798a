#include "text/template/jinja/syntax/parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/testing/states.h"
#include "text/template/jinja/testing/render.h"

namespace moeflux::jinja {
namespace {

using test::States;
using testing::text_of;

Error refused(std::string_view source) {
  const auto ast = parse(source, "t", {});
  return ast ? Error(ErrorCode::cancelled, "it was accepted") : ast.error();
}

TEST(Parser, UsesThePrecedenceOfJinja) {
  EXPECT_EQ(text_of("{{ 1 + 2 * 3 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ not 1 == 2 }}"), "7 4 64 True");
  EXPECT_EQ(text_of("{{ -1|abs }} {{ 1 + 2|string|length }}"), "1 2");
  EXPECT_THAT(text_of("{{ 1 + 2 ~ 3 }}"), States("error", "test.jinja:1:", "'+'", "'int'", "'str'"));
}

TEST(Parser, NamesTheUnexpectedAndTheExpectedToken) {
  EXPECT_THAT(refused("a\n{% if x %}b"), States("t:2:", "end of the template", "'{% elif %}'"));
  EXPECT_THAT(refused("{{ 1 + }}"), States("t:1:", "unexpected '}}'", "an expression"));
  EXPECT_THAT(refused("\n{% for x l %}{% endfor %}"), States("t:2:", "unexpected 'l'", "expected 'in'"));
  EXPECT_THAT(refused("{% nosuch %}"), States("t:1:", "tag 'nosuch'"));
  EXPECT_THAT(refused("{{ x|nosuch }}"), States("t:1:", "filter 'nosuch'"));
  EXPECT_THAT(refused("{{ x is nosuch }}"), States("t:1:", "test 'nosuch'"));
  EXPECT_THAT(refused("{% break %}"), States("t:1:", "'break'", "outside of a loop"));
  EXPECT_THAT(refused("{% set 1 = 2 %}"), States("t:1:", "cannot be assigned to"));
  EXPECT_THAT(refused("{{ f(a=1, 2) }}"), States("t:1:", "argument", "precede"));
}

TEST(Parser, RejectsReferencesToOtherTemplates) {
  for (const std::string tag :
       {"include 'x'", "extends 'x'", "import 'x' as y", "from 'x' import y", "block b"}) {
    const Error error = refused("{% " + tag + " %}");
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error, States(tag.substr(0, tag.find(' ')), "not supported"));
  }
}

TEST(Parser, BoundsTheNestingOfTheSource) {
  const auto nested = [](std::size_t n) {
    return "{{ " + std::string(n, '(') + "1" + std::string(n, ')') + " }}";
  };
  EXPECT_TRUE(parse(nested(20), "t", {}));
  EXPECT_EQ(refused(nested(100'000)).code(), ErrorCode::unsupported);
  std::string nots = "{{ ", lists = "{{ ", dots = "{{ a", filters = "{{ a", ifs, elses = "{{ 1",
              minus = "{{ ";
  for (int i = 0; i < 50'000; ++i) {
    nots += "not ";
    lists += "[";
    dots += ".a";
    filters += "|e";
    ifs += "{% if a %}";
    elses += " if 1 else 1";
    minus += "-";
  }
  for (const std::string& source :
       {nots + "1 }}", lists, dots + " }}", filters + " }}", ifs, elses + " }}", minus + "1 }}"})
    EXPECT_EQ(parse(source, "t", {}).has_value(), false) << source.substr(0, 20);
}

TEST(Parser, BoundsTheTimeToResolveNames) {
  std::string source;
  for (int i = 0; i < 10'000; ++i) source += "{% set a" + std::to_string(i) + " = 1 %}";
  for (int i = 0; i < 10'000; ++i) source += "{% if b %}{% endif %}";
  const Error error = refused(source);
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_THAT(error, States("t:", "too many conditions", "names"));
}

TEST(Parser, AcceptsLongChainsWithoutNesting) {
  std::string sum = "{{ 0";
  for (int i = 0; i < 5000; ++i) sum += " + 1";
  EXPECT_EQ(text_of(sum + " }}"), "5000");
}

TEST(Parser, RejectsASourceThatIsTooLongOrNotUtf8) {
  EXPECT_EQ(refused(std::string((1u << 20) + 1, 'a')).code(), ErrorCode::unsupported);
  EXPECT_EQ(refused("a\xFF").code(), ErrorCode::corrupt_data);
}

}  // namespace
}  // namespace moeflux::jinja
