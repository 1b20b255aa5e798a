#include "source/safetensors/shard_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/testing/states.h"

namespace moeflux {
namespace {

using testing::ElementsAre;
using testing::Pair;

using Pairs = std::vector<std::pair<std::string, std::string>>;

Status collect(std::string_view json, Pairs& pairs) {
  return visit_weight_map(json, "index.json", [&](std::string_view tensor, std::string_view file) -> Status {
    pairs.emplace_back(tensor, file);
    return {};
  });
}

TEST(WeightMap, IsVisitedInFileOrder) {
  Pairs pairs;
  const Status status =
      collect(R"({"metadata": {"total_size": 12, "of": [1, {"weight_map": "no"}], "x": null},
                                    "weight_map": {"b": "2.safetensors", "a": "1.safetensors"},
                                    "after": [true, -1, 0.5, "text"]})",
              pairs);
  ASSERT_TRUE(status) << status.error().message();
  EXPECT_THAT(pairs, ElementsAre(Pair("b", "2.safetensors"), Pair("a", "1.safetensors")));
}

TEST(WeightMap, MayBeEmpty) {
  Pairs pairs;
  EXPECT_TRUE(collect(R"({"weight_map": {}})", pairs));
  EXPECT_TRUE(pairs.empty());
}

TEST(WeightMap, StopsAtTheErrorOfItsVisitor) {
  int visits = 0;
  const Status status = visit_weight_map(R"({"weight_map": {"a": "1", "b": "2", "c": "3"}})", "index.json",
                                         [&](std::string_view tensor, std::string_view) -> Status {
                                           ++visits;
                                           if (tensor == "b") return Error{ErrorCode::not_found, "no b"};
                                           return {};
                                         });
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), ErrorCode::not_found);
  EXPECT_EQ(status.error().message(), "no b");
  EXPECT_EQ(visits, 2);
}

struct BadIndex {
  const char* name;
  std::string json;
  std::vector<std::string> facts;
};
void PrintTo(const BadIndex& bad, std::ostream* out) { *out << bad.name; }

std::string map_to(const std::string& value) { return R"({"weight_map": {"t": )" + value + "}}"; }

const std::vector<BadIndex>& bad_indexes() {
  static const std::vector<BadIndex> indexes{
      {"Nothing", "", {"JSON"}},
      {"CutShort", R"({"weight_map": {"t": "a)", {"JSON"}},
      {"NulByte", std::string("{}\0", 3), {"JSON"}},
      {"Array", "[]", {"array", "object"}},
      {"Number", "7", {"object"}},
      {"String", "\"x\"", {"object"}},
      {"NoMap", R"({"metadata": {}})", {"'weight_map'", "missing"}},
      {"MapIsAString", R"({"weight_map": "x"})", {"'weight_map'", "object"}},
      {"MapIsAnArray", R"({"weight_map": ["x"]})", {"array"}},
      {"MapTwice", R"({"weight_map": {}, "weight_map": {}})", {"'weight_map'", "twice"}},
      {"FileIsANumber", map_to("7"), {"'weight_map'", "'t'"}},
      {"FileIsNull", map_to("null"), {"'t'"}},
      {"FileIsAnObject", map_to("{}"), {"'weight_map'", "object"}},
      {"ParentDirectory", map_to(R"("../x.safetensors")"), {"'t'", "'../x.safetensors'", "beside"}},
      {"AbsolutePath", map_to(R"("/x.safetensors")"), {"'t'", "beside"}},
      {"Folder", map_to(R"("sub/x.safetensors")"), {"'t'", "beside"}},
      {"DotDot", map_to(R"("..")"), {"'t'", "beside"}},
      {"EmptyName", map_to(R"("")"), {"'t'", "beside"}},
      {"NameWithNul", map_to(R"("a\u0000b")"), {"'t'", "beside"}},
      {"DeepMetadata", R"({"metadata": )" + std::string(40, '['), {"deeply"}},
  };
  return indexes;
}

class BadWeightMap : public testing::TestWithParam<BadIndex> {};

TEST_P(BadWeightMap, IsRejectedWithAReason) {
  Pairs pairs;
  const Status status = collect(GetParam().json, pairs);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), ErrorCode::corrupt_data);
  EXPECT_THAT(status.error().message(), testing::StartsWith("index.json: "));
  EXPECT_THAT(status.error().message(),
              testing::MakePolymorphicMatcher(test::StatesMatcher(GetParam().facts)));
  EXPECT_TRUE(pairs.empty());
}

INSTANTIATE_TEST_SUITE_P(, BadWeightMap, testing::ValuesIn(bad_indexes()),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

}  // namespace
}  // namespace moeflux
