#include "cli/commands/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "base/sizes.h"
#include "base/testing/states.h"
#include "cli/labeled_line.h"
#include "io/posix_file_system.h"
#include "io/testing/faulty_file_system.h"
#include "io/testing/temporary_directory.h"
#include "source/source_model.h"
#include "source/testing/goldens.h"
#include "source/testing/original_builder.h"

namespace moeflux::cli {
namespace {

using test::States;

using testing::HasSubstr;
using testing::Not;

std::vector<std::string> lines_of(const std::string& page) {
  std::vector<std::string> lines;
  std::istringstream in(page);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::size_t columns_of(const std::string& line) {  // code points
  return static_cast<std::size_t>(std::count_if(
      line.begin(), line.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

void expect_fits(const std::string& page) {
  for (const std::string& line : lines_of(page)) EXPECT_LE(columns_of(line), kPageColumns) << line;
  EXPECT_NO_THROW((void)Json(page).dump()) << "a page is valid UTF-8";
}

// Removes what is between `open` and `close`, both included.
std::string without(std::string text, char open, char close) {
  for (std::size_t at = text.find(open); at != std::string::npos; at = text.find(open))
    text.erase(at, text.find(close, at) - at + 1);
  return text;
}

// The whole numbers of a page, without its path, its notes, the names of encodings and rounded sizes.
std::set<std::uint64_t> numbers_of_page(const std::string& page, const Json& json) {
  std::set<std::uint64_t> numbers;
  for (std::string line : lines_of(page)) {
    if (line.starts_with("model") || line.starts_with("note")) continue;
    for (const char* list : {"resident_encodings", "expert_encodings"})
      for (const Json& use : json[list]) {
        const auto name = use["encoding"].get<std::string>();
        if (const std::size_t at = line.find(name); at != std::string::npos) line.erase(at, name.size());
      }
    std::istringstream words(without(line, '(', ')'));
    for (std::string word; words >> word;) {
      while (!word.empty() && std::string_view(",;:").find(word.back()) != std::string_view::npos)
        word.pop_back();
      std::erase(word, ',');
      if (!word.empty() && word.find_first_not_of("0123456789") == std::string::npos)
        numbers.insert(std::stoull(word));
    }
  }
  return numbers;
}

void collect_numbers(const Json& json, std::set<std::uint64_t>& numbers) {
  if (json.is_number_unsigned()) numbers.insert(json.get<std::uint64_t>());
  if (json.is_structured())
    for (const auto& item : json) collect_numbers(item, numbers);
}

struct Inspection : testing::Test {
  PosixFileSystem disk;
  FaultyFileSystem files{disk};

  std::string run(const InspectFlags& flags) {
    auto output = inspect(files, flags);
    EXPECT_TRUE(output) << output.error().message();
    return output ? *output : "";
  }
  ModelSummary summary_of(const std::filesystem::path& path) {
    return *SourceModel::open(disk, path)->summarise();
  }
};

struct InspectionOf : Inspection, testing::WithParamInterface<const char*> {
  std::string path() const {
    const std::string name = GetParam();
    return (name == "tern" ? tern() : golden(name)).string();
  }
};

TEST_P(InspectionOf, HasTheSameNumbersAsPageAndAsJson) {
  const bool check = std::string(GetParam()) != "tern";  // decoding it is slow without optimization
  const std::string page = run({.path = path(), .json = false, .check = check});
  const Json json = Json::parse(run({.path = path(), .json = true, .check = check}));
  std::set<std::uint64_t> of_json;
  collect_numbers(json, of_json);
  of_json.erase(0);
  EXPECT_EQ(numbers_of_page(page, json), of_json) << page;
  expect_fits(page);
}

TEST_P(InspectionOf, PutsEachNumberAfterItsName) {
  const std::string page = run({.path = path()});
  const Json json = Json::parse(run({.path = path(), .json = true}));
  const auto bytes = [&](const char* key) {
    return with_thousands(json["bytes"][key].get<std::uint64_t>()) + " B";
  };
  const auto number = [&](const char* key) { return with_thousands(json[key].get<std::uint64_t>()); };
  EXPECT_THAT(page, HasSubstr("bytes     resident          " + bytes("resident")));
  EXPECT_THAT(page, HasSubstr("one expert        " + bytes("largest_expert")));
  EXPECT_EQ(json["bytes"]["smallest_expert"], json["bytes"]["largest_expert"]);
  EXPECT_THAT(page, HasSubstr("experts per token " + bytes("experts_per_token")));
  EXPECT_THAT(page, HasSubstr("all experts       " + bytes("all_experts")));
  EXPECT_THAT(page, HasSubstr(" in " + number("experts") + " experts\n"));
  EXPECT_THAT(page, HasSubstr("vocabulary " + number("vocabulary") + ", context " + number("max_positions")));
  EXPECT_THAT(page, HasSubstr("\nlayers    " + number("layers") + ": "));
  EXPECT_THAT(page,
              HasSubstr("\nexperts   " + number("experts_per_layer") + " per layer, " +
                        number("experts_per_token") + " per token, hidden " + number("expert_hidden_dim")));
  for (const auto& [mixer, count] : json["mixers"].items())
    EXPECT_THAT(page, HasSubstr(count.dump() + " " + mixer));
  EXPECT_THAT(page, HasSubstr("family    " + json["family"].get<std::string>() + ", width " + number("dim")));
  EXPECT_THAT(page,
              HasSubstr("format    " + json["format"].get<std::string>() + ", " + number("files") + " file"));
}

INSTANTIATE_TEST_SUITE_P(, InspectionOf,
                         testing::Values("qwen35moe-tiny-bf16", "qwen35moe-tiny-mlx4", "qwen35moe-long-mlx4",
                                         "deepseekv3-tiny-bf16", "deepseekv3-tiny-fp8",
                                         "deepseekv3-tiny-mlx4", "deepseekv3-long-mlx4", "tern"),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

using InspectionPage = Inspection;

TEST_F(InspectionPage, FitsItsColumnsForAnyPathAndNotes) {
  ModelSummary summary = summary_of(golden("qwen35moe-tiny-mlx4"));
  const std::string word(250, 'x');
  std::string sentence, umlauts;
  for (int i = 0; i < 60; ++i) sentence += "a note of many words ", umlauts += "\xc3\xa4";
  summary.notes = {"short", sentence, word, umlauts + umlauts + umlauts, sentence + umlauts + umlauts, ""};
  for (const std::string& path :
       {std::string("m"), word, "/" + word + "/" + word, umlauts + umlauts + "x", sentence}) {
    summary.path = path;
    expect_fits(render_page(summary, nullptr));
  }
}

TEST_F(InspectionPage, KeepsTheEndOfALongPath) {
  ModelSummary summary = summary_of(golden("qwen35moe-tiny-mlx4"));
  summary.path = "/" + std::string(200, 'x') + "/the-model";
  EXPECT_THAT(lines_of(render_page(summary, nullptr))[0], testing::EndsWith("xxx/the-model"));
  EXPECT_THAT(lines_of(render_page(summary, nullptr))[0], HasSubstr("..."));
}

TEST_F(InspectionPage, LosesNoWordOfALongNote) {
  ModelSummary summary = summary_of(golden("qwen35moe-tiny-mlx4"));
  summary.notes = {""};
  for (int i = 0; i < 80; ++i) summary.notes[0] += "word" + std::to_string(i) + " ";
  const std::string page = render_page(summary, nullptr);
  for (int i = 0; i < 80; ++i) EXPECT_THAT(page, HasSubstr("word" + std::to_string(i)));
  EXPECT_EQ(Json::parse(render_json(summary, nullptr))["notes"][0], summary.notes[0]);
}

TEST_F(InspectionPage, ShowsBothSizesIfExpertsDiffer) {
  ModelSummary summary = summary_of(golden("qwen35moe-tiny-mlx4"));
  summary.smallest_expert_bytes = 900;
  summary.largest_expert_bytes = 13824;
  EXPECT_THAT(render_page(summary, nullptr), HasSubstr("one expert        900 B to 13,824 B (13.8 KB)"));
  const Json json = Json::parse(render_json(summary, nullptr));
  EXPECT_EQ(json["bytes"]["smallest_expert"], 900);
  EXPECT_EQ(json["bytes"]["largest_expert"], 13824);
}

TEST_F(InspectionPage, MentionsSkippedBytesAndTiedEmbeddingsOnlyIfAny) {
  ModelSummary summary = summary_of(golden("qwen35moe-tiny-mlx4"));
  EXPECT_THAT(render_page(summary, nullptr), Not(HasSubstr("skipped")));
  EXPECT_THAT(render_page(summary, nullptr), Not(HasSubstr("tied")));
  summary.skipped_bytes = 1234;
  summary.config.tied_embeddings = true;
  EXPECT_THAT(render_page(summary, nullptr), HasSubstr("skipped           1,234 B"));
  EXPECT_THAT(render_page(summary, nullptr), HasSubstr("tied embeddings"));
}

TEST_F(Inspection, ReportsWhatItChecked) {
  const std::string page =
      run({.path = golden("qwen35moe-tiny-mlx4").string(), .json = false, .check = true});
  EXPECT_THAT(page, HasSubstr("read and decoded, all finite"));
  const Json json =
      Json::parse(run({.path = golden("qwen35moe-tiny-mlx4").string(), .json = true, .check = true}));
  // 8 layers of 8 experts of three matrices, and the resident matrices.
  std::uint64_t resident = 0;
  for (const Json& use : json["resident_encodings"]) resident += use["matrices"].get<std::uint64_t>();
  EXPECT_EQ(json["checked"]["matrices"], resident + 8 * 8 * 3);
}

TEST_F(Inspection, ReadsEveryWeightToCheckAndNoneOtherwise) {
  const std::string path = golden("deepseekv3-tiny-fp8").string();
  const Json json = Json::parse(run({.path = path, .json = true}));
  const std::uint64_t without_check = files.bytes(FileOperation::read);
  files.clear_log();
  (void)run({.path = path, .json = true, .check = true});
  const auto weights =
      json["bytes"]["resident"].get<std::uint64_t>() + json["bytes"]["all_experts"].get<std::uint64_t>();
  EXPECT_GE(files.bytes(FileOperation::read), without_check + weights);
  EXPECT_LT(without_check, weights / 10);
}

TEST_F(Inspection, StopsItsCheckAtTheFirstWeightThatIsNotFinite) {
  TemporaryDirectory temporary;
  const TinyCheckpoint tiny = tiny_qwen_hugging_face();
  SafetensorsBuilder builder;
  for (const TestTensor& tensor : tiny.tensors) {
    if (tensor.name.ends_with("layers.1.mlp.experts.down_proj"))
      builder.add(tensor.name, tensor.dtype, tensor.shape, std::string(4 * 64 * 64 * 2, '\xff'));
    else
      builder.add(tensor.name, tensor.dtype, tensor.shape);
  }
  const std::string path = tiny.write(temporary).string();
  temporary.write("model/model.safetensors", builder.file());
  EXPECT_TRUE(inspect(files, {.path = path}));
  const auto checked = inspect(files, {.path = path, .json = false, .check = true});
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().code(), ErrorCode::corrupt_data);
  EXPECT_THAT(checked, States("'layers.1.mlp.experts.0.down_proj'", "row 0", "column 0"));
}

TEST_F(Inspection, ReturnsTheErrorOfOpening) {
  TemporaryDirectory temporary;
  const auto output = inspect(files, {.path = (temporary / "nowhere").string()});
  ASSERT_FALSE(output);
  EXPECT_EQ(output.error().code(), ErrorCode::not_found);
  EXPECT_THAT(output, States("nowhere"));
}

TEST_F(Inspection, NotesAssumptionsAboutTheOriginalsArtifacts) {
  TemporaryDirectory temporary;
  original_of(tiny_qwen_mlx()).write(temporary, "model", "model");
  const std::string page = run({.path = (temporary / "model").string(), .json = false, .check = true});
  EXPECT_THAT(page, HasSubstr("format    original artifacts, 3 files"));
  EXPECT_THAT(page, HasSubstr("\nnote      "));
  expect_fits(page);
}

}  // namespace
}  // namespace moeflux::cli
