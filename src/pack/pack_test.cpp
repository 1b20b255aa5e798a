#include "pack/pack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "base/sizes.h"
#include "base/testing/states.h"
#include "io/testing/faulty_file_system.h"
#include "model/config_json.h"
#include "pack/quantize.h"
#include "pack/synthetic/shapes.h"
#include "pack/testing/packing.h"
#include "source/testing/goldens.h"
#include "source/testing/parsed_config.h"

namespace moeflux {
namespace {

using test::States;
using testing::Contains;
using testing::ElementsAre;

// The numbers of a source as stored in a format: unchanged, or quantized by MLX's rule.
Numbers stored(Numbers numbers, const Encoding& source, const MatrixFormat& format) {
  const auto* affine = std::get_if<AffineFormat>(&format.encoding);
  if (affine == nullptr || std::holds_alternative<AffineFormat>(source)) return numbers;
  QuantizedRows quantized(1, format.cols, *affine);
  for (std::uint64_t row = 0; row < format.rows; ++row) {
    const auto part = std::span(numbers).subspan(row * format.cols, format.cols);
    quantized.set_row(0, part);
    decode_row(quantized.view(1), 0, part);
  }
  return numbers;
}

class APackOf : public testing::TestWithParam<const char*> {
 protected:
  TemporaryDirectory temporary;
  SourceModel source = open_source(write_tiny(temporary, GetParam()));
  std::filesystem::path destination = temporary / "packed";

  void expect_equal_numbers(const PackedModel& model) {
    for (const NamedMatrix& named : source.resident()) {
      const PackedTensor* tensor = model.find(named.name);
      ASSERT_NE(tensor, nullptr) << named.name;
      EXPECT_EQ(decode(model, *tensor),
                stored(decode(source, named.matrix), named.matrix.encoding, tensor->format))
          << named.name;
    }
    for (const ExpertFile& file : model.manifest().experts)
      for (std::uint32_t e = 0; e < file.records.size(); ++e) {
        const ExpertKey key{file.layer, ExpertId(e)};
        const ExpertFormat& format = model.expert_format(model.record(key));
        const ExpertMatrices expert = source.experts(key.layer)->expert(key.expert);
        const ExpertNumbers packed = decode(model, key);
        EXPECT_EQ(packed.gate, stored(decode(source, expert.gate), expert.gate.encoding, format.gate)) << e;
        EXPECT_EQ(packed.up, stored(decode(source, expert.up), expert.up.encoding, format.up)) << e;
        EXPECT_EQ(packed.down, stored(decode(source, expert.down), expert.down.encoding, format.down)) << e;
      }
  }
};

TEST_P(APackOf, ATinySourceKeepsItsNumbers) {
  const PackReport report = packed_to(source, destination);
  const PackedModel model = open_packed(destination);
  EXPECT_EQ(model.manifest(), report.manifest);
  EXPECT_EQ(model.config(), source.config());
  EXPECT_EQ(model.manifest().source_format, name_of(source.kind()));
  EXPECT_EQ(report.kept_bytes, 0u);
  expect_equal_numbers(model);
}

TEST_P(APackOf, ATinySourceIsTheSameBytesWithAnyNumberOfJobs) {
  packed_to(source, destination);
  const Files once = files_in(destination);
  EXPECT_THAT(once, testing::Not(Contains(testing::Key("pack.journal"))));
  for (const unsigned jobs : {1u, 2u, 5u}) {
    const std::filesystem::path again = temporary / ("again" + std::to_string(jobs));
    packed_to(source, again, {.bits = {}, .jobs = jobs});
    EXPECT_EQ(files_in(again), once) << jobs << " jobs";
  }
}

TEST_P(APackOf, ATinySourceHasTheSummaryOfItsSource) {
  const std::string name = GetParam();
  if (name == "qwen_hugging_face") return;  // it is quantized, so sizes differ
  packed_to(source, destination);
  const ModelSummary packed = open_packed(destination).summarise();
  const auto original = source.summarise();
  ASSERT_TRUE(original);
  EXPECT_EQ(packed.experts, original->experts);
  // A packed fp8 matrix has one scale per row of a block instead of one per block. Others keep their size.
  if (name != "deepseek_fp8") {
    EXPECT_EQ(packed.expert_bytes, original->expert_bytes);
    EXPECT_EQ(packed.largest_expert_bytes, original->largest_expert_bytes);
    EXPECT_EQ(packed.smallest_expert_bytes, original->smallest_expert_bytes);
    EXPECT_EQ(packed.token_expert_bytes, original->token_expert_bytes);
  }
  ASSERT_EQ(packed.expert_encodings.size(), original->expert_encodings.size());
  for (std::size_t i = 0; i < packed.expert_encodings.size(); ++i) {
    EXPECT_EQ(packed.expert_encodings[i].encoding, original->expert_encodings[i].encoding);
    EXPECT_EQ(packed.expert_encodings[i].matrices, original->expert_encodings[i].matrices);
  }
}

INSTANTIATE_TEST_SUITE_P(, APackOf,
                         testing::Values("qwen_mlx", "qwen_hugging_face", "deepseek_mlx", "deepseek_fp8",
                                         "original"),
                         [](const auto& param_info) { return std::string(param_info.param); });

// Otherwise a pack of several hours could end in a manifest that does not parse.
TEST(TheConfigOfEverySource, ComesBackFromAManifest) {
  PosixFileSystem disk;
  const auto expect_comes_back = [](const ModelConfig& config, const std::string& name) {
    const auto again = config_from_json(Json::parse(config_to_json(config).dump()), name);
    ASSERT_TRUE(again) << again.error().message();
    EXPECT_EQ(*again, config) << name;
  };
  for (const char* name :
       {"deepseekv3-long-mlx4", "deepseekv3-tiny-bf16", "deepseekv3-tiny-fp8", "deepseekv3-tiny-mlx4",
        "qwen35moe-long-mlx4", "qwen35moe-tiny-bf16", "qwen35moe-tiny-mlx4"})
    expect_comes_back(open_source(golden(name)).config(), name);
  expect_comes_back(open_source(tern()).config(), "tern");
  for (const std::string_view shape : builtin_shapes()) {
    const auto text = shape_config(disk, shape);
    ASSERT_TRUE(text) << text.error().message();
    const ParsedConfig config = parsed(Json::parse(*text));
    ASSERT_TRUE(config) << config.message();
    expect_comes_back(*config, std::string(shape));
  }
}

struct Packs : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem disk;
  FaultyFileSystem files{disk};
  TinyCheckpoint tiny = tiny_qwen_mlx();
  std::filesystem::path destination = temporary / "packed";

  Error error_of(const SourceModel& source, const PackOptions& options = {}) {
    auto report = pack_into(files, source, destination, options);
    return report ? Error{ErrorCode::cancelled, "no error"} : report.error();
  }
};

using APack = Packs;

TEST_F(APack, OfFp8InFourAndSixteenBitsIsTheRoundingOfItsNumbers) {
  const SourceModel source = open_source(write_tiny(temporary, "deepseek_fp8"));
  const NamedMatrix& named =
      *std::find_if(source.resident().begin(), source.resident().end(),
                    [](const auto& m) { return m.name == "layers.0.self_attn.o_proj"; });
  packed_to(source, temporary / "four", {.bits = 4});
  const PackedModel four = open_packed(temporary / "four");
  const Numbers numbers = decode(source, named.matrix);
  EXPECT_EQ(decode(four, *four.find(named.name)),
            stored(numbers, named.matrix.encoding, four.find(named.name)->format));
  packed_to(source, temporary / "sixteen", {.bits = 16});
  const PackedModel sixteen = open_packed(temporary / "sixteen");
  Numbers rounded = numbers;
  for (float& number : rounded) number = float_from_bf16(bf16_from_float(number));
  EXPECT_EQ(decode(sixteen, *sixteen.find(named.name)), rounded);
}

TEST_F(APack, HasAFingerprintThatDoesNotDependOnShards) {
  const SourceModel single = open_source(tiny.write(temporary, "single"));
  SafetensorsBuilder first, second;
  Json index;
  for (std::size_t i = 0; i < tiny.tensors.size(); ++i) {
    const TestTensor& tensor = tiny.tensors[tiny.tensors.size() - 1 - i];  // in another order
    (i % 3 == 0 ? first : second).add(tensor.name, tensor.dtype, tensor.shape);
    index["weight_map"][tensor.name] =
        i % 3 == 0 ? "model-00001-of-00002.safetensors" : "model-00002-of-00002.safetensors";
  }
  temporary.write("sharded/model-00001-of-00002.safetensors", first.file());
  temporary.write("sharded/model-00002-of-00002.safetensors", second.file());
  temporary.write("sharded/model.safetensors.index.json", index.dump());
  temporary.write("sharded/config.json", tiny.config.dump());
  const SourceModel sharded = open_source(temporary / "sharded");
  const Manifest a = packed_to(single, temporary / "a").manifest,
                 b = packed_to(sharded, temporary / "b").manifest;
  EXPECT_EQ(a, b);
}

TEST_F(APack, HasAnotherFingerprintIfOneCodeDiffers) {
  const SourceModel before = open_source(tiny.write(temporary, "before"));
  std::string file = tiny.safetensors().file();
  file[file.size() - 1] ^= 1;
  tiny.write(temporary, "after");
  temporary.write("after/model.safetensors", file);
  const SourceModel after = open_source(temporary / "after");
  const Manifest a = packed_to(before, temporary / "a").manifest,
                 b = packed_to(after, temporary / "b").manifest;
  EXPECT_NE(a.fingerprint, b.fingerprint);
}

TEST_F(APack, HasAnotherFingerprintForOtherBits) {
  const SourceModel source = open_source(write_tiny(temporary, "qwen_hugging_face"));
  const Manifest four = packed_to(source, temporary / "a", {.bits = 4}).manifest;
  EXPECT_EQ(four.fingerprint, packed_to(source, temporary / "b").manifest.fingerprint);
  EXPECT_NE(four.fingerprint, packed_to(source, temporary / "c", {.bits = 8}).manifest.fingerprint);
}

TEST_F(APack, CopiesTheTextFiles) {
  const std::filesystem::path path = tiny.write(temporary);
  temporary.write("model/tokenizer.json", "{\"tokens\": 1}");
  const PackReport report = packed_to(open_source(path), destination);
  EXPECT_THAT(report.manifest.text_files, ElementsAre("config.json", "tokenizer.json"));
  EXPECT_EQ(temporary.read("packed/tokenizer.json"), "{\"tokens\": 1}");
  EXPECT_EQ(temporary.read("packed/config.json"), temporary.read("model/config.json"));
}

TEST_F(APack, ReportsProgressUpToTheEnd) {
  const SourceModel source = open_source(tiny.write(temporary));
  std::vector<std::uint64_t> done;
  std::uint64_t total = 0;
  const auto report =
      pack(source, files, files, destination, {.bits = {}, .jobs = 3}, [&](const PackProgress& p) {
        done.push_back(p.done_bytes);
        total = p.total_bytes;
        EXPECT_EQ(p.kept_bytes, 0u);
      });
  ASSERT_TRUE(report);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  ASSERT_FALSE(done.empty());
  EXPECT_EQ(done.back(), total);
  EXPECT_EQ(report->written_bytes, total);
}

TEST_F(APack, OntoAFinishedPackOfTheSameSourceWritesNothing) {
  for (const char* name : {"qwen_mlx", "qwen_hugging_face", "deepseek_mlx", "deepseek_fp8", "original"}) {
    const SourceModel source = open_source(write_tiny(temporary, name));
    const std::filesystem::path place = temporary / (std::string(name) + "_packed");
    const PackReport first = packed_to(source, place);
    EXPECT_FALSE(first.already_packed);
    const Files before = files_in(place);
    files.clear_log();
    for (const unsigned jobs : {1u, 3u}) {
      const auto again = pack_into(files, source, place, {.bits = {}, .jobs = jobs});
      ASSERT_TRUE(again) << name << ": " << again.error().message();
      EXPECT_TRUE(again->already_packed);
      EXPECT_EQ(again->manifest, first.manifest);
      EXPECT_EQ(again->written_bytes, 0u);
      EXPECT_EQ(again->kept_bytes, first.written_bytes);
    }
    for (const FileOperation writing :
         {FileOperation::create, FileOperation::append, FileOperation::make_directory})
      EXPECT_EQ(files.count(writing), 0u) << name_of(writing);
    EXPECT_EQ(files_in(place), before);
  }
}

TEST_F(APack, ReportsProgressOfComparingAFinishedPack) {
  const SourceModel source = open_source(tiny.write(temporary));
  packed_to(source, destination);
  std::uint64_t done = 0, total = 1;
  const auto again =
      pack(source, files, files, destination, {.bits = {}, .jobs = 3}, [&](const PackProgress& p) {
        EXPECT_TRUE(p.comparing);
        EXPECT_GT(p.done_bytes, done);
        done = p.done_bytes;
        total = p.total_bytes;
      });
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(done, total);
}

TEST_F(APack, DoesNotReplaceAFinishedPackOfAnotherSource) {
  const SourceModel source = open_source(write_tiny(temporary, "qwen_hugging_face"));
  packed_to(source, destination);
  const Files before = files_in(destination);
  const auto expect_refused = [&](const SourceModel& other, const PackOptions& options, const char* what) {
    const Error error = error_of(other, options);
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << what;
    EXPECT_THAT(error.message(), States(destination.string(), "another source")) << what;
    EXPECT_EQ(files_in(destination), before) << what;
  };
  expect_refused(open_source(write_tiny(temporary, "qwen_mlx")), {}, "another model");
  expect_refused(source, {.bits = 8}, "other bits");
  const TinyCheckpoint same = tiny_qwen_hugging_face();
  same.write(temporary, "changed");
  std::string weights = same.safetensors().file();
  weights.back() ^= 1;
  temporary.write("changed/model.safetensors", weights);
  expect_refused(open_source(temporary / "changed"), {}, "one weight changed");
  same.write(temporary, "talkative");
  temporary.write("talkative/tokenizer.json", "{}");
  expect_refused(open_source(temporary / "talkative"), {}, "one more text file");
  same.write(temporary, "reworded");
  temporary.write("reworded/config.json", same.config.dump(4));
  expect_refused(open_source(temporary / "reworded"), {}, "a text file changed");
}

TEST_F(APack, OntoAFinishedPackThatDoesNotOpenReportsWhy) {
  const SourceModel source = open_source(tiny.write(temporary));
  packed_to(source, destination);
  std::filesystem::resize_file(destination / "resident.bin", 5);
  const Error error = error_of(source);
  EXPECT_EQ(error.code(), ErrorCode::corrupt_data);
  EXPECT_THAT(error.message(), States((destination / "resident.bin").string(), 5, "remove"));
}

TEST_F(APack, RewritesAFileWhoseJournalEntryLacksAChecksum) {
  const SourceModel source = open_source(tiny.write(temporary));
  packed_to(source, temporary / "undisturbed");
  const Files undisturbed = files_in(temporary / "undisturbed");
  for (const char* name : {"resident.bin", "experts/layer_001.bin"})
    for (const char* list : {"xxh3", "source"}) {
      std::filesystem::remove_all(destination);
      files.set_plan(
          {.faults = {{.operation = FileOperation::create, .file_name = "manifest.json.partial"}}});
      EXPECT_EQ(error_of(source).code(), ErrorCode::io_failed);
      files.set_plan({});
      std::istringstream lines(temporary.read("packed/pack.journal"));
      std::string journal, line;
      std::getline(lines, journal);  // the identity
      journal += "\n";
      std::uint64_t shortened = 0;
      while (std::getline(lines, line)) {
        Json entry = Json::parse(line);
        if (entry["file"] == name) {
          shortened = entry["bytes"].get<std::uint64_t>();
          entry[list].erase(entry[list].size() - 1);
        }
        journal += entry.dump() + "\n";
      }
      ASSERT_NE(shortened, 0u) << name;
      temporary.write("packed/pack.journal", journal);
      const auto resumed = pack_into(files, source, destination);
      ASSERT_TRUE(resumed) << name << ", " << list << ": " << resumed.error().message();
      EXPECT_EQ(resumed->written_bytes, shortened) << name << ", " << list;
      EXPECT_EQ(files_in(destination), undisturbed) << name << ", " << list;
    }
}

TEST_F(APack, RejectsADirectoryWithOtherFiles) {
  const SourceModel source = open_source(tiny.write(temporary));
  temporary.write("packed/thesis.tex", "words");
  const Error error = error_of(source);
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.message(), States(destination.string(), "empty"));
  EXPECT_EQ(files_in(destination).size(), 1u);
}

TEST_F(APack, DoesNotContinueAPackOfAnotherSource) {
  files.set_plan({.faults = {{.operation = FileOperation::create, .file_name = "manifest.json.partial"}}});
  EXPECT_EQ(error_of(open_source(tiny.write(temporary))).code(), ErrorCode::io_failed);
  const Files before = files_in(destination);
  const Error error = error_of(open_source(write_tiny(temporary, "deepseek_mlx")));
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.message(), States(destination.string(), "unfinished"));
  EXPECT_EQ(files_in(destination), before);
}

TEST_F(APack, WritesNothingIfThereIsTooLittleRoom) {
  const SourceModel source = open_source(tiny.write(temporary));
  const auto plan = plan_pack(source, {});
  ASSERT_TRUE(plan);
  files.set_plan({.disk_bytes = plan->total_bytes() - 1});
  for (const std::filesystem::path& place : {destination, destination / "", temporary.path() / "empty"}) {
    if (place.filename() == "empty") std::filesystem::create_directory(place);
    const auto report = pack_into(files, source, place);
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().code(), ErrorCode::no_space);
    EXPECT_THAT(report, States(place.string(), human_bytes(plan->total_bytes())));
  }
  for (const FileOperation writing :
       {FileOperation::create, FileOperation::append, FileOperation::make_directory})
    EXPECT_EQ(files.count(writing), 0u) << name_of(writing);
  EXPECT_FALSE(std::filesystem::exists(destination));
}

TEST_F(APack, NamesANumberThatIsNotFiniteAndLeavesNoManifest) {
  TinyCheckpoint model = tiny_qwen_hugging_face();
  SafetensorsBuilder builder;
  for (const TestTensor& tensor : model.tensors) {
    if (tensor.name.ends_with("layers.1.mlp.experts.down_proj"))
      builder.add(tensor.name, tensor.dtype, tensor.shape, std::string(4 * 64 * 64 * 2, '\xff'));
    else
      builder.add(tensor.name, tensor.dtype, tensor.shape);
  }
  const std::filesystem::path path = model.write(temporary);
  temporary.write("model/model.safetensors", builder.file());
  for (const unsigned jobs : {1u, 3u}) {
    const Error error = error_of(open_source(path), {.bits = {}, .jobs = jobs});
    EXPECT_EQ(error.code(), ErrorCode::corrupt_data);
    EXPECT_THAT(error.message(), States("'layers.1.mlp.experts.0.down_proj'", "row 0", "column 0"));
    EXPECT_FALSE(std::filesystem::exists(destination / "manifest.json"));
  }
}

}  // namespace
}  // namespace moeflux
