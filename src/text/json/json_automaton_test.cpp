#include "text/json/json_automaton.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/testing/expect_contract.h"
#include "text/json/testing/json_oracle.h"

namespace moeflux {
namespace {

const std::vector<std::string>& documents() {
  static const std::vector<std::string> all{
      "{}",
      "{ }",
      " \n\t\r{\"a\":1}",
      R"({"a": [1, -2, 2.5e-3, 0, -0.0, 1E+9, 12345678901234567890], "b": {"c": null, "d": [true, false]}})",
      R"({"text": "quote \" slash \\ \/ \b\f\n\r\t \u00e9 \uD83D\uDE00 \ud7ff\uE000", "": ""})",
      "{\"utf8\": \"\xC2\x80 \xDF\xBF \xE0\xA0\x80 \xE2\x82\xAC \xED\x9F\xBF \xEE\x80\x80 \xF0\x90\x80\x80 "
      "\xF0\x9F\x98\x80 \xF4\x8F\xBF\xBF\x7F\"}",
      R"({"a":[[[[]]],{},[{}],[ ] , "x"] , "b" : { } })",
      R"({"a":1,"a":2})",
      "{\"n\":[1 ,2\n,3\t]}",
  };
  return all;
}

TEST(JsonObject, AcceptsObjectsAndAllTheirPrefixes) {
  for (const std::string& document : documents()) {
    JsonAutomaton automaton(JsonObjectLimits{});
    for (const char byte : document) {
      EXPECT_FALSE(automaton.complete());
      ASSERT_TRUE(automaton.accept(static_cast<unsigned char>(byte))) << document << " at " << byte;
      ASSERT_TRUE(should_accept(document)) << document;
    }
    EXPECT_TRUE(automaton.complete()) << document;
  }
}

TEST(JsonObject, CanBeCompletedFromEveryPrefix) {
  for (const std::string& document : documents()) {
    for (std::size_t size = 0; size < document.size(); ++size) {
      JsonAutomaton automaton(JsonObjectLimits{});
      ASSERT_TRUE(automaton.accept(std::string_view(document).substr(0, size)));
      const std::string whole = document.substr(0, size) + closing(automaton);
      EXPECT_TRUE(should_accept(whole)) << whole;
    }
  }
}

TEST(JsonObject, AcceptsNothingAfterTheObject) {
  for (int byte = 0; byte < 256; ++byte) {
    JsonAutomaton automaton(JsonObjectLimits{});
    ASSERT_TRUE(automaton.accept("{}"));
    EXPECT_FALSE(automaton.accept(static_cast<unsigned char>(byte)));
    EXPECT_TRUE(automaton.complete());
  }
}

TEST(JsonObject, RejectsWhatStrictParsersReject) {
  for (const char* text : {"[]",
                           "1",
                           "\"a\"",
                           "{,}",
                           "{\"a\"}",
                           "{\"a\":}",
                           "{\"a\":1,}",
                           "{\"a\":[1,]}",
                           "{\"a\":01}",
                           "{\"a\":-}",
                           "{\"a\":1.}",
                           "{\"a\":.5}",
                           "{\"a\":1e}",
                           "{\"a\":+1}",
                           "{\"a\":tru}",
                           "{\"a\":True}",
                           "{\"a\":NaN}",
                           "{'a':1}",
                           "{\"a\":[}",
                           "{\"a\":{]",
                           "{\"a\":\"\n\"}",
                           "{\"a\":\"\\x\"}",
                           "{\"a\":\"\\u12g4\"}",
                           "{\"a\":\"\\ud800\"}",
                           "{\"a\":\"\\udc00\"}",
                           "{\"a\":\"\\ud800\\u0041\"}",
                           "{\"a\":\"\xC0\xAF\"}",
                           "{\"a\":\"\xED\xA0\x80\"}",
                           "{\"a\":\"\xF4\x90\x80\x80\"}",
                           "{\"a\":\"\xE0\x80\x80\"}",
                           "{\"a\":\"\x80\"}",
                           "{\"a\":1e999}",
                           "\xEF\xBB\xBF{}",
                           "{} ",
                           "{\"a\" \"b\":1}"}) {
    EXPECT_FALSE(accepts(text)) << text;
    EXPECT_FALSE(should_accept(text)) << text;
  }
}

TEST(JsonObject, AgreesWithNlohmannOnEveryChangeOfAByte) {
  int accepted = 0, refused = 0;
  for (const std::string& document : documents()) {
    for (std::size_t at = 0; at < document.size(); ++at) {
      for (int byte = 0; byte < 256; ++byte) {
        std::string changed = document;
        changed[at] = static_cast<char>(byte);
        ASSERT_EQ(accepts(changed), should_accept(changed)) << changed;
        ++(accepts(changed) ? accepted : refused);
        std::string longer = document;
        longer.insert(at, 1, static_cast<char>(byte));
        ASSERT_EQ(accepts(longer), should_accept(longer)) << longer;
      }
      std::string shorter = document;
      shorter.erase(at, 1);
      ASSERT_EQ(accepts(shorter), should_accept(shorter)) << shorter;
    }
  }
  EXPECT_GT(accepted, 5000);
  EXPECT_GT(refused, 10000);
}

TEST(JsonObject, AgreesWithNlohmannOnRandomTexts) {
  constexpr std::string_view kPieces[] = {
      "{", "}",    "[",    "]", ",",  ":", "\"", "\"a\"", "1",       "-",       "0",        ".",
      "e", "true", "null", " ", "\\", "u", "d8", "00",    "\\ud83d", "\\ude00", "\xF0\x9F", "\x98\x80"};
  std::mt19937 random(4);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    JsonAutomaton automaton(JsonObjectLimits{});
    std::string text;
    for (int i = 0; i < 20; ++i) {
      const std::string_view piece = kPieces[random() % std::size(kPieces)];
      JsonAutomaton ahead = automaton;
      // Mostly pieces that fit: pure noise would end at its second byte.
      const bool fits = ahead.accept(piece);
      if (!fits && random() % 50 != 0) continue;
      automaton = ahead;
      text += piece;
    }
    ASSERT_EQ(accepts(text), should_accept(text)) << text;
    accepted += accepts(text);
    if (accepts(text)) continue;
    JsonAutomaton whole(JsonObjectLimits{});
    if (whole.accept(text)) {
      EXPECT_TRUE(should_accept(text + closing(whole))) << text;
    }
  }
  EXPECT_GT(accepted, 500);
}

TEST(JsonObject, BoundsTheDepth) {
  const auto nested = [](std::size_t depth) {
    return "{\"a\":" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
  };
  EXPECT_TRUE(accepts(nested(64)));
  EXPECT_FALSE(accepts(nested(65)));
  EXPECT_TRUE(accepts(nested(3), {.depth = 3}));
  EXPECT_FALSE(accepts(nested(4), {.depth = 3}));
  EXPECT_TRUE(accepts("{}", {.depth = 1}));
  EXPECT_CONTRACT(JsonAutomaton({.depth = 65}), "an object is 1 to 64 deep");
}

TEST(JsonObject, BoundsConsecutiveWhitespace) {
  const std::string most(20, ' ');
  EXPECT_TRUE(accepts(most + "{" + most + "\"a\"" + most + ":" + most + "1" + most + "," + most + "\"b\":[" +
                      most + "2" + most + "]" + most + "}"));
  for (const std::string& text :
       {most + " {}", "{" + most + "\n}", "{\"a\":1" + most + " }", "{\"a\" " + most + ":1}"})
    EXPECT_FALSE(accepts(text)) << text;
  EXPECT_TRUE(accepts("{\"a b\":[1,2]}", {.whitespace = 0}));
  EXPECT_FALSE(accepts("{\"a\":1 }", {.whitespace = 0}));
}

TEST(JsonObject, BoundsTheDigitsOfNumbers) {
  const auto number = [](const std::string& digits) { return "{\"a\":" + digits + "}"; };
  EXPECT_TRUE(accepts(number(std::string(32, '9') + "." + std::string(32, '9') + "e99")));
  EXPECT_TRUE(accepts(number("-" + std::string(32, '9'))));
  EXPECT_FALSE(accepts(number(std::string(33, '9'))));
  EXPECT_FALSE(accepts(number("0." + std::string(33, '9'))));
  EXPECT_FALSE(accepts(number("1e100")));
}

TEST(JsonObject, KeepsItsStateWhenAByteIsRefused) {
  for (const std::string& document : documents()) {
    JsonAutomaton automaton(JsonObjectLimits{});
    for (const char next : document) {
      for (int byte = 0; byte < 256; ++byte) {
        JsonAutomaton tried = automaton;
        if (!tried.accept(static_cast<unsigned char>(byte))) {
          ASSERT_EQ(tried, automaton) << document << " " << byte;
        }
      }
      ASSERT_TRUE(automaton.accept(static_cast<unsigned char>(next)));
    }
  }
}

}  // namespace
}  // namespace moeflux
