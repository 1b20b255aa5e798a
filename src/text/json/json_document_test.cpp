#include "text/json/json_automaton.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

#include "base/json/json.h"

namespace moeflux {
namespace {

TEST(JsonDocument, AcceptsDocuments) {
  for (const char* text : {"{}", "[]", " [ ] ", "0", "-0", "-12.5e+3", "1E9", "true", "false", "null",
                           R"("")", R"("\u00e9\n\/")", R"("\ud83d\ude00")", R"({"a":[1,{"b":null}],"c":"d"})",
                           "[[[]],[1,2]]\n", R"({"a" : 1 , "b":2})", "[1 ]"})
    EXPECT_TRUE(is_json(text)) << text;
}

TEST(JsonDocument, RejectsOtherText) {
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

TEST(JsonDocument, KeepsItsStateWhenAByteIsRefused) {
  JsonAutomaton json;
  for (const char c : std::string_view("[12")) ASSERT_TRUE(json.accept(c));
  EXPECT_FALSE(json.accept('x'));
  EXPECT_FALSE(json.accept('}'));
  EXPECT_TRUE(json.accept('3'));
  EXPECT_TRUE(json.accept(']'));
  EXPECT_TRUE(json.complete());
}

TEST(JsonDocument, ReportsItsPosition) {
  JsonAutomaton json;
  const auto read = [&](std::string_view text) {
    for (const char c : text) ASSERT_TRUE(json.accept(c));
  };
  EXPECT_TRUE(json.expects_value());
  read("{\"ke");
  EXPECT_TRUE(json.in_string() && json.string_is_key());
  EXPECT_EQ(json.depth(), 1u);
  read("y\": ");
  EXPECT_TRUE(json.expects_value());
  read("[\"te");
  EXPECT_TRUE(json.in_string() && !json.string_is_key());
  EXPECT_EQ(json.depth(), 2u);
  read("xt\"]");
  EXPECT_FALSE(json.in_string() || json.expects_value() || json.complete());
  read("}");
  EXPECT_TRUE(json.complete());
}

TEST(JsonDocument, BoundsTheDepth) {
  EXPECT_TRUE(is_json(std::string(128, '[') + std::string(128, ']')));
  EXPECT_FALSE(is_json(std::string(129, '[') + std::string(129, ']')));
}

// In an escape that cannot be part of a valid surrogate pair, the first byte that rules the pair out is
// refused, not the last byte of the escape.
TEST(JsonDocument, RefusesAByteAsSoonAsNoDocumentBeginsWithIt) {
  const auto accepted = [](std::string_view text) {
    JsonAutomaton json;
    std::size_t size = 0;
    while (size < text.size() && json.accept(text[size])) ++size;
    return text.substr(0, size);
  };
  EXPECT_EQ(accepted(R"("\udc00")"), R"("\ud)");
  EXPECT_EQ(accepted(R"("\ud83d\ud83d")"), R"("\ud83d\ud)");
  EXPECT_EQ(accepted(R"("\ud83d\u0041")"), R"("\ud83d\u)");
  EXPECT_EQ(accepted(R"("\ud83dx")"), R"("\ud83d)");
}

// Such text is restricted only in an object that a model generates.
TEST(JsonDocument, TakesAnyBytesInStringsAndAnyNumberOfDigitsAndSpaces) {
  EXPECT_TRUE(is_json("\"\xff\xc3 \xe2\x82\""));
  EXPECT_TRUE(is_json(std::string(1000, ' ') + std::string(1000, '9') + "." + std::string(1000, '9') + "e" +
                      std::string(1000, '9') + std::string(1000, '\n')));
}

RC_GTEST_PROP(JsonDocument, AgreesWithTheJsonLibrary, ()) {
  const auto text =
      *rc::gen::container<std::string>(rc::gen::elementOf(std::string("{}[]\",:01-.e \\utrnl")));
  RC_ASSERT(is_json(text) == Json::accept(text));
}

}  // namespace
}  // namespace moeflux
