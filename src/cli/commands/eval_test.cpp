#include "cli/commands/eval.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "base/testing/states.h"
#include "cli/commands/pack.h"
#include "cli/exit_code.h"
#include "cli/labeled_line.h"
#include "io/posix_file_system.h"
#include "io/testing/temporary_directory.h"
#include "kernels/kernel_table.h"
#include "model/packed_model.h"
#include "source/safetensors/safetensors.h"
#include "source/testing/goldens.h"
#include "source/testing/safetensors_builder.h"

namespace moeflux::cli {
namespace {

using test::States;

using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// tests/goldens/README.md: the largest allowed error of exact kernels against transformers.
constexpr double kBound = 5e-4;
// The difference between two float32 computations of a hidden state of these models.
constexpr double kHiddenBound = 1e-4, kWeightBound = 1e-5;

struct Tensor {
  Dtype dtype = Dtype::f32;
  Shape shape;
  std::string bytes;
};

// Any numbers as a tensor.
template <class T>
Tensor tensor(Dtype dtype, const Shape& shape, const std::vector<T>& numbers) {
  return {dtype, shape, raw(numbers)};
}

// A model of the repository, packed once for all tests, and its golden, whose tensors a test may change.
struct EvalCommandLine : testing::Test {
  static constexpr const char* kModel = "deepseekv3-tiny-mlx4";
  inline static std::unique_ptr<TemporaryDirectory> packed;
  static void SetUpTestSuite() {
    packed = std::make_unique<TemporaryDirectory>();
    PosixFileSystem files;
    const auto said = run_pack(
        files, {.source = golden(kModel).string(), .destination = (*packed / "model").string(), .bits = {}});
    ASSERT_TRUE(said) << said.error().message();
  }
  static void TearDownTestSuite() { packed.reset(); }

  TemporaryDirectory temporary;
  PosixFileSystem files;
  CollectingLog log;
  std::map<std::string, Tensor> tensors;
  EvalFlags flags;

  void SetUp() override {
    flags.model = (*packed / "model").string();
    flags.golden = (golden(kModel) / "golden.safetensors").string();
    flags.json = true;
    std::ifstream in(flags.golden, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    const auto file = files.open_read(flags.golden);
    ASSERT_TRUE(file);
    const auto header = read_safetensors_header(**file, FileId(0));
    ASSERT_TRUE(header);
    for (const TensorEntry& entry : header->tensors)
      tensors[entry.name] = {entry.dtype, entry.shape, bytes.substr(entry.bytes.offset, entry.bytes.size)};
  }

  // Uses the changed golden from now on.
  void use_tensors() {
    SafetensorsBuilder builder;
    for (const auto& [name, tensor] : tensors) builder.add(name, tensor.dtype, tensor.shape, tensor.bytes);
    flags.golden = temporary.write("changed.safetensors", builder.file()).string();
  }
  void add_to(const std::string& name, std::size_t index, float difference) {
    std::string& bytes = tensors.at(name).bytes;
    const float changed =
        load<float>(reinterpret_cast<const std::byte*>(bytes.data()) + 4 * index) + difference;
    bytes.replace(4 * index, 4, raw(std::vector<float>{changed}));
  }

  Verdict verdict() {
    auto found = run_eval(files, flags, log);
    EXPECT_TRUE(found) << found.error().message();
    return found ? *std::move(found) : Verdict{};
  }
  Json json() { return Json::parse(verdict().text); }
  Error refused() {
    auto found = run_eval(files, flags, log);
    EXPECT_FALSE(found) << found->text;
    return found ? Error{ErrorCode::cancelled, "no error"} : found.error();
  }
  Error refused_golden() {
    use_tensors();
    const Error error = refused();
    EXPECT_EQ(error.code(), ErrorCode::corrupt_data) << error.message();
    EXPECT_THAT(error, States(flags.golden));
    return error;
  }
};

using EvalOfGoldens = EvalCommandLine;
using EvalOptionsGiven = EvalCommandLine;

TEST_F(EvalOfGoldens, MeetsTheReference) {
  flags.max_error = kBound;
  const Verdict found = verdict();
  EXPECT_THAT(found.failure, IsEmpty());
  EXPECT_THAT(found.text, EndsWith("}\n"));
  EXPECT_EQ(std::count(found.text.begin(), found.text.end(), '\n'), 1) << "one object on one line";
  const Json json = Json::parse(found.text);
  EXPECT_LE(json["max_logit_error"].get<double>(), kBound);
  EXPECT_LE(json["mean_logit_error"].get<double>(), json["max_logit_error"].get<double>());
  EXPECT_EQ(json["top1_agreement"], 1.0);
  EXPECT_EQ(json["greedy_match"], true);
  EXPECT_EQ(json["positions"], 48);
  EXPECT_EQ(json["logits_xxh3"].get<std::string>().size(), 32u);
  EXPECT_FALSE(json.contains("layers"));
  EXPECT_FALSE(json.contains("experts_per_token"));
  EXPECT_THAT(log.entries(), IsEmpty());
}

TEST_F(EvalOfGoldens, MeetsTheReferenceLayerByLayer) {
  const Json without = json();
  flags.layers = true;
  const Json found = json();
  EXPECT_EQ(found["logits_xxh3"], without["logits_xxh3"]);
  EXPECT_EQ(found["max_logit_error"], without["max_logit_error"]);
  ASSERT_EQ(found["layers"].size(), 4u);
  for (int i = 0; i < 4; ++i) {
    const Json& layer = found["layers"][static_cast<std::size_t>(i)];
    EXPECT_EQ(layer["layer"], i);
    EXPECT_LE(layer["max_hidden_error"].get<double>(), kHiddenBound) << layer;
    if (i == 0) {
      EXPECT_TRUE(layer["router_ids_equal"].is_null() && layer["max_router_weight_error"].is_null()) << layer;
    } else {
      EXPECT_EQ(layer["router_ids_equal"], true);
      EXPECT_LE(layer["max_router_weight_error"].get<double>(), kWeightBound) << layer;
    }
  }
}

TEST_F(EvalOfGoldens, GivesTheSameBitsForAnyChunks) {
  const std::string expected = json()["logits_xxh3"];
  for (const std::uint32_t chunk : {1u, 7u, 1000u}) {
    flags.chunk = chunk;
    EXPECT_EQ(json()["logits_xxh3"], expected) << "chunk " << chunk;
  }
  for (const std::uint32_t batch : {2u, 5u}) {
    flags.chunk = 7;
    flags.batch = batch;
    EXPECT_EQ(json()["logits_xxh3"], expected) << "batch " << batch;
  }
  flags.batch = 1;
  flags.chunk = 0;
  for (const KernelTable* table : compiled_kernels()) {
    if (!table->runs_here()) continue;
    flags.engine[OptionId::isa] = table->name;
    flags.engine.options.threads = 1;
    EXPECT_EQ(json()["logits_xxh3"], expected) << table->name;
  }
}

TEST_F(EvalOfGoldens, FailsAfterPrintingWhenAnErrorIsTooLarge) {
  add_to("logits", 5 * 512 + 17, 2e-3f);
  use_tensors();
  EXPECT_THAT(verdict().failure, IsEmpty()) << "without --max-error numbers are only shown";
  flags.max_error = kBound;
  const Verdict found = verdict();
  const auto error = Json::parse(found.text)["max_logit_error"].get<double>();
  EXPECT_NEAR(error, 2e-3, kBound);
  EXPECT_THAT(found.failure, States("logit error", fmt::format("{:.3g}", error), "0.0005"));
}

TEST_F(EvalOfGoldens, FailsIfALogitIsNotFinite) {
  add_to("logits", 513, std::numeric_limits<float>::quiet_NaN());
  use_tensors();
  const Verdict found = verdict();
  EXPECT_THAT(found.failure, States("not finite"));
  EXPECT_TRUE(Json::parse(found.text)["max_logit_error"].is_null());
  EXPECT_TRUE(Json::parse(found.text)["mean_logit_error"].is_null());
  flags.json = false;
  EXPECT_THAT(verdict().text, HasSubstr("max logit error   not finite\n"));
}

TEST_F(EvalOfGoldens, FailsIfAHiddenStateIsNotFinite) {
  add_to("hidden_states", 5 * 48 * 128 - 1, std::numeric_limits<float>::infinity());
  use_tensors();
  EXPECT_THAT(verdict().failure, IsEmpty());
  flags.layers = true;
  const Verdict found = verdict();
  EXPECT_THAT(found.failure, States("not finite"));
  EXPECT_TRUE(Json::parse(found.text)["layers"][3]["max_hidden_error"].is_null());
  EXPECT_TRUE(Json::parse(found.text)["layers"][2]["max_hidden_error"].is_number());
}

TEST_F(EvalOfGoldens, NeedsNoGreedyIds) {
  for (const char* name : {"greedy_logits", "greedy_ids"}) {
    tensors.erase(name);
    use_tensors();
    const Json found = json();
    EXPECT_LE(found["max_logit_error"].get<double>(), kBound);
    EXPECT_EQ(found["greedy_match"], std::string_view(name) == "greedy_ids" ? Json(nullptr) : Json(true));
  }
}

TEST_F(EvalOfGoldens, ReadsIdsOf64Bits) {
  const Json expected = json();
  Tensor& ids = tensors["input_ids"];
  std::vector<std::int64_t> wide;
  for (std::size_t i = 0; i < 48; ++i)
    wide.push_back(load<std::int32_t>(reinterpret_cast<const std::byte*>(ids.bytes.data()) + 4 * i));
  ids = tensor(Dtype::i64, {48}, wide);
  use_tensors();
  EXPECT_EQ(json(), expected);
}

TEST_F(EvalOfGoldens, ComparesTheListedPositions) {
  const std::string all = tensors["logits"].bytes;
  tensors["logit_positions"] = tensor<std::int32_t>(Dtype::i32, {3}, {0, 7, 47});
  tensors["logits"] = {
      Dtype::f32, {3, 512}, all.substr(0, 2048) + all.substr(7 * 2048, 2048) + all.substr(47 * 2048)};
  use_tensors();
  const Json found = json();
  EXPECT_EQ(found["positions"], 3);
  EXPECT_LE(found["max_logit_error"].get<double>(), kBound);
}

TEST_F(EvalOfGoldens, NamesAMissingTensor) {
  for (const char* name : {"input_ids", "logits"}) {
    const Tensor kept = tensors.at(name);
    tensors.erase(name);
    EXPECT_THAT(refused_golden(), States(std::string("tensor '") + name + "'"));
    tensors[name] = kept;
  }
  tensors.erase("greedy_ids");
  EXPECT_THAT(refused_golden(), States("tensor 'greedy_ids'"));
}

TEST_F(EvalOfGoldens, StatesWhatDoesNotFit) {
  struct Wrong {
    std::string name;
    Tensor tensor;
    std::vector<std::string> facts;
  };
  flags.layers = true;
  const auto floats = [](const Shape& shape) {
    std::uint64_t count = 1;
    for (const std::uint64_t size : shape) count *= size;
    return tensor(Dtype::f32, shape, std::vector<float>(count));
  };
  const auto ids = [](const Shape& shape, const std::vector<std::int32_t>& numbers) {
    return tensor(Dtype::i32, shape, numbers);
  };
  const std::vector<std::int32_t> many(48 * 4);
  const std::vector<Wrong> all{
      {"logits", floats({48, 511}), {"tensor 'logits'", "F32 [48, 512]", "F32 [48, 511]"}},
      {"logits", floats({47, 512}), {"F32 [48, 512]", "F32 [47, 512]"}},
      {"logits", ids({48, 512}, std::vector<std::int32_t>(48 * 512)), {"F32 [48, 512]", "I32 [48, 512]"}},
      {"input_ids", ids({2, 2}, {1, 2, 3, 4}), {"tensor 'input_ids'", "one dimension", "I32 [2, 2]"}},
      {"input_ids", ids({0}, {}), {"tensor 'input_ids'", "at least one token"}},
      {"input_ids", floats({48}), {"tensor 'input_ids'", "I32", "I64", "F32 [48]"}},
      {"input_ids", ids({2}, {1, -2}), {"tensor 'input_ids'", "-2"}},
      {"input_ids", tensor<std::int64_t>(Dtype::i64, {1}, {std::int64_t{1} << 32}), {"4294967296"}},
      {"logit_positions", ids({0}, {}), {"tensor 'logit_positions'", "at least one position"}},
      {"logit_positions", ids({2}, {1, 48}), {"position 48", "prompt of 48"}},
      {"logit_positions", ids({2}, {5, 5}), {"ascending", "5 after 5"}},
      {"greedy_logits", floats({23, 512}), {"F32 [24, 512]", "F32 [23, 512]"}},
      {"hidden_states", floats({4, 48, 128}), {"F32 [5, 48, 128]", "F32 [4, 48, 128]"}},
      {"layer.1.router.1", floats({}), {"tensor 'layer.1.router.1'", "[48, K]", "[]"}},
      {"layer.1.router.1", floats({47, 4}), {"F32 [48, 4]", "F32 [47, 4]"}},
      {"layer.1.router.2", ids({48, 3}, std::vector<std::int32_t>(48 * 3)), {"I32 [48, 4]", "I32 [48, 3]"}},
      {"layer.0.router.2", ids({48, 4}, many), {"tensor 'layer.0.router.2'", "layer 0", "no experts"}},
  };
  for (const Wrong& wrong : all) {
    const auto kept = tensors;
    tensors[wrong.name] = wrong.tensor;
    const Error error = refused_golden();
    for (const std::string& fact : wrong.facts) EXPECT_THAT(error, States(fact)) << wrong.name;
    tensors = kept;
  }
  tensors.erase("layer.2.router.2");
  EXPECT_THAT(refused_golden(), States("tensor 'layer.2.router.2'"));
}

TEST_F(EvalOfGoldens, IgnoresHiddenStatesUnlessNeeded) {
  tensors["hidden_states"] = tensor<float>(Dtype::f32, {1}, {0});
  tensors["anything else"] = tensor<std::int32_t>(Dtype::i32, {1}, {0});
  use_tensors();
  EXPECT_LE(json()["max_logit_error"].get<double>(), kBound);
}

TEST_F(EvalOfGoldens, ReportsMissingHiddenStates) {
  tensors.erase("hidden_states");
  use_tensors();
  flags.layers = true;
  const Error error = refused();
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error, States(flags.golden, "tensor 'hidden_states'", "layers"));
}

TEST_F(EvalOfGoldens, NeedsNoRouters) {
  for (const char* layer : {"1", "2", "3"})
    for (const char* part : {"1", "2"}) tensors.erase(std::string("layer.") + layer + ".router." + part);
  use_tensors();
  flags.layers = true;
  const Json found = json();
  for (const Json& layer : found["layers"]) {
    EXPECT_LE(layer["max_hidden_error"].get<double>(), kHiddenBound);
    EXPECT_TRUE(layer["router_ids_equal"].is_null());
  }
}

TEST_F(EvalOfGoldens, NamesATokenOutsideTheVocabulary) {
  tensors["greedy_ids"] = tensor<std::int32_t>(Dtype::i32, {1}, {512});
  tensors.erase("greedy_logits");
  use_tensors();
  const Error error = refused();
  EXPECT_EQ(error.code(), ErrorCode::token_out_of_range);
  EXPECT_THAT(error, States(flags.golden, 512));
}

TEST_F(EvalOfGoldens, PrintsOneNumberPerLineAndATableOfLayers) {
  flags.json = false;
  flags.layers = true;
  const std::string page = verdict().text;
  std::istringstream lines(page);
  std::vector<std::string> labels;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), kPageColumns);
    if (!line.empty()) labels.push_back(line.substr(0, 18));
  }
  ASSERT_EQ(labels.size(), 6u + 1 + 4);
  EXPECT_EQ(labels[0], "max logit error   ");
  EXPECT_THAT(page, HasSubstr("top-1 agreement   1\n"));
  EXPECT_THAT(page, HasSubstr("greedy match      yes\n"));
  EXPECT_THAT(page, HasSubstr("positions         48\n"));
  EXPECT_THAT(page,
              HasSubstr("\n\nlayer   max hidden error   router ids   max router weight error\n    0   "));
  EXPECT_THAT(page, HasSubstr("-                         -\n    1   "));
  EXPECT_THAT(page, Not(HasSubstr("DIFFERENT")));
  flags.json = true;
  EXPECT_THAT(page, HasSubstr("logits xxh3       " + json()["logits_xxh3"].get<std::string>() + "\n"));
}

TEST_F(EvalOptionsGiven, WarnEveryTimeAboutFewerExperts) {
  const Json whole = json();
  flags.engine.options.experts_per_token = 1;
  const Json found = json();
  EXPECT_EQ(found["experts_per_token"], 1);
  EXPECT_NE(found["logits_xxh3"], whole["logits_xxh3"]);
  ASSERT_EQ(log.entries().size(), 1u);
  EXPECT_EQ(log.entries()[0].level, LogLevel::warning);
  EXPECT_THAT(log.entries()[0].message, States("1 of 4 experts"));
  flags.json = false;
  EXPECT_THAT(verdict().text, HasSubstr("experts per token 1, not the model's own\n"));
  ASSERT_EQ(log.entries().size(), 4u);
  EXPECT_EQ(log.entries()[1].level, LogLevel::warning);
  EXPECT_EQ(log.entries()[2].level, LogLevel::info);
  EXPECT_THAT(log.entries()[2].message, States("memory", "resident weights", "together"));
  EXPECT_THAT(log.entries()[3].message, States("experts", "all 48"));
}

TEST_F(EvalOptionsGiven, DoNotWarnAboutTheModelsOwnExperts) {
  flags.engine.options.experts_per_token = 4;
  EXPECT_FALSE(json().contains("experts_per_token"));
  EXPECT_THAT(log.entries(), IsEmpty());
  flags.engine.options.experts_per_token = 5;
  EXPECT_EQ(refused().code(), ErrorCode::invalid_argument);
}

TEST_F(EvalOptionsGiven, AreRejectedByNameIfUnknown) {
  flags.engine[OptionId::isa] = "altivec";
  Error error = refused();
  EXPECT_EQ(exit_code_of(error), ExitCode::usage);
  EXPECT_THAT(error, States("--isa", "'altivec'"));
  flags.engine[OptionId::isa] = "";
  flags.engine[OptionId::precision] = "sloppy";
  error = refused();
  EXPECT_EQ(exit_code_of(error), ExitCode::usage);
  EXPECT_THAT(error, States("--precision", "exact", "fast", "'sloppy'"));
}

TEST_F(EvalOptionsGiven, RejectAnImpossibleErrorBound) {
  for (const double wrong : {-1e-9, std::nan("")}) {
    flags.max_error = wrong;
    EXPECT_EQ(exit_code_of(refused()), ExitCode::usage);
    EXPECT_THAT(refused(), States("--max-error", 0));
  }
}

TEST_F(EvalOptionsGiven, DistinguishAMissingModelFromAMissingFile) {
  const std::string model = std::exchange(flags.model, (temporary / "nowhere").string());
  EXPECT_EQ(exit_code_of(refused()), ExitCode::bad_model);
  flags.model = model;
  flags.golden = (temporary / "nothing.safetensors").string();
  EXPECT_EQ(exit_code_of(refused()), ExitCode::usage);
  EXPECT_THAT(refused(), States("GOLDEN", flags.golden));
  flags.golden = temporary.write("short.safetensors", "x").string();
  EXPECT_EQ(exit_code_of(refused()), ExitCode::bad_model);
}

}  // namespace
}  // namespace moeflux::cli
