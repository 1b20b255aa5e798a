#include "text/json_scanner.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

#include "base/json.h"

namespace moeflux {
namespace {

TEST(JsonScanner, TakesDocuments) {
  for (const char* text : {"{}", "[]", " [ ] ", "0", "-0", "-12.5e+3", "1E9", "true", "false", "null",
                           R"("")", R"("\u00e9\n\/")", R"("\ud83d\ude00")", R"({"a":[1,{"b":null}],"c":"d"})",
                           "[[[]],[1,2]]\n", R"({"a" : 1 , "b":2})", "[1 ]"})
    EXPECT_TRUE(is_json(text)) << text;
}

TEST(JsonScanner, RefusesWhatIsNone) {
  for (const char* text : {"",
                           "{",
                           "}",
                           "[1,]",
                           R"({"a"})",
                           R"({"a":1,})",
                           "{a:1}",
                           "01",
                           "-",
                           "1.",
                           ".5",
                           "+1",
                           "1e",
                           "1e+",
                           "tru",
                           "True",
                           "nul",
                           "nulll",
                           "1 2",
                           "[1}",
                           "{]",
                           R"("a)",
                           "\"a\nb\"",
                           R"("\x")",
                           "[,1]",
                           R"("\u12g4")",
                           "'a'",
                           R"("\ud83d")",
                           R"("\ud83dx")",
                           R"("\ude00")",
                           R"("\ud83d\n")",
                           "NaN",
                           R"({"a":1 "b":2})",
                           R"({,})",
                           "[1 2]"})
    EXPECT_FALSE(is_json(text)) << text;
}

TEST(JsonScanner, StaysWhereItWasAtAByteThatDoesNotFit) {
  JsonScanner scanner;
  for (const char c : std::string_view("[12")) ASSERT_TRUE(scanner.push(c));
  EXPECT_FALSE(scanner.push('x'));
  EXPECT_FALSE(scanner.push('}'));
  EXPECT_TRUE(scanner.push('3'));
  EXPECT_TRUE(scanner.push(']'));
  EXPECT_TRUE(scanner.complete());
}

TEST(JsonScanner, KnowsWhereItIs) {
  JsonScanner scanner;
  const auto read = [&](std::string_view text) {
    for (const char c : text) ASSERT_TRUE(scanner.push(c));
  };
  EXPECT_TRUE(scanner.expects_value());
  read("{\"ke");
  EXPECT_TRUE(scanner.in_string() && scanner.string_is_key());
  EXPECT_EQ(scanner.depth(), 1u);
  read("y\": ");
  EXPECT_TRUE(scanner.expects_value());
  read("[\"te");
  EXPECT_TRUE(scanner.in_string() && !scanner.string_is_key());
  EXPECT_EQ(scanner.depth(), 2u);
  read("xt\"]");
  EXPECT_FALSE(scanner.in_string() || scanner.expects_value() || scanner.complete());
  read("}");
  EXPECT_TRUE(scanner.complete());
}

TEST(JsonScanner, NestsToItsLimitAndNoDeeper) {
  EXPECT_TRUE(is_json(std::string(128, '[') + std::string(128, ']')));
  EXPECT_FALSE(is_json(std::string(129, '[') + std::string(129, ']')));
}

RC_GTEST_PROP(JsonScanner, AgreesWithTheJsonLibrary, ()) {
  const auto text =
      *rc::gen::container<std::string>(rc::gen::elementOf(std::string("{}[]\",:01-.e \\utrnl")));
  RC_ASSERT(is_json(text) == Json::accept(text));
}

}  // namespace
}  // namespace moeflux
