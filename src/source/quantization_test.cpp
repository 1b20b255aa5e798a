#include "source/quantization.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace moeflux {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
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

TEST_F(AQuantization, IsNoneWhereTheConfigHasNone) {
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

TEST_F(AQuantization, IsReadFromTheCopyOfMlxToo) {
  const auto quantization = parse(R"({"quantization_config": {"group_size": 32, "bits": 6}})");
  ASSERT_TRUE(quantization) << quantization.error().message();
  EXPECT_EQ(quantization->of_module("a"), (AffineParameters{6, 32}));
}

TEST_F(AQuantization, OfMlxWinsOverADifferingCopyWithANote) {
  const auto same = parse(R"({"quantization": {"group_size": 64, "bits": 4},
                              "quantization_config": {"bits": 4, "group_size": 64}})");
  ASSERT_TRUE(same);
  const auto differing = parse(R"({"quantization": {"group_size": 64, "bits": 4},
                                   "quantization_config": {"group_size": 64, "bits": 8}})");
  ASSERT_TRUE(differing) << differing.error().message();
  EXPECT_EQ(differing->of_module("a"), (AffineParameters{4, 64}));
  EXPECT_THAT(
      notes,
      ElementsAre("config.json: 'quantization' and 'quantization_config' differ; 'quantization' is used"));
}

TEST_F(AQuantization, IsTheSameWhateverTheOrderOfItsKeys) {
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

TEST_F(AQuantization, OfAnotherFp8IsRefusedByName) {
  EXPECT_THAT(refusal(R"({"quantization_config": {"quant_method": "fp8", "fmt": "e5m2",
                                                  "weight_block_size": [128, 128]}})",
                      ErrorCode::unsupported),
              HasSubstr("fp8 format 'e5m2' is not supported"));
  EXPECT_THAT(refusal(R"({"quantization_config": {"quant_method": "fp8", "fmt": "e4m3",
                                                  "weight_block_size": [64, 128]}})",
                      ErrorCode::unsupported),
              HasSubstr("'weight_block_size' is [64,128], and only [128,128] is supported"));
  EXPECT_THAT(
      refusal(R"({"quantization_config": {"quant_method": "fp8", "fmt": "e4m3"}})", ErrorCode::corrupt_data),
      HasSubstr("'weight_block_size' is missing"));
  EXPECT_THAT(refusal(R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})",
                      ErrorCode::corrupt_data),
              HasSubstr("'fmt' is missing"));
}

TEST_F(AQuantization, OfOtherMethodsIsRefusedByName) {
  for (const char* method : {"gptq", "awq", "mxfp4", "compressed-tensors", "bitsandbytes"}) {
    const Json json{{"quantization_config", {{"quant_method", method}, {"bits", 4u}, {"group_size", 128u}}}};
    EXPECT_THAT(
        refusal(json.dump(), ErrorCode::unsupported),
        HasSubstr(std::string("this is a ") + method + " checkpoint, which moeflux does not read yet"));
  }
}

TEST_F(AQuantization, OfOtherMlxModesIsRefusedByName) {
  for (const char* mode : {"mxfp4", "mxfp8", "nvfp4"}) {
    const Json json{{"quantization", {{"group_size", 32u}, {"bits", 4u}, {"mode", mode}}}};
    EXPECT_THAT(refusal(json.dump(), ErrorCode::unsupported),
                HasSubstr(std::string("quantization mode '") + mode + "' is not supported"));
  }
  EXPECT_THAT(refusal(R"({"quantization": {"group_size": 64, "bits": 4,
                          "a.b": {"group_size": 32, "bits": 4, "mode": "mxfp4"}}})",
                      ErrorCode::unsupported),
              HasSubstr("quantization: a.b: quantization mode 'mxfp4'"));
}

TEST_F(AQuantization, NamesTheNumberThatIsWrongOrMissing) {
  const auto corrupt = ErrorCode::corrupt_data;
  EXPECT_THAT(refusal(R"({"quantization": {"group_size": 64, "bits": 7}})", corrupt),
              HasSubstr("'bits' must be 2, 3, 4, 5, 6 or 8, found 7"));
  EXPECT_THAT(refusal(R"({"quantization": {"group_size": 16, "bits": 4}})", corrupt),
              HasSubstr("'group_size' must be 32, 64 or 128, found 16"));
  EXPECT_THAT(refusal(R"({"quantization": {"bits": 4}})", corrupt), HasSubstr("'group_size' is missing"));
  EXPECT_THAT(refusal(R"({"quantization": {"group_size": 64}})", corrupt), HasSubstr("'bits' is missing"));
  EXPECT_THAT(refusal(R"({"quantization": {}})", corrupt),
              HasSubstr("has neither 'quant_method' nor 'bits'"));
  EXPECT_THAT(refusal(R"({"quantization": {"group_size": 64, "bits": 4, "a": 8}})", corrupt),
              HasSubstr("'a' must be an object, true or false, found 8"));
  EXPECT_THAT(
      refusal(R"({"quantization": {"group_size": 64, "bits": 4, "a": {"bits": 9, "group_size": 64}}})",
              corrupt),
      HasSubstr("a: 'bits' must be"));
}

TEST_F(AQuantization, ThatIsNotAnObjectIsRefused) {
  const auto quantization = parse(R"({"quantization": 4})");
  ASSERT_FALSE(quantization);
  EXPECT_EQ(quantization.error().message(), "config.json: 'quantization' must be an object, found 4");
}

}  // namespace
}  // namespace moeflux
