#include "base/object_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "base/expect_contract.h"

namespace moeflux {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

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

TEST_F(AnObjectReader, SaysWhichSizesItWouldTake) {
  EXPECT_EQ(message(reader.size("size", 4095)),
            "config.json: 'size' must be a whole number from 1 to 4095, found 4096");
  EXPECT_THAT(message(reader.size("zero", 10)),
              HasSubstr("'zero' must be a whole number from 1 to 10, found 0"));
  EXPECT_THAT(message(reader.size("negative", 10)), HasSubstr("found -1"));
  EXPECT_THAT(message(reader.size("float", 5000)), HasSubstr("found 4096.0"));
  EXPECT_THAT(message(reader.size("text", 10)), HasSubstr("found \"silu\""));
  EXPECT_THAT(message(reader.size("nothing", 10)), HasSubstr("found null"));
  EXPECT_THAT(message(reader.size("list", 10)), HasSubstr("found an array of 2"));
  EXPECT_THAT(message(reader.size("object", 10)), HasSubstr("found an object"));
  EXPECT_THAT(message(reader.size("huge", 4294967295u)), HasSubstr("found 18446744073709551615"));
}

TEST_F(AnObjectReader, NamesTheKeyThatIsMissingWhateverItsKind) {
  const std::string expected = "config.json: 'absent' is missing";
  EXPECT_EQ(message(reader.size("absent", 1)), expected);
  EXPECT_EQ(message(reader.number("absent", 0, 1)), expected);
  EXPECT_EQ(message(reader.boolean("absent")), expected);
  EXPECT_EQ(message(reader.text("absent")), expected);
  EXPECT_EQ(message(reader.object("absent")), expected);
  EXPECT_EQ(message(reader.texts("absent", 1)), expected);
}

TEST_F(AnObjectReader, ReadsNumbersWrittenEitherWay) {
  EXPECT_EQ(*reader.number("size", 1, 1e6), 4096.0);
  EXPECT_EQ(*reader.number("float", 1, 1e6), 4096.0);
  EXPECT_EQ(*reader.number("half", 0, 1), 0.5);
  EXPECT_EQ(*reader.number("negative", -2, 0), -1.0);
  EXPECT_THAT(message(reader.number("half", 1, 2)),
              HasSubstr("'half' must be a number from 1 to 2, found 0.5"));
  EXPECT_THAT(message(reader.number("text", 0, 1)), HasSubstr("must be a number"));
}

TEST_F(AnObjectReader, DoesNotTakeOneKindForAnother) {
  EXPECT_TRUE(*reader.boolean("yes"));
  EXPECT_EQ(*reader.text("text"), "silu");
  EXPECT_THAT(*reader.texts("list", 2), ElementsAre("a", "b"));
  EXPECT_THAT(message(reader.boolean("zero")), HasSubstr("'zero' must be true or false, found 0"));
  EXPECT_THAT(message(reader.text("yes")), HasSubstr("'yes' must be a string, found true"));
  EXPECT_THAT(message(reader.texts("list", 1)), HasSubstr("'list' must be an array of at most 1 strings"));
  EXPECT_THAT(message(reader.texts("mixed", 9)), HasSubstr("'mixed' must be an array of strings"));
  EXPECT_THAT(message(reader.object("list")), HasSubstr("'list' must be an object, found an array of 2"));
}

TEST_F(AnObjectReader, NamesThePlaceOfAnObjectInsideIt) {
  const auto inner = reader.object("object");
  ASSERT_TRUE(inner);
  EXPECT_EQ(message(inner->size("other", 1)), "config.json: object: 'other' is missing");
}

TEST_F(AnObjectReader, DoesNotHaveAKeyThatIsNull) {
  EXPECT_TRUE(reader.has("zero"));
  EXPECT_FALSE(reader.has("nothing"));
  EXPECT_FALSE(reader.has("absent"));
}

TEST_F(AnObjectReader, RefusesValuesThatItDoesNotSupportByName) {
  EXPECT_TRUE(reader.only("text", "silu"));
  EXPECT_TRUE(reader.only("absent", "silu"));
  EXPECT_TRUE(reader.only("nothing", "silu"));
  const Status refused = reader.only("text", "gelu");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::unsupported);
  EXPECT_EQ(refused.error().message(), "config.json: 'text' is \"silu\", and only \"gelu\" is supported");
}

TEST_F(AnObjectReader, KnowsWhichKeysNobodyAskedFor) {
  (void)reader.size("size", 1);
  (void)reader.has("zero");
  reader.ignore(std::array<std::string_view, 3>{"negative", "float", "never there"});
  EXPECT_THAT(reader.unknown_keys(),
              ElementsAre("half", "text", "yes", "nothing", "object", "list", "mixed", "huge"));
}

TEST(ObjectReaderOfOtherJson, IsRefused) {
  for (const char* text : {"[]", "1", "null", "\"x\""}) {
    const Json json = Json::parse(text);
    const auto reader = ObjectReader::as_object(json, "config.json");
    ASSERT_FALSE(reader) << text;
    EXPECT_THAT(reader.error().message(), HasSubstr("config.json: expected an object, found "));
  }
  EXPECT_CONTRACT(ObjectReader(Json(), "config.json"), "a ObjectReader reads an object");
}

TEST(ShownValues, AreOneShortLineWithoutControlCharacters) {
  EXPECT_EQ(shown(Json("a\nb")), "\"a\\nb\"");
  EXPECT_EQ(shown(Json(std::string("\x7f"))), "\"?\"");
  EXPECT_LT(shown(Json(std::string(1000, 'x'))).size(), 80u);
  EXPECT_EQ(shown(Json("\xff")), "\"\xef\xbf\xbd\"") << "what is not UTF-8 becomes the replacement character";
}

}  // namespace
}  // namespace moeflux
