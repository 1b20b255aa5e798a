#include "source/quantization.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/testing/states.h"

namespace moeflux {
namespace {

using test::States;
using testing::ElementsAre;
using testing::IsEmpty;

struct AQuantization : testing::Test {
  Notes notes;

  Result<Quantization> parse(std::string_view text) {
    notes.clear();
    const Json json = Json::parse(text);
    const ObjectReader config(json, "config.json");
    return parse_quantization(config, notes);
  }
  std::string refusal(std::string_view text, ErrorCode code) {
    const auto quantization = parse(text);
    if (quantization) return "no error";
    EXPECT_EQ(quantization.error().code(), code);
    EXPECT_THAT(quantization.error().message(), testing::StartsWith("config.json: quantization"));
    return quantization.error().message();
  }
};

TEST_F(AQuantization, IsNoneIfTheConfigHasNone) {
  for (const char* text : {"{}", R"({"quantization": null, "quantization_config": null})"}) {
    const auto quantization = parse(text);
    ASSERT_TRUE(quantization) << quantization.error().message();
    EXPECT_EQ(quantization->method(), Quantization::Method::none);
  }
}

TEST_F(AQuantization, OfMlxHasDefaultsAndOverridesByModule) {
  const auto quantization = parse(R"({"quantization": {
      "group_size": 64, "bits": 4, "mode": "affine", "a.gate": {"group_size": 32, "bits": 8},
      "a.plain": false, "a.usual": true, "a.moded": {"mode": "affine", "group_size": 128, "bits": 3}}})");
  ASSERT_TRUE(quantization) << quantization.error().message();
  EXPECT_EQ(quantization->method(), Quantization::Method::affine);
  EXPECT_EQ(quantization->of_module("a.other"), (AffineParameters{4, 64}));
  EXPECT_EQ(quantization->of_module("a.gate"), (AffineParameters{8, 32}));
  EXPECT_EQ(quantization->of_module("a.moded"), (AffineParameters{3, 128}));
  EXPECT_EQ(quantization->of_module("a.usual"), (AffineParameters{4, 64}));
  EXPECT_EQ(quantization->of_module("a.plain"), std::nullopt);
  EXPECT_THAT(notes, IsEmpty());
}

TEST_F(AQuantization, InsistsOnlyOnModulesWithAnOverrideOfTheirOwn) {
  const auto quantization =
      parse(R"({"quantization": {"group_size": 64, "bits": 4, "a": {"group_size": 64, "bits": 8}, "b": false,
                                 "c": true}})");
  ASSERT_TRUE(quantization);
  EXPECT_TRUE(quantization->insists_on("a"));
  EXPECT_TRUE(quantization->insists_on("c"));
  EXPECT_FALSE(quantization->insists_on("b"));
  EXPECT_FALSE(quantization->insists_on("d"));
}

TEST_F(AQuantization, IsReadFromTheCopyOfMlx) {
  const auto quantization = parse(R"({"quantization_config": {"group_size": 32, "bits": 6}})");
  ASSERT_TRUE(quantization) << quantization.error().message();
  EXPECT_EQ(quantization->of_module("a"), (AffineParameters{6, 32}));
}

TEST_F(AQuantization, PrefersTheOriginalToADifferentCopyWithANote) {
  const auto same = parse(R"({"quantization": {"group_size": 64, "bits": 4},
                              "quantization_config": {"bits": 4, "group_size": 64}})");
  ASSERT_TRUE(same);
  const auto differing = parse(R"({"quantization": {"group_size": 64, "bits": 4},
                                   "quantization_config": {"group_size": 64, "bits": 8}})");
  ASSERT_TRUE(differing) << differing.error().message();
  EXPECT_EQ(differing->of_module("a"), (AffineParameters{4, 64}));
  EXPECT_THAT(notes, ElementsAre(States("config.json", "'quantization'", "'quantization_config'", "differ")));
}

TEST_F(AQuantization, IgnoresTheOrderOfKeys) {
  ASSERT_TRUE(parse(R"({"quantization": {"group_size": 64, "bits": 4, "a": {"bits": 8, "group_size": 64}},
      "quantization_config": {"a": {"group_size": 64, "bits": 8}, "bits": 4, "group_size": 64}})"));
  EXPECT_THAT(notes, IsEmpty());
}

TEST_F(AQuantization, OfHuggingFaceMayBeFp8InBlocks) {
  const auto quantization = parse(R"({"quantization_config": {"quant_method": "fp8", "fmt": "e4m3",
      "activation_scheme": "dynamic", "weight_block_size": [128, 128]}})");
  ASSERT_TRUE(quantization) << quantization.error().message();
  EXPECT_EQ(quantization->method(), Quantization::Method::fp8);
}

TEST_F(AQuantization, RejectsOtherFp8FormatsByName) {
  EXPECT_THAT(refusal(R"({"quantization_config": {"quant_method": "fp8", "fmt": "e5m2",
                                                  "weight_block_size": [128, 128]}})",
                      ErrorCode::unsupported),
              States("fp8", "'e5m2'"));
  EXPECT_THAT(refusal(R"({"quantization_config": {"quant_method": "fp8", "fmt": "e4m3",
                                                  "weight_block_size": [64, 128]}})",
                      ErrorCode::unsupported),
              States("'weight_block_size'", "[64,128]", "[128,128]"));
  EXPECT_THAT(
      refusal(R"({"quantization_config": {"quant_method": "fp8", "fmt": "e4m3"}})", ErrorCode::corrupt_data),
      States("'weight_block_size'", "missing"));
  EXPECT_THAT(refusal(R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})",
                      ErrorCode::corrupt_data),
              States("'fmt'", "missing"));
}

TEST_F(AQuantization, RejectsOtherMethodsByName) {
  for (const char* method : {"gptq", "awq", "mxfp4", "compressed-tensors", "bitsandbytes"}) {
    const Json json{{"quantization_config", {{"quant_method", method}, {"bits", 4u}, {"group_size", 128u}}}};
    EXPECT_THAT(refusal(json.dump(), ErrorCode::unsupported), States(method));
  }
}

TEST_F(AQuantization, RejectsOtherMlxModesByName) {
  for (const char* mode : {"mxfp4", "mxfp8", "nvfp4"}) {
    const Json json{{"quantization", {{"group_size", 32u}, {"bits", 4u}, {"mode", mode}}}};
    EXPECT_THAT(refusal(json.dump(), ErrorCode::unsupported), States(mode));
  }
  EXPECT_THAT(refusal(R"({"quantization": {"group_size": 64, "bits": 4,
                          "a.b": {"group_size": 32, "bits": 4, "mode": "mxfp4"}}})",
                      ErrorCode::unsupported),
              States("a.b", "'mxfp4'"));
}

TEST_F(AQuantization, NamesAWrongOrMissingNumber) {
  const auto corrupt = ErrorCode::corrupt_data;
  EXPECT_THAT(refusal(R"({"quantization": {"group_size": 64, "bits": 7}})", corrupt),
              States("'bits'", 2, 3, 4, 5, 6, 8, 7));
  EXPECT_THAT(refusal(R"({"quantization": {"group_size": 16, "bits": 4}})", corrupt),
              States("'group_size'", 32, 64, 128, 16));
  EXPECT_THAT(refusal(R"({"quantization": {"bits": 4}})", corrupt), States("'group_size'", "missing"));
  EXPECT_THAT(refusal(R"({"quantization": {"group_size": 64}})", corrupt), States("'bits'", "missing"));
  EXPECT_THAT(refusal(R"({"quantization": {}})", corrupt), States("'quant_method'", "'bits'", "neither"));
  EXPECT_THAT(refusal(R"({"quantization": {"group_size": 64, "bits": 4, "a": 8}})", corrupt),
              States("'a'", 8, "object", "true", "false"));
  EXPECT_THAT(
      refusal(R"({"quantization": {"group_size": 64, "bits": 4, "a": {"bits": 9, "group_size": 64}}})",
              corrupt),
      States("'bits'"));
}

TEST_F(AQuantization, RejectsAValueThatIsNotAnObject) {
  const auto quantization = parse(R"({"quantization": 4})");
  ASSERT_FALSE(quantization);
  EXPECT_THAT(quantization.error().message(), States("config.json", "'quantization'", 4, "object"));
}

}  // namespace
}  // namespace moeflux
