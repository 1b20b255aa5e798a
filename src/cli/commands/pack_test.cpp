#include "cli/commands/pack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "base/json/json.h"
#include "base/sizes.h"
#include "base/testing/states.h"
#include "cli/commands/inspect.h"
#include "cli/commands/synth.h"
#include "cli/commands/verify.h"
#include "io/posix_file_system.h"
#include "io/testing/temporary_directory.h"
#include "model/manifest.h"
#include "model/packed_model.h"
#include "source/testing/goldens.h"
#include "source/testing/tiny_models.h"

namespace moeflux::cli {
namespace {

using test::States;

using testing::HasSubstr;
using testing::Not;

struct PackingCommands : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem disk;
  std::string source = tiny_qwen_mlx().write(temporary).string();
  std::string destination = (temporary / "packed").string();
  std::string shape = (golden("qwen35moe-tiny-mlx4") / "config.json").string();

  std::string said(Result<std::string> output) {
    EXPECT_TRUE(output) << output.error().message();
    return output ? *output : "";
  }
  Error refused(Result<std::string> output) {
    EXPECT_FALSE(output) << *output;
    return output ? Error{ErrorCode::cancelled, "no error"} : output.error();
  }
  void flip(const std::string& file, std::streamoff offset) {
    std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
    stream.seekg(offset);
    const int byte = stream.get();
    stream.seekp(offset);
    stream.put(static_cast<char>(byte ^ 1));
  }
};

using PackCommandLine = PackingCommands;
using VerifyCommandLine = PackingCommands;
using SynthCommandLine = PackingCommands;
using InspectCommandLine = PackingCommands;

TEST_F(PackCommandLine, ReportsWhatItWroteAndItsFingerprint) {
  const std::string text = said(run_pack(disk, {.source = source, .destination = destination, .bits = {}}));
  const auto model = PackedModel::open(disk, destination);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_THAT(text, States(destination, std::to_string(model->manifest().tensors.size()) + " tensors",
                           "8 records", "fingerprint", hex_of(model->manifest().fingerprint), "wrote"));
  EXPECT_THAT(text, Not(States("earlier run")));
}

TEST_F(PackCommandLine, ReturnsTheErrorsOfPacking) {
  const std::string nowhere = (temporary / "nowhere").string();
  EXPECT_EQ(refused(run_pack(disk, {.source = nowhere, .destination = destination, .bits = {}})).code(),
            ErrorCode::not_found);
  EXPECT_THAT(refused(run_pack(disk, {.source = source, .destination = destination, .bits = 8})),
              States(source, "--bits", "BF16", "FP8"));
  (void)said(run_pack(disk, {.source = source, .destination = destination, .bits = {}}));
  const std::string other = tiny_deepseek_mlx().write(temporary, "other").string();
  const Error taken = refused(run_pack(disk, {.source = other, .destination = destination, .bits = {}}));
  EXPECT_EQ(taken.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(taken.message(), States(destination, "another source"));
}

TEST_F(PackCommandLine, RefusesTheChoiceOfTwoBitsForOtherSourcesThanTheOriginals) {
  PackFlags flags{.source = source, .destination = destination, .bits = {}};
  flags.use_2bit = true;
  const Error error = refused(run_pack(disk, flags));
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.message(), States(source, "2-bit", "original's artifacts"));
  EXPECT_FALSE(std::filesystem::exists(destination));
}

TEST_F(PackCommandLine, SaysThatAFinishedPackIsAlreadyPacked) {
  (void)said(run_pack(disk, {.source = source, .destination = destination, .bits = {}}));
  const std::string text = said(run_pack(disk, {.source = source, .destination = destination, .bits = {}}));
  EXPECT_THAT(text, States("already packed"));
  EXPECT_THAT(text, Not(States("wrote")));
}

TEST_F(PackCommandLine, SaysThatItsSourceIsAPackedModel) {
  (void)said(run_pack(disk, {.source = source, .destination = destination, .bits = {}}));
  const std::string again = (temporary / "again").string();
  const Error error = refused(run_pack(disk, {.source = destination, .destination = again, .bits = {}}));
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_THAT(error.message(), States(destination, "packed model already"));
  EXPECT_FALSE(std::filesystem::exists(again));
}

TEST_F(VerifyCommandLine, ReportsASoundModel) {
  (void)said(run_pack(disk, {.source = source, .destination = destination, .bits = {}}));
  EXPECT_THAT(said(run_verify(disk, {.path = destination, .jobs = 2})),
              States(destination, "sound", "tensors", "8 records"));
}

TEST_F(VerifyCommandLine, NamesChangedPartsAndFails) {
  (void)said(run_pack(disk, {.source = source, .destination = destination, .bits = {}}));
  flip(destination + "/experts/layer_001.bin", 0);
  flip(destination + "/resident.bin", 0);
  const Error error = refused(run_verify(disk, {.path = destination}));
  EXPECT_EQ(error.code(), ErrorCode::corrupt_data);
  EXPECT_THAT(error, States("tensor 'layers.0.input_layernorm'"));
  EXPECT_THAT(error.message(), HasSubstr("\nmoeflux: "));
  EXPECT_THAT(error, States("layer 1", "expert 0"));
  EXPECT_THAT(error.message(), Not(States("more")));
  EXPECT_EQ(std::ranges::count(error.message(), '\n'), 1) << "one line per finding";
}

TEST_F(VerifyCommandLine, ShowsNoMoreThanTwentyFindings) {
  (void)said(run_pack(disk, {.source = source, .destination = destination, .bits = {}}));
  const auto model = PackedModel::open(disk, destination);
  ASSERT_TRUE(model);
  ASSERT_GT(model->manifest().tensors.size(), 25u);
  for (std::size_t i = 0; i < 25; ++i)
    flip(destination + "/resident.bin", static_cast<std::streamoff>(model->manifest().tensors[i].offset));
  const std::string message(refused(run_verify(disk, {.path = destination})).message());
  EXPECT_EQ(std::ranges::count(message, '\n'), 20) << "twenty findings, and one line for the others";
  EXPECT_THAT(message.substr(message.rfind('\n')), States("moeflux: ", "5 more"));
}

TEST_F(VerifyCommandLine, RejectsWhatIsNotAPackedModel) {
  EXPECT_THAT(refused(run_verify(disk, {.path = source})), States("manifest.json"));
}

TEST_F(SynthCommandLine, PacksAModelThatVerifies) {
  SynthFlags flags{.shape = shape, .destination = destination, .layers = 4, .experts = 4, .source = {}};
  EXPECT_THAT(said(run_synth(disk, flags)), States(destination, "16 records", "fingerprint"));
  EXPECT_THAT(said(run_verify(disk, {.path = destination})), States(destination, "sound"));
  const auto first = PackedModel::open(disk, destination);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->config().layers.size(), 4u);
  flags.destination = (temporary / "again").string();
  flags.jobs = 3;
  (void)said(run_synth(disk, flags));
  EXPECT_EQ(PackedModel::open(disk, flags.destination)->manifest(), first->manifest());
  flags.destination = (temporary / "another").string();
  flags.seed = 1;
  (void)said(run_synth(disk, flags));
  EXPECT_NE(PackedModel::open(disk, flags.destination)->manifest().fingerprint,
            first->manifest().fingerprint);
}

TEST_F(SynthCommandLine, WritesSourcesThatOpenAndPack) {
  struct Format {
    const char *name, *shape;
  };
  for (const Format& format : {Format{"mlx", "qwen35moe-tiny-mlx4"},
                               {"bf16", "qwen35moe-tiny-mlx4"},
                               {"fp8", "deepseekv3-tiny-mlx4"}}) {
    const std::string made = (temporary / (std::string("made_") + format.name)).string();
    const std::string packed = made + "_packed";
    EXPECT_THAT(said(run_synth(disk, {.shape = (golden(format.shape) / "config.json").string(),
                                      .destination = made,
                                      .layers = 4,
                                      .experts = 4,
                                      .source = format.name})),
                States(made, "files", "wrote"));
    (void)said(run_pack(disk, {.source = made, .destination = packed, .bits = {}}));
    EXPECT_THAT(said(run_verify(disk, {.path = packed})), States(packed, "sound"));
  }
}

TEST_F(SynthCommandLine, GivesTheSameModelDirectlyAndThroughMlxFiles) {
  const std::string made = (temporary / "made").string(), packed = (temporary / "of_files").string();
  (void)said(
      run_synth(disk, {.shape = shape, .destination = made, .layers = 4, .experts = 4, .source = "mlx"}));
  (void)said(run_pack(disk, {.source = made, .destination = packed, .bits = {}}));
  (void)said(
      run_synth(disk, {.shape = shape, .destination = destination, .layers = 4, .experts = 4, .source = {}}));
  EXPECT_EQ(PackedModel::open(disk, packed)->manifest(), PackedModel::open(disk, destination)->manifest());
}

TEST_F(SynthCommandLine, RejectsUnknownShapesAndFormats) {
  EXPECT_THAT(
      refused(run_synth(
          disk, {.shape = shape, .destination = destination, .layers = {}, .experts = {}, .source = "gguf"})),
      States("--source", "mlx", "bf16", "fp8", "'gguf'"));
  EXPECT_FALSE(run_synth(
      disk, {.shape = "gpt-5", .destination = destination, .layers = {}, .experts = {}, .source = {}}));
  EXPECT_FALSE(std::filesystem::exists(destination));
}

TEST_F(InspectCommandLine, ShowsAPackedModelWithTheNumbersOfItsSource) {
  (void)said(run_pack(disk, {.source = source, .destination = destination, .bits = {}}));
  const Json of_source = Json::parse(said(inspect(disk, {.path = source, .json = true})));
  const Json of_packed = Json::parse(said(inspect(disk, {.path = destination, .json = true})));
  for (const char* key : {"all_experts", "smallest_expert", "largest_expert", "experts_per_token"})
    EXPECT_EQ(of_packed["bytes"][key], of_source["bytes"][key]) << key;
  for (const char* key : {"family", "dim", "layers", "experts", "vocabulary", "expert_encodings"})
    EXPECT_EQ(of_packed[key], of_source[key]) << key;
  EXPECT_EQ(of_packed["format"], "packed model, tile16 (from MLX safetensors)");
}

TEST_F(InspectCommandLine, HasTheSameNumbersOfAPackedModelAsPageAndAsJson) {
  (void)said(run_pack(disk, {.source = source, .destination = destination, .bits = {}}));
  const std::string page = said(inspect(disk, {.path = destination}));
  const Json json = Json::parse(said(inspect(disk, {.path = destination, .json = true})));
  const auto bytes = [&](const char* key) {
    return with_thousands(json["bytes"][key].get<std::uint64_t>()) + " B";
  };
  EXPECT_THAT(page, HasSubstr("bytes     resident          " + bytes("resident")));
  EXPECT_THAT(page, HasSubstr("one expert        " + bytes("largest_expert")));
  EXPECT_THAT(page, HasSubstr("experts per token " + bytes("experts_per_token")));
  EXPECT_THAT(page, HasSubstr("all experts       " + bytes("all_experts")));
  EXPECT_THAT(page, HasSubstr("format    " + json["format"].get<std::string>()));
}

TEST_F(InspectCommandLine, LeavesTheCheckOfAPackedModelToVerify) {
  (void)said(run_pack(disk, {.source = source, .destination = destination, .bits = {}}));
  EXPECT_THAT(refused(inspect(disk, {.path = destination, .json = false, .check = true})),
              States(destination, "--check", "'moeflux verify'", "packed model"));
}

}  // namespace
}  // namespace moeflux::cli
