#include "base/json/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "base/testing/states.h"

namespace moeflux {
namespace {

using test::States;
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

TEST(ParseJson, ParsesEveryKindOfValue) {
  const Json json = parsed(R"( {"z": [1, -2, 2.5, true, false, null], "a": {"text": "\u00e9\n"}, "e": []} )");
  EXPECT_EQ(json.dump(), R"({"z":[1,-2,2.5,true,false,null],"a":{"text":"é\n"},"e":[]})");
  EXPECT_EQ(parsed("7").dump(), "7");
  EXPECT_EQ(parsed("\"\"").dump(), "\"\"");
}

TEST(ParseJson, KeepsIntegersExact) {
  EXPECT_EQ(parsed("18446744073709551615").get<std::uint64_t>(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(parsed("-9223372036854775808").get<std::int64_t>(), std::numeric_limits<std::int64_t>::min());
}

TEST(ParseJson, ParsesIntegersBeyond64BitsAsDoubles) {
  const Json json = parsed(R"({"model_max_length": 1000000000000000019884624838656})");
  EXPECT_TRUE(json.find("model_max_length")->is_number_float());
  EXPECT_EQ(json.find("model_max_length")->get<double>(), 1e30);
}

TEST(ParseJson, NamesADuplicateKeyAndItsPlace) {
  EXPECT_THAT(refusal("{\n  \"hidden_size\": 1,\n  \"b\": {\"hidden_size\": 2},\n  \"hidden_size\": 3\n}"),
              States("a.json:4:3", "duplicate key", "'hidden_size'"));
  EXPECT_THAT(refusal(R"({"a":1,"a":2})"), States("a.json:1:8", "duplicate key", "'a'"));
  EXPECT_THAT(refusal(R"([{"q\"":1, "\u0071\"" :2}])"), States("a.json:1:12", "duplicate key", "'q\"'"));
  EXPECT_THAT(refusal(R"({"":1,"":2})"), States("a.json:1:7", "duplicate key", "''"));
}

TEST(ParseJson, ShortensHostileKeysAndReplacesControlCharacters) {
  const std::string key = "\\u001b[31m" + std::string(1000, 'x');
  const std::string message = refusal("{\"" + key + "\":1,\"" + key + "\":2}");
  EXPECT_THAT(message, HasSubstr("'?[31mxxx"));
  EXPECT_LT(message.size(), 120);
}

TEST(ParseJson, StatesWhatItExpectedAndFound) {
  EXPECT_THAT(refusal("{\n  \"a\": NaN}"), States("a.json:2:8", "'NaN'", "expected a value"));
  EXPECT_THAT(refusal("[-Infinity]"), States("a.json:1:3", "number", "digit"));
  EXPECT_THAT(refusal("[Infinity]"), States("a.json:1:2", "'Infinity'", "expected a value"));
  EXPECT_THAT(refusal("[1,]"), States("a.json:1:4", "unexpected ']'", "expected a value"));
  EXPECT_THAT(refusal("[1 2]"), States("a.json:1:4", "'2'", "expected ',' or ']'"));
  EXPECT_THAT(refusal("[1 \"two\"]"), States("a.json:1:4", "string 'two'", "expected ',' or ']'"));
  EXPECT_THAT(refusal("{\"a\" 1}"), States("a.json:1:6", "'1'", "expected ':'"));
  EXPECT_THAT(refusal("{\"a\": 1 \"b\": 2}"), States("a.json:1:9", "string 'b'", "expected ',' or '}'"));
  EXPECT_THAT(refusal("{a: 1}"), States("a.json:1:2", "'a'", "expected a key in quotes"));
  EXPECT_THAT(refusal("{\"a\": 1,}"), States("a.json:1:9", "unexpected '}'", "expected a key in quotes"));
  EXPECT_THAT(refusal("// no"), States("a.json:1:1", "'/'", "expected a value"));
  EXPECT_THAT(refusal("[\x1b]"), States("a.json:1:2", "byte 0x1b", "expected a value"));
}

TEST(ParseJson, RejectsTruncatedDocuments) {
  EXPECT_THAT(refusal(""), States("a.json:1:1", "end of the document", "expected a value"));
  EXPECT_THAT(refusal("[1\n"), States("a.json:2:1", "end of the document", "expected ',' or ']'"));
  EXPECT_THAT(refusal("{\"a\":1"), States("a.json:1:7", "end of the document", "expected ',' or '}'"));
  EXPECT_THAT(refusal("[\"abc"), States("a.json:1:6", "string", "closing quote"));
}

TEST(ParseJson, RejectsTextAfterTheDocument) {
  EXPECT_THAT(refusal("{} x"), States("a.json:1:4", "'x'", "after the end"));
  EXPECT_THAT(refusal("{}\n{}"), States("a.json:2:1", "'{'", "after the end"));
  EXPECT_THAT(refusal(std::string_view("{}\0{", 4)), States("a.json:1:3", "NUL"));
}

TEST(ParseJson, RejectsMalformedStrings) {
  EXPECT_THAT(refusal("[\"a\xff\"]"), States("a.json:1:4", "invalid UTF-8"));
  EXPECT_THAT(refusal("[\"\xc0\xaf\"]"), States("a.json:1:3", "invalid UTF-8"));
  EXPECT_THAT(refusal("[\"\xed\xa0\x80\"]"), States("a.json:1:4", "invalid UTF-8"));
  EXPECT_THAT(refusal("{\"\xff\":1}"), States("a.json:1:3", "invalid UTF-8"));
  EXPECT_THAT(refusal("[\"a\nb\"]"), States("a.json:1:4", "control character", "escaped"));
  EXPECT_THAT(refusal(R"(["\x41"])"), States("a.json:1:4", "unknown escape"));
  EXPECT_THAT(refusal(R"(["\u12G4"])"), States("a.json:1:7", "\\u", "four hexadecimal digits"));
  EXPECT_THAT(refusal(R"(["\ud800"])"), States("surrogate pair"));
  EXPECT_THAT(refusal(R"(["\udc00"])"), States("surrogate pair"));
}

TEST(ParseJson, RejectsByteOrderMarks) {
  EXPECT_THAT(refusal("\xEF\xBB\xBF{}"), States("a.json:1:1", "byte order mark"));
}

TEST(ParseJson, RejectsNumbersOutsideTheRangeOfDouble) {
  EXPECT_THAT(refusal("[1, 1e999]"), States("a.json:1:5", "'1e999'", "out of range"));
  EXPECT_THAT(refusal("-1e999"), States("a.json:1:1", "'-1e999'", "out of range"));
  for (const char* const text : {"01", "1.", ".5", "+1", "1e", "0x10", "- 1"}) EXPECT_NE(refusal(text), "");
}

TEST(ParseJson, LimitsSizeDepthAndValues) {
  const auto beyond = [](std::string_view text, JsonLimits limits) {
    return refusal(text, limits, ErrorCode::unsupported);
  };
  EXPECT_EQ(parsed("[1,2]", {.bytes = 5, .depth = 1, .values = 3}).size(), 2);
  EXPECT_THAT(beyond("[1,2]", {.bytes = 4}), States("a.json", "5 bytes", "at most 4"));
  EXPECT_THAT(beyond("[1,[]]", {.depth = 1}), States("a.json:1:4", "deeper than 1"));
  EXPECT_THAT(beyond("[1,{}]", {.depth = 1}), States("a.json:1:4", "deeper than 1"));
  EXPECT_THAT(beyond("[1,2]", {.values = 2}), States("more than 2 values"));
  EXPECT_THAT(beyond(std::string(1'000'000, '['), {}), States("a.json:1:65", "deeper than 64"));
}

TEST(ParseJson, DoesNotTakeQuadraticTimeForManyKeys) {
  // Quadratic time would be 10^10 comparisons, which exceed the time limit of the test.
  std::string text = "{";
  for (int i = 0; i < 100'000; ++i) text += "\"key" + std::to_string(i) + "\":0,";
  text += "\"key0\":0}";
  EXPECT_THAT(refusal(text), States("duplicate key", "'key0'"));
}

RC_GTEST_PROP(ParseJson, ParsesWhatTheLibraryWrites,
              (const std::vector<std::string>& texts, std::int64_t number)) {
  Json array = Json::array({number});
  for (const std::string& text : texts) array.push_back({{"text", text}});
  const std::string written = array.dump(-1, ' ', false, Json::error_handler_t::replace);
  const auto again = parse_json(written, "a.json");
  RC_ASSERT(again.has_value());
  RC_ASSERT(again->dump() == written);
}

RC_GTEST_PROP(ParseJson, ParsesOrRejectsAnyBytes, (std::string noise)) {
  // Random bytes mixed with JSON punctuation get further into the parser than random bytes alone.
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
