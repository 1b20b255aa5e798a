#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace moeflux {
namespace {

using testing::HasSubstr;
using testing::Not;

Json parsed(std::string_view text, JsonLimits limits = {}) {
  auto json = parse_json(text, "a.json", limits);
  EXPECT_TRUE(json) << text << ": " << (json ? "" : json.error().message());
  return json ? *std::move(json) : Json();
}

std::string refusal(std::string_view text, JsonLimits limits = {}, ErrorCode code = ErrorCode::corrupt_data) {
  const auto json = parse_json(text, "a.json", limits);
  EXPECT_FALSE(json) << text;
  if (json) return "";
  EXPECT_EQ(json.error().code(), code);
  EXPECT_THAT(json.error().message(), Not(HasSubstr("json.exception")));
  return json.error().message();
}

TEST(ParseJson, ReadsEveryKindOfValue) {
  const Json json = parsed(R"( {"z": [1, -2, 2.5, true, false, null], "a": {"text": "\u00e9\n"}, "e": []} )");
  EXPECT_EQ(json.dump(), R"({"z":[1,-2,2.5,true,false,null],"a":{"text":"é\n"},"e":[]})");
  EXPECT_EQ(parsed("7").dump(), "7");
  EXPECT_EQ(parsed("\"\"").dump(), "\"\"");
}

TEST(ParseJson, KeepsIntegersExact) {
  EXPECT_EQ(parsed("18446744073709551615").get<std::uint64_t>(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(parsed("-9223372036854775808").get<std::int64_t>(), std::numeric_limits<std::int64_t>::min());
}

TEST(ParseJson, ReadsIntegersBeyond64BitsAsDoubles) {
  const Json json = parsed(R"({"model_max_length": 1000000000000000019884624838656})");
  EXPECT_TRUE(json.find("model_max_length")->is_number_float());
  EXPECT_EQ(json.find("model_max_length")->get<double>(), 1e30);
}

TEST(ParseJson, NamesADuplicateKeyWhereItIs) {
  EXPECT_EQ(refusal("{\n  \"hidden_size\": 1,\n  \"b\": {\"hidden_size\": 2},\n  \"hidden_size\": 3\n}"),
            "a.json:4:3: duplicate key 'hidden_size'");
  EXPECT_EQ(refusal(R"({"a":1,"a":2})"), "a.json:1:8: duplicate key 'a'");
  EXPECT_EQ(refusal(R"([{"q\"":1, "\u0071\"" :2}])"), "a.json:1:12: duplicate key 'q\"'");
  EXPECT_EQ(refusal(R"({"":1,"":2})"), "a.json:1:7: duplicate key ''");
}

TEST(ParseJson, ShowsHostileKeysShortAndHarmless) {
  const std::string key = "\\u001b[31m" + std::string(1000, 'x');
  const std::string message = refusal("{\"" + key + "\":1,\"" + key + "\":2}");
  EXPECT_THAT(message, HasSubstr("duplicate key '?[31mxxx"));
  EXPECT_LT(message.size(), 120);
}

TEST(ParseJson, SaysWhatItExpectedAndFound) {
  EXPECT_EQ(refusal("{\n  \"a\": NaN}"), "a.json:2:8: unexpected 'NaN', expected a value");
  EXPECT_EQ(refusal("[-Infinity]"), "a.json:1:3: number that lacks a digit");
  EXPECT_EQ(refusal("[Infinity]"), "a.json:1:2: unexpected 'Infinity', expected a value");
  EXPECT_EQ(refusal("[1,]"), "a.json:1:4: unexpected ']', expected a value");
  EXPECT_EQ(refusal("[1 2]"), "a.json:1:4: unexpected '2', expected ',' or ']'");
  EXPECT_EQ(refusal("[1 \"two\"]"), "a.json:1:4: unexpected string 'two', expected ',' or ']'");
  EXPECT_EQ(refusal("{\"a\" 1}"), "a.json:1:6: unexpected '1', expected ':' after the key");
  EXPECT_EQ(refusal("{\"a\": 1 \"b\": 2}"), "a.json:1:9: unexpected string 'b', expected ',' or '}'");
  EXPECT_EQ(refusal("{a: 1}"), "a.json:1:2: unexpected 'a', expected a key in quotes");
  EXPECT_EQ(refusal("{\"a\": 1,}"), "a.json:1:9: unexpected '}', expected a key in quotes");
  EXPECT_EQ(refusal("// no"), "a.json:1:1: unexpected '/', expected a value");
  EXPECT_EQ(refusal("[\x1b]"), "a.json:1:2: unexpected byte 0x1b, expected a value");
}

TEST(ParseJson, RefusesDocumentsThatEndEarly) {
  EXPECT_EQ(refusal(""), "a.json:1:1: unexpected end of the document, expected a value");
  EXPECT_EQ(refusal("[1\n"), "a.json:2:1: unexpected end of the document, expected ',' or ']'");
  EXPECT_EQ(refusal("{\"a\":1"), "a.json:1:7: unexpected end of the document, expected ',' or '}'");
  EXPECT_EQ(refusal("[\"abc"), "a.json:1:6: string without a closing quote");
}

TEST(ParseJson, RefusesTextAfterTheDocument) {
  EXPECT_EQ(refusal("{} x"), "a.json:1:4: unexpected 'x' after the end of the document");
  EXPECT_EQ(refusal("{}\n{}"), "a.json:2:1: unexpected '{' after the end of the document");
  EXPECT_EQ(refusal(std::string_view("{}\0{", 4)), "a.json:1:3: NUL byte");
}

TEST(ParseJson, RefusesWhatTheStringGrammarForbids) {
  EXPECT_EQ(refusal("[\"a\xff\"]"), "a.json:1:4: invalid UTF-8 in a string");
  EXPECT_EQ(refusal("[\"\xc0\xaf\"]"), "a.json:1:3: invalid UTF-8 in a string");
  EXPECT_EQ(refusal("[\"\xed\xa0\x80\"]"), "a.json:1:4: invalid UTF-8 in a string");
  EXPECT_EQ(refusal("{\"\xff\":1}"), "a.json:1:3: invalid UTF-8 in a string");
  EXPECT_EQ(refusal("[\"a\nb\"]"), "a.json:1:4: control character in a string; it must be escaped");
  EXPECT_EQ(refusal(R"(["\x41"])"), "a.json:1:4: unknown escape in a string");
  EXPECT_EQ(refusal(R"(["\u12G4"])"), "a.json:1:7: \\u without four hexadecimal digits");
  EXPECT_THAT(refusal(R"(["\ud800"])"), HasSubstr("half of a surrogate pair"));
  EXPECT_THAT(refusal(R"(["\udc00"])"), HasSubstr("half of a surrogate pair"));
}

TEST(ParseJson, RefusesByteOrderMarks) {
  EXPECT_THAT(refusal("\xEF\xBB\xBF{}"), HasSubstr("a.json:1:1: starts with a byte order mark"));
}

TEST(ParseJson, RefusesNumbersThatNoDoubleHolds) {
  EXPECT_EQ(refusal("[1, 1e999]"), "a.json:1:5: number '1e999' is out of range");
  EXPECT_EQ(refusal("-1e999"), "a.json:1:1: number '-1e999' is out of range");
  for (const char* const text : {"01", "1.", ".5", "+1", "1e", "0x10", "- 1"}) EXPECT_NE(refusal(text), "");
}

TEST(ParseJson, LimitsSizeDepthAndValues) {
  const auto beyond = [](std::string_view text, JsonLimits limits) {
    return refusal(text, limits, ErrorCode::unsupported);
  };
  EXPECT_EQ(parsed("[1,2]", {.bytes = 5, .depth = 1, .values = 3}).size(), 2);
  EXPECT_EQ(beyond("[1,2]", {.bytes = 4}), "a.json: 5 bytes, expected at most 4");
  EXPECT_EQ(beyond("[1,[]]", {.depth = 1}), "a.json:1:4: nested deeper than 1");
  EXPECT_EQ(beyond("[1,{}]", {.depth = 1}), "a.json:1:4: nested deeper than 1");
  EXPECT_THAT(beyond("[1,2]", {.values = 2}), HasSubstr("more than 2 values"));
  EXPECT_THAT(beyond(std::string(1'000'000, '['), {}), HasSubstr("a.json:1:65: nested deeper than 64"));
}

TEST(ParseJson, ManyKeysTakeNoQuadraticTime) {
  // Quadratic would be 10^10 comparisons and the test's time limit.
  std::string text = "{";
  for (int i = 0; i < 100'000; ++i) text += "\"key" + std::to_string(i) + "\":0,";
  text += "\"key0\":0}";
  EXPECT_THAT(refusal(text), HasSubstr("duplicate key 'key0'"));
}

RC_GTEST_PROP(ParseJson, WhatTheLibraryWritesReadsBack,
              (const std::vector<std::string>& texts, std::int64_t number)) {
  Json array = Json::array({number});
  for (const std::string& text : texts) array.push_back({{"text", text}});
  const std::string written = array.dump(-1, ' ', false, Json::error_handler_t::replace);
  const auto again = parse_json(written, "a.json");
  RC_ASSERT(again.has_value());
  RC_ASSERT(again->dump() == written);
}

RC_GTEST_PROP(ParseJson, AnyBytesAreADocumentOrAnError, (std::string noise)) {
  // Punctuation of JSON between random bytes gets further than random bytes alone.
  const std::string alphabet = "{}[]:,\"\\0e-.tn ";
  for (char& c : noise) {
    if (*rc::gen::inRange(0, 4) != 0) c = alphabet[*rc::gen::inRange<std::size_t>(0, alphabet.size())];
  }
  const auto json = parse_json(noise, "a.json");
  if (!json) RC_ASSERT(json.error().message().starts_with("a.json:"));
  RC_ASSERT(json.has_value() == Json::accept(noise) || noise.find('{') != std::string::npos ||
            noise.find('\0') != std::string::npos);
}

}  // namespace
}  // namespace moeflux
