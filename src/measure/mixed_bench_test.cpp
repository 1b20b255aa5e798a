#include "measure/mixed_bench.h"

#include <gtest/gtest.h>

#include "base/testing/states.h"
#include "io/posix_file_system.h"
#include "io/testing/temporary_directory.h"
#include "model/testing/random_model.h"
#include "model/testing/tiny_packed_model.h"

namespace moeflux {
namespace {

std::shared_ptr<Engine> open_engine(std::uint32_t step_rows) {
  const TemporaryDirectory directory;
  PosixFileSystem files;
  const EngineOptions options{.threads = 1, .context = 64, .step_rows = step_rows, .sessions = 8};
  return *Engine::open(files, open_random_model(directory, tiny_qwen_config()), options);
}

TEST(MixedBench, MeasuresAChunkDecodesAndBoth) {
  const auto engine = open_engine(20);
  const Result<MixedResult> result =
      run_mixed_bench(*engine, {.chunk_rows = 16, .decodes = 4, .decode_position = 8, .repeats = 3});
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_GT(result->chunk, 0);
  EXPECT_GT(result->decodes, 0);
  EXPECT_GT(result->both, 0);
  EXPECT_GT(result->ratio, 0);
  EXPECT_EQ(engine->state_pool().used_bytes(), 0u) << "its sessions are gone";
}

TEST(MixedBench, FailsIfAStepCannotHoldBoth) {
  const auto engine = open_engine(19);
  const Result<MixedResult> result =
      run_mixed_bench(*engine, {.chunk_rows = 16, .decodes = 4, .decode_position = 8, .repeats = 1});
  ASSERT_FALSE(result);
  EXPECT_THAT(result, test::States("20 rows", "19"));
  EXPECT_EQ(run_mixed_bench(*engine, {.chunk_rows = 0}).error().code(), ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace moeflux
