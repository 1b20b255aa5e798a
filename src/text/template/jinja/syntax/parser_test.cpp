#include "text/jinja/parser.h"

#include <gtest/gtest.h>

#include <string>

#include "text/jinja/testing/render.h"

namespace moeflux::jinja {
namespace {

using testing::text_of;

Error refused(std::string_view source) {
  const auto ast = parse(source, "t", {});
  return ast ? Error(ErrorCode::cancelled, "it was accepted") : ast.error();
}

TEST(Parser, BindsAsJinjaDoes) {
  EXPECT_EQ(text_of("{{ 1 + 2 * 3 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ not 1 == 2 }}"), "7 4 64 True");
  EXPECT_EQ(text_of("{{ -1|abs }} {{ 1 + 2|string|length }}"), "1 2");
  EXPECT_EQ(text_of("{{ 1 + 2 ~ 3 }}"), "error: test.jinja:1: '+' does not take a 'int' and a 'str'");
}

TEST(Parser, NamesWhatItExpected) {
  EXPECT_EQ(refused("a\n{% if x %}b").message(),
            "t:2: unexpected the end of the template, expected '{% elif %}'");
  EXPECT_EQ(refused("{{ 1 + }}").message(), "t:1: unexpected '}}', expected an expression");
  EXPECT_EQ(refused("\n{% for x l %}{% endfor %}").message(), "t:2: unexpected 'l', expected 'in'");
  EXPECT_EQ(refused("{% nosuch %}").message(), "t:1: unknown tag 'nosuch'");
  EXPECT_EQ(refused("{{ x|nosuch }}").message(), "t:1: there is no filter 'nosuch'");
  EXPECT_EQ(refused("{{ x is nosuch }}").message(), "t:1: there is no test 'nosuch'");
  EXPECT_EQ(refused("{% break %}").message(), "t:1: 'break' outside of a loop");
  EXPECT_EQ(refused("{% set 1 = 2 %}").message(), "t:1: this cannot be assigned to");
  EXPECT_EQ(refused("{{ f(a=1, 2) }}").message(),
            "t:1: an argument stands behind one that must come after it");
}

TEST(Parser, RefusesOtherTemplatesByName) {
  for (const std::string tag :
       {"include 'x'", "extends 'x'", "import 'x' as y", "from 'x' import y", "block b"}) {
    const Error error = refused("{% " + tag + " %}");
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_NE(error.message().find("is not supported in chat templates"), std::string::npos)
        << error.message();
  }
}

TEST(Parser, BoundsHowDeepASourceNests) {
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

TEST(Parser, BoundsHowLongItLooksForNames) {
  std::string source;
  for (int i = 0; i < 10'000; ++i) source += "{% set a" + std::to_string(i) + " = 1 %}";
  for (int i = 0; i < 10'000; ++i) source += "{% if b %}{% endif %}";
  const Error error = refused(source);
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_EQ(error.message(), "t: too many conditions over too many names");
}

TEST(Parser, TakesLongChainsThatDoNotNest) {
  std::string sum = "{{ 0";
  for (int i = 0; i < 5000; ++i) sum += " + 1";
  EXPECT_EQ(text_of(sum + " }}"), "5000");
}

TEST(Parser, RefusesSourcesThatAreTooLongOrNotUtf8) {
  EXPECT_EQ(refused(std::string((1u << 20) + 1, 'a')).code(), ErrorCode::unsupported);
  EXPECT_EQ(refused("a\xFF").code(), ErrorCode::corrupt_data);
}

}  // namespace
}  // namespace moeflux::jinja
