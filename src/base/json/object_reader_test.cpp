#include "base/json/object_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "base/testing/expect_contract.h"
#include "base/testing/states.h"

namespace moeflux {
namespace {

using test::States;
using testing::ElementsAre;

struct AnObjectReader : testing::Test {
  Json json = Json::parse(R"({"size": 4096, "zero": 0, "negative": -1, "float": 4096.0, "half": 0.5,
                              "text": "silu", "yes": true, "nothing": null, "object": {"inner": 1},
                              "list": ["a", "b"], "mixed": ["a", 1], "huge": 18446744073709551615})");
  ObjectReader reader{json, "config.json"};

  template <class T>
  std::string message(const Result<T>& result) {
    if (result) return "no error";
    EXPECT_THAT(result.error().message(), testing::StartsWith("config.json: "));
    return result.error().message();
  }
};

TEST_F(AnObjectReader, ReadsSizesInsideTheirLimits) {
  EXPECT_EQ(*reader.size("size", 4096), 4096u);
  EXPECT_EQ(*reader.size("zero", 10, 0), 0u);
}

TEST_F(AnObjectReader, StatesTheRangeOfASize) {
  EXPECT_THAT(message(reader.size("size", 4095)),
              States("config.json", "'size'", "a whole number", "from 1 to 4095", "found 4096"));
  EXPECT_THAT(message(reader.size("zero", 10)),
              States("'zero'", "a whole number", "from 1 to 10", "found 0"));
  EXPECT_THAT(message(reader.size("negative", 10)), States("'negative'", "found -1"));
  EXPECT_THAT(message(reader.size("float", 5000)), States("'float'", "found 4096.0"));
  EXPECT_THAT(message(reader.size("text", 10)), States("'text'", "found \"silu\""));
  EXPECT_THAT(message(reader.size("nothing", 10)), States("'nothing'", "found null"));
  EXPECT_THAT(message(reader.size("list", 10)), States("'list'", "found an array of 2"));
  EXPECT_THAT(message(reader.size("object", 10)), States("'object'", "found an object"));
  EXPECT_THAT(message(reader.size("huge", 4294967295u)), States("'huge'", "found 18446744073709551615"));
}

TEST_F(AnObjectReader, NamesAMissingKeyOfAnyType) {
  const auto names_the_key = States("config.json", "'absent'", "missing");
  EXPECT_THAT(message(reader.size("absent", 1)), names_the_key);
  EXPECT_THAT(message(reader.number("absent", 0, 1)), names_the_key);
  EXPECT_THAT(message(reader.boolean("absent")), names_the_key);
  EXPECT_THAT(message(reader.text("absent")), names_the_key);
  EXPECT_THAT(message(reader.object("absent")), names_the_key);
  EXPECT_THAT(message(reader.texts("absent", 1)), names_the_key);
}

TEST_F(AnObjectReader, ReadsIntegersAndFractionsAsNumbers) {
  EXPECT_EQ(*reader.number("size", 1, 1e6), 4096.0);
  EXPECT_EQ(*reader.number("float", 1, 1e6), 4096.0);
  EXPECT_EQ(*reader.number("half", 0, 1), 0.5);
  EXPECT_EQ(*reader.number("negative", -2, 0), -1.0);
  EXPECT_THAT(message(reader.number("half", 1, 2)), States("'half'", "a number", "from 1 to 2", "found 0.5"));
  EXPECT_THAT(message(reader.number("text", 0, 1)), States("'text'", "a number", "found \"silu\""));
}

TEST_F(AnObjectReader, RejectsValuesOfAnotherType) {
  EXPECT_TRUE(*reader.boolean("yes"));
  EXPECT_EQ(*reader.text("text"), "silu");
  EXPECT_THAT(*reader.texts("list", 2), ElementsAre("a", "b"));
  EXPECT_THAT(message(reader.boolean("zero")), States("'zero'", "true or false", "found 0"));
  EXPECT_THAT(message(reader.text("yes")), States("'yes'", "a string", "found true"));
  EXPECT_THAT(message(reader.texts("list", 1)), States("'list'", "an array of at most 1 strings"));
  EXPECT_THAT(message(reader.texts("mixed", 9)), States("'mixed'", "an array of strings"));
  EXPECT_THAT(message(reader.object("list")), States("'list'", "an object", "found an array of 2"));
}

TEST_F(AnObjectReader, NamesTheNestedObjectInItsErrors) {
  const auto inner = reader.object("object");
  ASSERT_TRUE(inner);
  EXPECT_THAT(message(inner->size("other", 1)), States("config.json: object", "'other'", "missing"));
}

TEST_F(AnObjectReader, TreatsNullAsAbsent) {
  EXPECT_TRUE(reader.has("zero"));
  EXPECT_FALSE(reader.has("nothing"));
  EXPECT_FALSE(reader.has("absent"));
}

TEST_F(AnObjectReader, NamesUnsupportedValues) {
  EXPECT_TRUE(reader.only("text", "silu"));
  EXPECT_TRUE(reader.only("absent", "silu"));
  EXPECT_TRUE(reader.only("nothing", "silu"));
  const Status refused = reader.only("text", "gelu");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::unsupported);
  EXPECT_THAT(refused, States("config.json", "'text'", "\"silu\"", "\"gelu\""));
}

TEST_F(AnObjectReader, ListsKeysThatWereNeitherReadNorIgnored) {
  (void)reader.size("size", 1);
  (void)reader.has("zero");
  reader.ignore(std::array<std::string_view, 3>{"negative", "float", "never there"});
  EXPECT_THAT(reader.unknown_keys(),
              ElementsAre("half", "text", "yes", "nothing", "object", "list", "mixed", "huge"));
}

TEST(ObjectReaderOfOtherJson, IsRejected) {
  for (const char* text : {"[]", "1", "null", "\"x\""}) {
    const Json json = Json::parse(text);
    const auto reader = ObjectReader::as_object(json, "config.json");
    ASSERT_FALSE(reader) << text;
    EXPECT_THAT(reader, States("config.json", "an object", "found"));
  }
  EXPECT_CONTRACT(ObjectReader(Json(), "config.json"), "an ObjectReader reads an object");
}

TEST(ShownValues, AreOneShortLineWithoutControlCharacters) {
  EXPECT_EQ(shown(Json("a\nb")), "\"a\\nb\"");
  EXPECT_EQ(shown(Json(std::string("\x7f"))), "\"?\"");
  EXPECT_LT(shown(Json(std::string(1000, 'x'))).size(), 80u);
  EXPECT_EQ(shown(Json("\xff")), "\"\xef\xbf\xbd\"") << "invalid UTF-8 becomes the replacement character";
}

}  // namespace
}  // namespace moeflux
