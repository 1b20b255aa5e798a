#include "measure/bench.h"

#include <gtest/gtest.h>

#include <vector>

#include "io/posix_file_system.h"
#include "io/testing/temporary_directory.h"
#include "measure/drive_probe.h"
#include "measure/routing_source.h"
#include "model/testing/tiny_packed_model.h"

namespace moeflux {
namespace {

struct Benching : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem files;
  std::filesystem::path path;
  EngineOptions options;
  std::uint32_t reported = 0;

  void SetUp() override {
    const Manifest manifest = tiny_manifest(tiny_qwen_config());
    path = write_packed_model(temporary, manifest);
    write_random_weights(temporary, manifest);
    options.threads = 1;
    options.context = 64;
  }
  Result<BenchResult> run(const BenchOptions& bench) {
    MF_TRY(PackedModel model, PackedModel::open(files, path));
    MF_TRY(const std::shared_ptr<Engine> engine, Engine::open(files, std::move(model), options));
    return run_bench(*engine, bench, [&](std::uint32_t done, std::uint32_t) { reported = done; });
  }
};

TEST_F(Benching, CountsRoundsThatAreCounted) {
  const Result<BenchResult> result =
      run({.prompt_tokens = 10, .decode_tokens = 4, .repeats = 3, .warm_ups = 2});
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_EQ(reported, 5u);
  EXPECT_EQ(result->prompt.tokens, 10u);
  EXPECT_EQ(result->prompt.steps.rows, 30u);
  EXPECT_EQ(result->decode.steps.rows, 12u);
  EXPECT_GT(result->prompt.tokens_per_second.median, 0);
  EXPECT_GT(result->decode.tokens_per_second.median, 0);
  EXPECT_LE(result->decode.tokens_per_second.least, result->decode.tokens_per_second.largest);
}

TEST_F(Benching, ComparesWithTheMachineWhereItIsAskedTo) {
  BenchOptions bench{.prompt_tokens = 10, .decode_tokens = 4, .repeats = 2, .warm_ups = 1};
  const Result<BenchResult> alone = run(bench);
  ASSERT_TRUE(alone) << alone.error().message();
  EXPECT_FALSE(alone->compute);
  EXPECT_FALSE(alone->memory);
  bench.compares = true;
  const Result<BenchResult> compared = run(bench);
  ASSERT_TRUE(compared) << compared.error().message();
  ASSERT_TRUE(compared->compute);
  EXPECT_GT(compared->compute->per_second, 0);
  EXPECT_GT(compared->compute->fraction, 0);
  EXPECT_FALSE(compared->memory) << "so few weights are in a cache";
}

TEST_F(Benching, ReadsTheModelsOwnWeightsBetweenRounds) {
  const Result<BenchResult> result = run({.prompt_tokens = 2,
                                          .decode_tokens = 1,
                                          .repeats = 2,
                                          .warm_ups = 0,
                                          .compares = true,
                                          .read_weights_bytes = 4096});
  ASSERT_TRUE(result) << result.error().message();
  ASSERT_TRUE(result->memory);
  EXPECT_GT(result->memory->per_second, 0);
  EXPECT_GT(result->memory->fraction, 0);
}

TEST_F(Benching, KnowsTheBytesThatATokenTouches) {
  const Result<BenchResult> result =
      run({.prompt_tokens = 1, .decode_tokens = 2, .repeats = 1, .warm_ups = 0});
  ASSERT_TRUE(result);
  const PackedModel model = *PackedModel::open(files, path);
  std::uint64_t bytes = 0;
  for (const PackedTensor& tensor : model.manifest().tensors)
    if (tensor.name != "embed_tokens") bytes += tensor.bytes;
  std::uint64_t all = 0;
  for (const ExpertFile& file : model.manifest().experts)
    for (const ExpertRecord& record : file.records) all += record.bytes;
  EXPECT_EQ(result->touched_bytes_per_token, bytes + 4 * (all / 8));  // two of four experts, in two layers
}

TEST_F(Benching, DecodesSeveralSessionsTogether) {
  const Result<BenchResult> result =
      run({.prompt_tokens = 3, .decode_tokens = 4, .repeats = 1, .warm_ups = 0, .batch = 5});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->decode.steps.rows, 20u);
}

TEST_F(Benching, TakesTheChoicesOfARouting) {
  const RoutingShape shape = *routing_shape_of(tiny_qwen_config());
  // Of a layer's four experts the first two, always.
  class First final : public RoutingOverride {
   public:
    void choose(LayerId, std::uint32_t, std::uint32_t per_token, std::span<std::uint32_t> chosen,
                std::span<float>) override {
      for (std::size_t i = 0; i < chosen.size(); ++i) chosen[i] = static_cast<std::uint32_t>(i % per_token);
    }
  } first;
  const Result<BenchResult> result =
      run({.prompt_tokens = 8, .decode_tokens = 8, .repeats = 1, .warm_ups = 0, .routing = &first});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->prompt.steps.experts.misses + result->prompt.steps.experts.late +
                result->prompt.steps.experts.hits,
            4u);
  EXPECT_EQ(result->decode.steps.experts.misses, 0u);
  EXPECT_EQ(shape.experts, 4u);
}

TEST_F(Benching, RefusesWhatCannotBe) {
  EXPECT_FALSE(run({.repeats = 0}));
  EXPECT_FALSE(run({.batch = 0}));
  const Result<BenchResult> long_one = run({.prompt_tokens = 60, .decode_tokens = 5});
  ASSERT_FALSE(long_one);
  EXPECT_EQ(long_one.error().code(), ErrorCode::context_full);
}

TEST_F(Benching, TheProbeOfADriveReadsWholeRecords) {
  const PackedModel model = *PackedModel::open(files, path);
  const std::uint64_t record = model.manifest().experts[0].records[0].bytes;
  for (const DriveKind kind : {DriveKind::uring, DriveKind::pread, DriveKind::buffered}) {
    const Result<DriveProbe> probe = probe_drive(model, {kind, {}}, 10 * record, 1);
    ASSERT_TRUE(probe) << probe.error().message();
    EXPECT_GE(probe->bytes, 10 * record);
    EXPECT_EQ(probe->bytes % kDriveAlignment, 0u);
    EXPECT_GT(probe->bytes_per_second, 0);
    EXPECT_FALSE(probe->drive.empty());
  }
}

}  // namespace
}  // namespace moeflux
