#include "measure/routing_trace.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/allocation_counter.h"
#include "base/expect_contract.h"
#include "io/faulty_file_system.h"
#include "io/posix_file_system.h"
#include "io/temporary_directory.h"

namespace moeflux {
namespace {

constexpr std::string_view kThreeRows =
    "moeflux routing 1 4 8 2\n0 1 3 6\n0 3 0 7\n1 1 0 3\n1 3 4 5\n2 1 3 7\n2 3 1 2\n";

RoutingShape small_shape() { return {4, 8, 2, {LayerId(1), LayerId(3)}}; }

RoutingTrace three_rows() { return {small_shape(), 3, {3, 6, 0, 7, 0, 3, 4, 5, 3, 7, 1, 2}}; }

// The message after the place, which is checked too.
std::string refusal(std::string_view text, unsigned line, ErrorCode code = ErrorCode::corrupt_data) {
  const Result<RoutingTrace> trace = parse_routing_trace(text, "a.routing");
  if (trace) return "it is accepted";
  EXPECT_EQ(trace.error().code(), code) << text;
  const std::string place = "'a.routing', line " + std::to_string(line) + ": ";
  if (!trace.error().message().starts_with(place)) return trace.error().message();
  return trace.error().message().substr(place.size());
}

std::vector<std::uint32_t> play(Routing& routing, std::uint32_t layer, std::uint32_t rows) {
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

TEST(RoutingTrace, IsParsed) {
  const Result<RoutingTrace> trace = parse_routing_trace(kThreeRows, "a.routing");
  ASSERT_TRUE(trace) << trace.error().message();
  EXPECT_EQ(*trace, three_rows());
}

TEST(RoutingTrace, MayHaveOneRowOfOneExpert) {
  const Result<RoutingTrace> trace = parse_routing_trace("moeflux routing 1 1 1 1\n0 0 0\n", "a.routing");
  ASSERT_TRUE(trace) << trace.error().message();
  EXPECT_EQ(*trace, (RoutingTrace{{1, 1, 1, {LayerId(0)}}, 1, {0}}));
}

TEST(RoutingTrace, IsRefusedForItsFirstLine) {
  EXPECT_EQ(refusal("", 1),
            "expected 'moeflux routing 1 LAYERS EXPERTS PER_TOKEN', found the end of the file");
  EXPECT_EQ(refusal("moeflux", 1), "expected a line that ends, found the end of the file after 'moeflux'");
  EXPECT_EQ(refusal("\n", 1), "expected 'moeflux routing ', found ''");
  EXPECT_EQ(refusal("Moeflux routing 1 1 1 1\n", 1),
            "expected 'moeflux routing ', found 'Moeflux routing 1 1 1 1'");
  EXPECT_EQ(refusal("moeflux routing 2 1 1 1\n", 1, ErrorCode::unsupported), "expected version 1, found 2");
  EXPECT_EQ(refusal("moeflux routing 01 1 1 1\n", 1), "expected the version of the format, found '01 1 1 1'");
  EXPECT_EQ(refusal("moeflux routing 1 0 8 2\n", 1), "expected layers from 1 to 1024, found 0");
  EXPECT_EQ(refusal("moeflux routing 1 1025 8 2\n", 1), "expected layers from 1 to 1024, found 1025");
  EXPECT_EQ(refusal("moeflux routing 1 4 0 2\n", 1), "expected experts from 1 to 65536, found 0");
  EXPECT_EQ(refusal("moeflux routing 1 4 65537 2\n", 1), "expected experts from 1 to 65536, found 65537");
  EXPECT_EQ(refusal("moeflux routing 1 4 8 0\n", 1), "expected experts a token from 1 to 8, found 0");
  EXPECT_EQ(refusal("moeflux routing 1 4 8 9\n", 1), "expected experts a token from 1 to 8, found 9");
  EXPECT_EQ(refusal("moeflux routing 1 4 8\n", 1), "expected experts a token, found the end of the line");
  EXPECT_EQ(refusal("moeflux routing 1 4 8 2 1\n", 1), "expected the end of the line, found '1'");
  EXPECT_EQ(refusal("moeflux routing 1 -4 8 2\n", 1), "expected layers, found '-4 8 2'");
  EXPECT_EQ(refusal("moeflux routing 1 99999999999999999999 8 2\n", 1),
            "expected layers, found '99999999999999999999 8 2'");
  EXPECT_EQ(refusal("moeflux routing 1 4 8 2\r\n", 1),
            "expected one space between numbers and none behind them, found '2?'");
}

TEST(RoutingTrace, IsRefusedForALine) {
  const std::string first = "moeflux routing 1 4 8 2\n";
  EXPECT_EQ(refusal(first, 2), "expected 'ROW LAYER EXPERT...', found the end of the file");
  EXPECT_EQ(refusal(first + "\n", 2), "expected the number of a row, found the end of the line");
  EXPECT_EQ(refusal(first + " 0 1 3 6\n", 2), "expected the number of a row, found ' 0 1 3 6'");
  EXPECT_EQ(refusal(first + "0  1 3 6\n", 2), "expected a layer, found ' 1 3 6'");
  EXPECT_EQ(refusal(first + "0 1 3 6 \n", 2),
            "expected one space between numbers and none behind them, found '6 '");
  EXPECT_EQ(refusal(first + "0\t1 3 6\n", 2),
            "expected one space between numbers and none behind them, found '0?1 3 6'");
  EXPECT_EQ(refusal(first + "1 1 3 6\n", 2), "expected row 0, found 1");
  EXPECT_EQ(refusal(first + "0 4 3 6\n", 2), "expected a layer from 0 to 3, found 4");
  EXPECT_EQ(refusal(first + "0 1 3 8\n", 2), "expected an ascending expert from 4 to 7, found 8");
  EXPECT_EQ(refusal(first + "0 1 3 3\n", 2), "expected an ascending expert from 4 to 7, found 3");
  EXPECT_EQ(refusal(first + "0 1 7 6\n", 2),
            "expected 2 ascending experts, found 7, the last of them, as number 1");
  EXPECT_EQ(refusal(first + "0 1 3\n", 2), "expected an ascending expert, found the end of the line");
  EXPECT_EQ(refusal(first + "0 1 3 6 7\n", 2), "expected the end of the line, found '7'");
  EXPECT_EQ(refusal(first + "0 1 3 6", 2),
            "expected a line that ends, found the end of the file after '0 1 3 6'");
}

TEST(RoutingTrace, IsRefusedForRowsThatDoNotFitTogether) {
  const std::string first = "moeflux routing 1 4 8 2\n0 1 3 6\n0 3 0 7\n";
  EXPECT_EQ(refusal(first + "0 2 3 6\n", 4),
            "expected row 1, as the last of 4 layers was there, found row 0");
  EXPECT_EQ(refusal(first + "2 1 3 6\n", 4), "expected row 0 or 1, found 2");
  EXPECT_EQ(refusal(first + "1 3 3 6\n", 4), "expected layer 1, as in row 0, found 3");
  EXPECT_EQ(refusal(first + "1 1 3 6\n", 5), "expected row 1, layer 3, found the end of the file");
  EXPECT_EQ(refusal(first + "1 1 3 6\n2 1 3 6\n", 5), "expected row 1, found 2");
  EXPECT_EQ(refusal(first + "1 1 3 6\n1 3 3 6\n1 3 3 6\n", 6), "expected row 2, found 1");
  EXPECT_EQ(refusal("moeflux routing 1 4 8 2\n0 2 3 6\n0 1 0 7\n", 3),
            "expected a layer from 3 to 3, found 1");
}

TEST(RoutingTrace, IsRefusedInAShortHarmlessLine) {
  const std::string long_word = "moeflux routing 1 4 8 2\n\x1b[31m" + std::string(1'000'000, 'x') + "\n";
  const std::string message = refusal(long_word, 2);
  EXPECT_LT(message.size(), 200);
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
}

TEST(RoutingTrace, IsRefusedWhereverItIsCut) {
  for (std::size_t size = 0; size < kThreeRows.size(); ++size) {
    const std::string_view text = kThreeRows.substr(0, size);
    // After row 0's first layer or after a whole row the rest makes sense by itself.
    const bool is_whole =
        text.ends_with("0 1 3 6\n") || text.ends_with("0 7\n") || text.ends_with("1 3 4 5\n");
    EXPECT_EQ(parse_routing_trace(text, "a.routing").has_value(), is_whole) << text;
  }
}

TEST(RoutingTrace, TakesNoMoreMemoryThanItsText) {
  const AllocationCounter counter;
  EXPECT_FALSE(parse_routing_trace("moeflux routing 1 1024 65536 65536\n0 0 0 1 2\n", "a.routing"));
  EXPECT_LT(counter.peak_bytes(), 10'000);
}

RC_GTEST_PROP(RoutingTrace, IsReadAsItWasWritten, ()) {
  RoutingTrace trace;
  trace.shape.layers = *rc::gen::inRange(1u, 6u);
  trace.shape.experts = *rc::gen::element(1u, 2u, 9u, 300u, 65536u);
  trace.shape.experts_per_token = *rc::gen::inRange(1u, std::min(trace.shape.experts, 5u) + 1);
  for (std::uint32_t layer = 0; layer < trace.shape.layers; ++layer)
    if (layer + 1 == trace.shape.layers || *rc::gen::arbitrary<bool>())
      trace.shape.routed.emplace_back(layer);
  trace.rows = *rc::gen::inRange(1u, 20u);
  for (std::size_t i = 0; i < trace.rows * trace.shape.routed.size(); ++i) {
    const std::uint32_t free = trace.shape.experts - trace.shape.experts_per_token;
    std::uint32_t least = 0;
    for (std::uint32_t k = 0; k < trace.shape.experts_per_token; ++k) {
      least = *rc::gen::inRange(least, free + k + 1);
      trace.experts.push_back(static_cast<std::uint16_t>(least++));
    }
  }
  const TemporaryDirectory folder;
  PosixFileSystem files;
  RC_ASSERT(write_routing_trace(files, folder / "a", trace).has_value());
  const Result<RoutingTrace> read = read_routing_trace(files, folder / "a");
  RC_ASSERT(read.has_value());
  RC_ASSERT(*read == trace);
}

TEST(RoutingTrace, IsWrittenWholeOrNotAtAll) {
  const TemporaryDirectory folder;
  PosixFileSystem disk;
  ASSERT_TRUE(write_routing_trace(disk, folder / "a", three_rows()));
  EXPECT_EQ(folder.read("a"), kThreeRows);
  FaultyFileSystem files(disk);
  for (const FileOperation operation :
       {FileOperation::create, FileOperation::append, FileOperation::sync, FileOperation::rename}) {
    files.set_plan({.faults = {{.operation = operation}}});
    EXPECT_FALSE(write_routing_trace(files, folder / "a", {{1, 1, 1, {LayerId(0)}}, 1, {0}}));
    EXPECT_EQ(folder.read("a"), kThreeRows);
  }
}

TEST(RoutingTrace, WithoutRowsIsNotWritten) {
  const TemporaryDirectory folder;
  PosixFileSystem disk;
  const Status written = RoutingRecorder(small_shape(), 10).write(disk, folder / "a");
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code(), ErrorCode::invalid_argument);
  EXPECT_NE(written.error().message().find("there is no row to write"), std::string::npos);
}

TEST(RoutingTrace, ThatIsNotThereIsNamed) {
  const TemporaryDirectory folder;
  PosixFileSystem disk;
  const Result<RoutingTrace> trace = read_routing_trace(disk, folder / "missing.routing");
  ASSERT_FALSE(trace);
  EXPECT_EQ(trace.error().code(), ErrorCode::not_found);
  EXPECT_NE(trace.error().message().find("missing.routing"), std::string::npos);
}

TEST(RoutingTrace, OfAnotherModelIsRefusedWithBothShapes) {
  EXPECT_TRUE(require_fit(three_rows(), small_shape()));
  const auto misfit = [](const RoutingShape& model) {
    const Status fits = require_fit(three_rows(), model);
    if (fits) return std::string("it fits");
    EXPECT_EQ(fits.error().code(), ErrorCode::invalid_argument);
    return fits.error().message();
  };
  EXPECT_EQ(
      misfit({60, 512, 10, {LayerId(1), LayerId(3), LayerId(4)}}),
      "a routing trace of another model: expected 60 layers, 3 of them with 512 experts, 10 a token, found 4 "
      "layers, 2 of them with 8 experts, 2 a token");
  EXPECT_NE(misfit({4, 8, 3, {LayerId(1), LayerId(3)}}), "it fits");
  EXPECT_NE(misfit({4, 9, 2, {LayerId(1), LayerId(3)}}), "it fits");
  EXPECT_NE(misfit({5, 8, 2, {LayerId(1), LayerId(3)}}), "it fits");
  EXPECT_TRUE(misfit({4, 8, 2, {LayerId(2), LayerId(3)}}).ends_with("; the layers with experts are others"));
}

TEST(TraceRouting, PlaysRowsInEveryLayerAndBeginsAgain) {
  TraceRouting routing(three_rows());
  EXPECT_EQ(play(routing, 1, 2), (std::vector<std::uint32_t>{3, 6, 0, 3}));
  EXPECT_EQ(play(routing, 3, 2), (std::vector<std::uint32_t>{0, 7, 4, 5}));
  EXPECT_EQ(play(routing, 1, 5), (std::vector<std::uint32_t>{3, 7, 3, 6, 0, 3, 3, 7, 3, 6}));
  EXPECT_EQ(play(routing, 3, 1), (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(play(routing, 3, 1), (std::vector<std::uint32_t>{0, 7}));
}

TEST(TraceRouting, LeavesWeightsWhereTheyAre) {
  TraceRouting routing(three_rows());
  std::vector<std::uint32_t> chosen{1, 2};
  std::vector<float> weights{0.75f, 0.25f};
  routing.choose(LayerId(1), 8, 2, chosen, weights);
  EXPECT_EQ(weights, (std::vector{0.75f, 0.25f}));
}

TEST(TraceRouting, IsPromisedAModelThatFits) {
  TraceRouting routing(three_rows());
  std::vector<std::uint32_t> chosen(2);
  std::vector<float> weights(2);
  EXPECT_CONTRACT(routing.choose(LayerId(1), 9, 2, chosen, weights), "the model has the shape of the trace");
  EXPECT_CONTRACT(routing.choose(LayerId(2), 8, 2, chosen, weights), "the layer is one that has a router");
  EXPECT_CONTRACT(TraceRouting(RoutingTrace{small_shape(), 0, {}}), "a trace that is played has rows");
}

TEST(RoutingRecorder, KeepsWhatTheRouterChose) {
  RoutingRecorder recorder(small_shape(), 10);
  record(recorder, 1, {3, 6, 0, 3});
  record(recorder, 3, {0, 7, 4, 5});
  record(recorder, 1, {3, 7});
  EXPECT_EQ(recorder.rows(), 2) << "layer 3 has not seen the third";
  record(recorder, 3, {1, 2});
  EXPECT_EQ(recorder.rows(), 3);
  EXPECT_EQ(recorder.forgotten_rows(), 0);
  EXPECT_EQ(recorder.trace(), three_rows());

  const TemporaryDirectory folder;
  PosixFileSystem disk;
  ASSERT_TRUE(recorder.write(disk, folder / "a"));
  EXPECT_EQ(folder.read("a"), kThreeRows);
}

TEST(RoutingRecorder, CountsTheRowsThatItHasNoRoomFor) {
  RoutingRecorder recorder(small_shape(), 2);
  record(recorder, 1, {3, 6, 0, 3, 3, 7, 3, 7});
  record(recorder, 3, {0, 7, 4, 5, 1, 2, 1, 2});
  EXPECT_EQ(recorder.rows(), 2);
  EXPECT_EQ(recorder.forgotten_rows(), 2);
  EXPECT_EQ(recorder.trace().experts, (std::vector<std::uint16_t>{3, 6, 0, 7, 0, 3, 4, 5}));
}

TEST(RoutingRecorder, TakesNoMoreThanAFileMayHold) {
  RoutingShape large{1024, 65536, 1000, {}};
  for (std::uint32_t layer = 0; layer < large.layers; ++layer) large.routed.emplace_back(layer);
  const AllocationCounter counter;
  const RoutingRecorder recorder(large, ~std::uint64_t{0});
  EXPECT_LT(counter.peak_bytes(), kMaxRoutingTraceBytes / 2);
}

TEST(RoutingRecorder, IsPromisedAscendingExperts) {
  RoutingRecorder recorder(small_shape(), 2);
  EXPECT_CONTRACT(record(recorder, 1, {6, 3}), "a row's experts are ascending and the model's");
  EXPECT_CONTRACT(record(recorder, 1, {6, 8}), "a row's experts are ascending and the model's");
}

TEST(RoutingRecorder, AndPlayingAllocateNothing) {
  RoutingRecorder recorder(small_shape(), 1);
  TraceRouting routing(three_rows());
  std::vector<std::uint32_t> chosen(8);
  std::vector<float> weights(8);
  const AllocationCounter counter;
  routing.choose(LayerId(1), 8, 2, chosen, weights);
  recorder.choose(LayerId(1), 8, 2, chosen, weights);
  EXPECT_EQ(counter.allocations(), 0);
}

}  // namespace
}  // namespace moeflux
