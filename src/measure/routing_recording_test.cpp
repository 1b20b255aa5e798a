#include "measure/routing_recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/testing/allocation_counter.h"
#include "base/testing/expect_contract.h"
#include "base/testing/states.h"
#include "io/posix_file_system.h"
#include "io/testing/faulty_file_system.h"
#include "io/testing/temporary_directory.h"

namespace moeflux {
namespace {

using test::States;

constexpr std::string_view kThreeRows =
    "moeflux routing 1 4 8 2\n0 1 3 6\n0 3 0 7\n1 1 0 3\n1 3 4 5\n2 1 3 7\n2 3 1 2\n";

RoutingShape small_shape() { return {4, 8, 2, {LayerId(1), LayerId(3)}}; }

RoutingRecording three_rows() { return {small_shape(), 3, {3, 6, 0, 7, 0, 3, 4, 5, 3, 7, 1, 2}}; }

// The error for `text`, whose place is checked.
Error refusal(std::string_view text, unsigned line, ErrorCode code = ErrorCode::corrupt_data) {
  const Result<RoutingRecording> recording = parse_routing_recording(text, "a.routing");
  EXPECT_FALSE(recording) << text;
  if (recording) return {ErrorCode::cancelled, "it is accepted"};
  EXPECT_EQ(recording.error().code(), code) << text;
  EXPECT_THAT(recording, States("a.routing", "line " + std::to_string(line)));
  return recording.error();
}

std::vector<std::uint32_t> play(RoutingOverride& routing, std::uint32_t layer, std::uint32_t rows) {
  std::vector<std::uint32_t> chosen(rows * 2);
  std::vector<float> weights(chosen.size());
  routing.choose(LayerId(layer), 8, 2, chosen, weights);
  return chosen;
}

void record(RoutingRecorder& recorder, std::uint32_t layer, std::vector<std::uint32_t> chosen) {
  const std::vector<std::uint32_t> before = chosen;
  std::vector<float> weights(chosen.size(), 0.5f);
  recorder.choose(LayerId(layer), 8, 2, chosen, weights);
  EXPECT_EQ(chosen, before);
  EXPECT_EQ(weights, std::vector<float>(chosen.size(), 0.5f));
}

TEST(RoutingRecording, IsParsed) {
  const Result<RoutingRecording> recording = parse_routing_recording(kThreeRows, "a.routing");
  ASSERT_TRUE(recording) << recording.error().message();
  EXPECT_EQ(*recording, three_rows());
}

TEST(RoutingRecording, MayHaveOneRowOfOneExpert) {
  const Result<RoutingRecording> recording =
      parse_routing_recording("moeflux routing 1 1 1 1\n0 0 0\n", "a.routing");
  ASSERT_TRUE(recording) << recording.error().message();
  EXPECT_EQ(*recording, (RoutingRecording{{1, 1, 1, {LayerId(0)}}, 1, {0}}));
}

TEST(RoutingRecording, RejectsAWrongFirstLine) {
  EXPECT_THAT(refusal("", 1), States("moeflux routing 1 LAYERS EXPERTS PER_TOKEN", "end of the file"));
  EXPECT_THAT(refusal("moeflux", 1), States("end of the file", "'moeflux'"));
  EXPECT_THAT(refusal("\n", 1), States("'moeflux routing '", "''"));
  EXPECT_THAT(refusal("Moeflux routing 1 1 1 1\n", 1),
              States("'moeflux routing '", "'Moeflux routing 1 1 1 1'"));
  EXPECT_THAT(refusal("moeflux routing 2 1 1 1\n", 1, ErrorCode::unsupported), States("version 1", 2));
  EXPECT_THAT(refusal("moeflux routing 01 1 1 1\n", 1), States("version", "'01 1 1 1'"));
  EXPECT_THAT(refusal("moeflux routing 1 0 8 2\n", 1), States("layers", 1, 1024, 0));
  EXPECT_THAT(refusal("moeflux routing 1 1025 8 2\n", 1), States("layers", 1, 1024, 1025));
  EXPECT_THAT(refusal("moeflux routing 1 4 0 2\n", 1), States("experts", 1, 65536, 0));
  EXPECT_THAT(refusal("moeflux routing 1 4 65537 2\n", 1), States("experts", 1, 65536, 65537));
  EXPECT_THAT(refusal("moeflux routing 1 4 8 0\n", 1), States("experts per token", 1, 8, 0));
  EXPECT_THAT(refusal("moeflux routing 1 4 8 9\n", 1), States("experts per token", 1, 8, 9));
  EXPECT_THAT(refusal("moeflux routing 1 4 8\n", 1), States("experts per token", "end of the line"));
  EXPECT_THAT(refusal("moeflux routing 1 4 8 2 1\n", 1), States("end of the line", "'1'"));
  EXPECT_THAT(refusal("moeflux routing 1 -4 8 2\n", 1), States("layers", "'-4 8 2'"));
  EXPECT_THAT(refusal("moeflux routing 1 99999999999999999999 8 2\n", 1),
              States("layers", "'99999999999999999999 8 2'"));
  EXPECT_THAT(refusal("moeflux routing 1 4 8 2\r\n", 1), States("one space", "'2?'"));
}

TEST(RoutingRecording, RejectsAWrongLine) {
  const std::string first = "moeflux routing 1 4 8 2\n";
  EXPECT_THAT(refusal(first, 2), States("ROW LAYER EXPERT", "end of the file"));
  EXPECT_THAT(refusal(first + "\n", 2), States("row", "end of the line"));
  EXPECT_THAT(refusal(first + " 0 1 3 6\n", 2), States("row", "' 0 1 3 6'"));
  EXPECT_THAT(refusal(first + "0  1 3 6\n", 2), States("layer", "' 1 3 6'"));
  EXPECT_THAT(refusal(first + "0 1 3 6 \n", 2), States("one space", "'6 '"));
  EXPECT_THAT(refusal(first + "0\t1 3 6\n", 2), States("one space", "'0?1 3 6'"));
  EXPECT_THAT(refusal(first + "1 1 3 6\n", 2), States("row 0", 1));
  EXPECT_THAT(refusal(first + "0 4 3 6\n", 2), States("layer", 0, 3, 4));
  EXPECT_THAT(refusal(first + "0 1 3 8\n", 2), States("expert", 4, 7, 8));
  EXPECT_THAT(refusal(first + "0 1 3 3\n", 2), States("expert", 4, 7, 3));
  EXPECT_THAT(refusal(first + "0 1 7 6\n", 2), States("2 ascending experts", 7, "number 1"));
  EXPECT_THAT(refusal(first + "0 1 3\n", 2), States("expert", "end of the line"));
  EXPECT_THAT(refusal(first + "0 1 3 6 7\n", 2), States("end of the line", "'7'"));
  EXPECT_THAT(refusal(first + "0 1 3 6", 2), States("end of the file", "'0 1 3 6'"));
}

TEST(RoutingRecording, RejectsRowsThatDoNotFitTogether) {
  const std::string first = "moeflux routing 1 4 8 2\n0 1 3 6\n0 3 0 7\n";
  EXPECT_THAT(refusal(first + "0 2 3 6\n", 4), States("row 1", "4 layers", "row 0"));
  EXPECT_THAT(refusal(first + "2 1 3 6\n", 4), States("row 0", 1, 2));
  EXPECT_THAT(refusal(first + "1 3 3 6\n", 4), States("layer 1", "row 0", 3));
  EXPECT_THAT(refusal(first + "1 1 3 6\n", 5), States("row 1", "layer 3", "end of the file"));
  EXPECT_THAT(refusal(first + "1 1 3 6\n2 1 3 6\n", 5), States("row 1", 2));
  EXPECT_THAT(refusal(first + "1 1 3 6\n1 3 3 6\n1 3 3 6\n", 6), States("row 2", 1));
  EXPECT_THAT(refusal("moeflux routing 1 4 8 2\n0 2 3 6\n0 1 0 7\n", 3), States("layer", 3, 1));
}

TEST(RoutingRecording, IsRejectedInOneShortPrintableLine) {
  const std::string long_word = "moeflux routing 1 4 8 2\n\x1b[31m" + std::string(1'000'000, 'x') + "\n";
  const std::string message = refusal(long_word, 2).message();
  EXPECT_LT(message.size(), 230);
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
}

TEST(RoutingRecording, RejectsATruncatedFile) {
  for (std::size_t size = 0; size < kThreeRows.size(); ++size) {
    const std::string_view text = kThreeRows.substr(0, size);
    // A prefix that ends after row 0's first layer or after a whole row is valid by itself.
    const bool is_whole =
        text.ends_with("0 1 3 6\n") || text.ends_with("0 7\n") || text.ends_with("1 3 4 5\n");
    EXPECT_EQ(parse_routing_recording(text, "a.routing").has_value(), is_whole) << text;
  }
}

TEST(RoutingRecording, AllocatesNoMoreThanItsText) {
  const AllocationCounter counter;
  EXPECT_FALSE(parse_routing_recording("moeflux routing 1 1024 65536 65536\n0 0 0 1 2\n", "a.routing"));
  EXPECT_LT(counter.peak_bytes(), 10'000);
}

RC_GTEST_PROP(RoutingRecording, IsReadAsItWasWritten, ()) {
  RoutingRecording recording;
  recording.shape.layers = *rc::gen::inRange(1u, 6u);
  recording.shape.experts = *rc::gen::element(1u, 2u, 9u, 300u, 65536u);
  recording.shape.experts_per_token = *rc::gen::inRange(1u, std::min(recording.shape.experts, 5u) + 1);
  for (std::uint32_t layer = 0; layer < recording.shape.layers; ++layer)
    if (layer + 1 == recording.shape.layers || *rc::gen::arbitrary<bool>())
      recording.shape.routed.emplace_back(layer);
  recording.rows = *rc::gen::inRange(1u, 20u);
  for (std::size_t i = 0; i < recording.rows * recording.shape.routed.size(); ++i) {
    const std::uint32_t free = recording.shape.experts - recording.shape.experts_per_token;
    std::uint32_t least = 0;
    for (std::uint32_t k = 0; k < recording.shape.experts_per_token; ++k) {
      least = *rc::gen::inRange(least, free + k + 1);
      recording.experts.push_back(static_cast<std::uint16_t>(least++));
    }
  }
  const TemporaryDirectory folder;
  PosixFileSystem files;
  RC_ASSERT(write_routing_recording(files, folder / "a", recording).has_value());
  const Result<RoutingRecording> read = read_routing_recording(files, folder / "a");
  RC_ASSERT(read.has_value());
  RC_ASSERT(*read == recording);
}

TEST(RoutingRecording, IsWrittenWholeOrNotAtAll) {
  const TemporaryDirectory folder;
  PosixFileSystem disk;
  ASSERT_TRUE(write_routing_recording(disk, folder / "a", three_rows()));
  EXPECT_EQ(folder.read("a"), kThreeRows);
  FaultyFileSystem files(disk);
  for (const FileOperation operation :
       {FileOperation::create, FileOperation::append, FileOperation::sync, FileOperation::rename}) {
    files.set_plan({.faults = {{.operation = operation}}});
    EXPECT_FALSE(write_routing_recording(files, folder / "a", {{1, 1, 1, {LayerId(0)}}, 1, {0}}));
    EXPECT_EQ(folder.read("a"), kThreeRows);
  }
}

TEST(RoutingRecording, IsNotWrittenWithoutRows) {
  const TemporaryDirectory folder;
  PosixFileSystem disk;
  const Status written = RoutingRecorder(small_shape(), 10).write(disk, folder / "a");
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code(), ErrorCode::invalid_argument);
  EXPECT_THAT(written, States("no row"));
}

TEST(RoutingRecording, NamesAMissingFile) {
  const TemporaryDirectory folder;
  PosixFileSystem disk;
  const Result<RoutingRecording> recording = read_routing_recording(disk, folder / "missing.routing");
  ASSERT_FALSE(recording);
  EXPECT_EQ(recording.error().code(), ErrorCode::not_found);
  EXPECT_THAT(recording, States("missing.routing"));
}

TEST(RoutingRecording, IsRejectedForAnotherModelWithBothShapes) {
  EXPECT_TRUE(require_fit(three_rows(), small_shape()));
  const auto misfit = [](const RoutingShape& model) {
    const Status fits = require_fit(three_rows(), model);
    if (fits) return Error{ErrorCode::cancelled, "it fits"};
    EXPECT_EQ(fits.error().code(), ErrorCode::invalid_argument);
    return fits.error();
  };
  EXPECT_THAT(
      misfit({60, 512, 10, {LayerId(1), LayerId(3), LayerId(4)}}),
      States("60 layers", 3, "512 experts", "10 per token", "4 layers", 2, "8 experts", "2 per token"));
  EXPECT_NE(misfit({4, 8, 3, {LayerId(1), LayerId(3)}}).code(), ErrorCode::cancelled);
  EXPECT_NE(misfit({4, 9, 2, {LayerId(1), LayerId(3)}}).code(), ErrorCode::cancelled);
  EXPECT_NE(misfit({5, 8, 2, {LayerId(1), LayerId(3)}}).code(), ErrorCode::cancelled);
  EXPECT_THAT(misfit({4, 8, 2, {LayerId(2), LayerId(3)}}), States("in other layers"));
}

TEST(RecordedRouting, PlaysRowsInEveryLayerAndStartsOver) {
  RecordedRouting routing(three_rows());
  EXPECT_EQ(play(routing, 1, 2), (std::vector<std::uint32_t>{3, 6, 0, 3}));
  EXPECT_EQ(play(routing, 3, 2), (std::vector<std::uint32_t>{0, 7, 4, 5}));
  EXPECT_EQ(play(routing, 1, 5), (std::vector<std::uint32_t>{3, 7, 3, 6, 0, 3, 3, 7, 3, 6}));
  EXPECT_EQ(play(routing, 3, 1), (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(play(routing, 3, 1), (std::vector<std::uint32_t>{0, 7}));
}

TEST(RecordedRouting, KeepsTheWeights) {
  RecordedRouting routing(three_rows());
  std::vector<std::uint32_t> chosen{1, 2};
  std::vector<float> weights{0.75f, 0.25f};
  routing.choose(LayerId(1), 8, 2, chosen, weights);
  EXPECT_EQ(weights, (std::vector{0.75f, 0.25f}));
}

TEST(RecordedRouting, RequiresAModelThatFits) {
  RecordedRouting routing(three_rows());
  std::vector<std::uint32_t> chosen(2);
  std::vector<float> weights(2);
  EXPECT_CONTRACT(routing.choose(LayerId(1), 9, 2, chosen, weights),
                  "the model has the shape of the recording");
  EXPECT_CONTRACT(routing.choose(LayerId(2), 8, 2, chosen, weights), "the layer is one that has a router");
  EXPECT_CONTRACT(RecordedRouting(RoutingRecording{small_shape(), 0, {}}),
                  "a recording that is played has rows");
}

TEST(RoutingRecorder, RecordsTheRoutersChoices) {
  RoutingRecorder recorder(small_shape(), 10);
  record(recorder, 1, {3, 6, 0, 3});
  record(recorder, 3, {0, 7, 4, 5});
  record(recorder, 1, {3, 7});
  EXPECT_EQ(recorder.rows(), 2) << "layer 3 has not seen the third";
  record(recorder, 3, {1, 2});
  EXPECT_EQ(recorder.rows(), 3);
  EXPECT_EQ(recorder.dropped_rows(), 0);
  EXPECT_EQ(recorder.recording(), three_rows());

  const TemporaryDirectory folder;
  PosixFileSystem disk;
  ASSERT_TRUE(recorder.write(disk, folder / "a"));
  EXPECT_EQ(folder.read("a"), kThreeRows);
}

TEST(RoutingRecorder, CountsDroppedRows) {
  RoutingRecorder recorder(small_shape(), 2);
  record(recorder, 1, {3, 6, 0, 3, 3, 7, 3, 7});
  record(recorder, 3, {0, 7, 4, 5, 1, 2, 1, 2});
  EXPECT_EQ(recorder.rows(), 2);
  EXPECT_EQ(recorder.dropped_rows(), 2);
  EXPECT_EQ(recorder.recording().experts, (std::vector<std::uint16_t>{3, 6, 0, 7, 0, 3, 4, 5}));
}

TEST(RoutingRecorder, AllocatesAtMostTheSizeOfAFile) {
  RoutingShape large{1024, 65536, 1000, {}};
  for (std::uint32_t layer = 0; layer < large.layers; ++layer) large.routed.emplace_back(layer);
  const AllocationCounter counter;
  const RoutingRecorder recorder(large, ~std::uint64_t{0});
  EXPECT_LT(counter.peak_bytes(), kMaxRoutingRecordingBytes / 2);
}

TEST(RoutingRecorder, RequiresAscendingExperts) {
  RoutingRecorder recorder(small_shape(), 2);
  EXPECT_CONTRACT(record(recorder, 1, {6, 3}), "a row's experts are ascending and the model's");
  EXPECT_CONTRACT(record(recorder, 1, {6, 8}), "a row's experts are ascending and the model's");
}

TEST(RoutingRecorder, AllocatesNothingPerStepNorDoesAPlayer) {
  RoutingRecorder recorder(small_shape(), 1);
  RecordedRouting routing(three_rows());
  std::vector<std::uint32_t> chosen(8);
  std::vector<float> weights(8);
  const AllocationCounter counter;
  routing.choose(LayerId(1), 8, 2, chosen, weights);
  recorder.choose(LayerId(1), 8, 2, chosen, weights);
  EXPECT_EQ(counter.allocations(), 0);
}

}  // namespace
}  // namespace moeflux
