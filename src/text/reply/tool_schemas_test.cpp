#include "text/reply/tool_schemas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "base/testing/states.h"

namespace moeflux {
namespace {

using test::States;

Json parsed(std::string_view text) {
  Result<Json> value = parse_json(text, "a test");
  EXPECT_TRUE(value) << text;
  return value ? *std::move(value) : Json();
}

std::string typed(std::string_view schema, std::string_view text) {
  std::string json;
  append_typed_value(text, types_of_schema(parsed(schema)), json);
  return json;
}

struct Row {
  const char* schema;
  const char* text;
  const char* json;
};

TEST(ToolSchemas, ValuesGetTheTypeOfTheirSchema) {
  const Row rows[] = {
      {R"({"type":"string"})", "5", R"("5")"},
      {R"({"type":"string"})", "null", R"("null")"},
      {R"({"type":"string"})", " a\t\"b\"\\\n\x01", R"(" a\t\"b\"\\\n\u0001")"},
      {R"({"type":"string"})", "é", R"("é")"},
      {R"({"type":"string"})", "", R"("")"},
      {R"({"type":"integer"})", "5", "5"},
      {R"({"type":"integer"})", " -17\n", "-17"},
      {R"({"type":"integer"})", "5.0", "5"},
      {R"({"type":"integer"})", "5.5", R"("5.5")"},
      {R"({"type":"integer"})", "5.", R"("5.")"},
      {R"({"type":"integer"})", "05", R"("05")"},
      {R"({"type":"integer"})", "1-2", R"("1-2")"},
      {R"({"type":"integer"})", "five", R"("five")"},
      {R"({"type":"integer"})", "123456789012345678901234567890", "123456789012345678901234567890"},
      {R"({"type":"integer"})", "", R"("")"},
      {R"({"type":"number"})", "5", "5"},
      {R"({"type":"number"})", "-2.5e3", "-2.5e3"},
      {R"({"type":"number"})", "1e999", R"("1e999")"},
      {R"({"type":"number"})", "NaN", R"("NaN")"},
      {R"({"type":"number"})", "true", R"("true")"},
      {R"({"type":"boolean"})", "true", "true"},
      {R"({"type":"boolean"})", "True", "true"},
      {R"({"type":"boolean"})", "False", "false"},
      {R"({"type":"boolean"})", "yes", R"("yes")"},
      {R"({"type":"boolean"})", "1", R"("1")"},
      {R"({"type":"null"})", "None", "null"},
      {R"({"type":"object"})", R"( {"a": [1, 2]} )", R"({"a": [1, 2]})"},
      {R"({"type":"object"})", "{'a': 1}", R"("{'a': 1}")"},
      {R"({"type":"object"})", "[1]", R"("[1]")"},
      {R"({"type":"array"})", "[1, {}]", "[1, {}]"},
      {R"({"type":"array"})", "1, 2", R"("1, 2")"},
      {R"({"type":["string","null"]})", "null", "null"},
      {R"({"type":["string","null"]})", "nothing", R"("nothing")"},
      {R"({"type":["string","integer"]})", "5", "5"},
      {R"({"type":"integer","nullable":true})", "None", "null"},
      {R"({"type":"integer","nullable":false})", "null", R"("null")"},
      {R"({"anyOf":[{"type":"integer"},{"type":"null"}]})", "null", "null"},
      {R"({"oneOf":[{"type":"boolean"},{"type":"number"}]})", "2.5", "2.5"},
      {R"({"allOf":[{"type":["integer","string"]},{"type":"integer"}]})", "7", "7"},
      {R"({"allOf":[{"type":"string"},{"type":"integer"}]})", "7", R"("7")"},
      {R"({"enum":["1","2"]})", "1", R"("1")"},
      {R"({"enum":[1,2]})", "1", "1"},
      {R"({"enum":["auto",1]})", "auto", R"("auto")"},
      {R"({"const":true})", "True", "true"},
      {R"({"properties":{"a":{}}})", R"({"a":1})", R"({"a":1})"},
      {R"({"items":{"type":"string"}})", R"(["a"])", R"(["a"])"},
      {R"({"$ref":"#/$defs/point"})", R"({"x":1})", R"("{\"x\":1}")"},
      {R"({"type":"color"})", "5", R"("5")"},
      {R"({"type":5})", "5", R"("5")"},
      {R"({})", "5", "5"},
      {R"({"description":"anything"})", "words", R"("words")"},
      {R"(true)", "[1]", "[1]"},
      {R"(false)", "1", R"("1")"},
      {R"("integer")", "1", R"("1")"},
  };
  for (const Row& row : rows)
    EXPECT_EQ(typed(row.schema, row.text), row.json) << row.schema << " " << row.text;
}

TEST(ToolSchemas, CombinationsAreFollowedUpToALimit) {
  std::string schema = R"({"type":"integer"})";
  for (int i = 0; i < 8; ++i) schema = R"({"anyOf":[)" + schema + "]}";
  EXPECT_EQ(types_of_schema(parsed(schema)), JsonTypes(JsonTypes::integer));
  schema = R"({"anyOf":[)" + schema + "]}";
  EXPECT_EQ(types_of_schema(parsed(schema)), JsonTypes(JsonTypes::string));
}

TEST(ToolSchemas, ReadsTheParametersOfEachTool) {
  const auto schemas = ToolSchemas::read(parsed(R"([
      {"type":"function","function":{"name":"add","parameters":{"type":"object",
        "properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"number"}}}},
      {"type":"function","function":{"name":"now"}},
      {"type":"function","function":{"name":"now","parameters":{"properties":{"x":{"type":"null"}}}}},
      {"function":{"name":"say","parameters":{"properties":{"text":{"type":"string"}},
        "additionalProperties":false}}}
    ])"));
  ASSERT_TRUE(schemas) << schemas.error().message();
  EXPECT_EQ(schemas->size(), 3u);
  ASSERT_NE(schemas->find("add"), nullptr);
  EXPECT_EQ(schemas->find("add")->types_of("a"), JsonTypes(JsonTypes::integer));
  EXPECT_EQ(schemas->find("add")->types_of("b"), JsonTypes(JsonTypes::number));
  EXPECT_EQ(schemas->find("now")->types_of("x"), JsonTypes(JsonTypes::string));
  EXPECT_EQ(schemas->find("say")->types_of("other"), JsonTypes(JsonTypes::string));
  EXPECT_EQ(schemas->find("subtract"), nullptr);
}

TEST(ToolSchemas, NamesTheBadValueAndItsPlace) {
  const auto message = [](std::string_view text) {
    const auto schemas = ToolSchemas::read(parsed(text));
    EXPECT_FALSE(schemas) << text;
    return schemas ? std::string() : schemas.error().message();
  };
  EXPECT_THAT(message("{}"), States("tools", "list", "an object"));
  EXPECT_THAT(message("[5]"), States("tools[0]"));
  EXPECT_THAT(message(R"([{"type":"function"}])"), States("'function'", "missing"));
  EXPECT_THAT(message(R"([{"function":{"name":"a"}},{"function":{}}])"), States("tools[1]"));
  EXPECT_THAT(message(R"([{"function":{"name":""}}])"), States("'name'", "1 to 256 bytes", "found 0"));
  EXPECT_THAT(message(R"([{"function":{"name":"a","parameters":[]}}])"), States("'parameters'"));
  EXPECT_THAT(message(R"([{"function":{"name":"a","parameters":{"properties":3}}}])"),
              States("'properties'"));

  Json many = Json::array();
  for (std::size_t i = 0; i <= ToolSchemas::kMaxTools; ++i) many.push_back(Json::object());
  EXPECT_THAT(ToolSchemas::read(many), States("1024 tools", 1025));
}

}  // namespace
}  // namespace moeflux
