// Streaming in C with a drive that fails on demand, or with a context that has too little memory.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <moeflux.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/testing/states.h"
#include "capi/handles.h"
#include "engine/testing/test_models.h"
#include "io/testing/faulty_drive.h"

namespace moeflux {
namespace {

using test::States;

using testing::HasSubstr;

// A small model with less than half of its experts in memory, and a drive that a test can make fail.
struct StreamingInC : testing::Test {
  const ModelOnDisk model{small_qwen()};
  const std::shared_ptr<DriveFaults> faults = std::make_shared<DriveFaults>();
  const std::shared_ptr<Engine> engine = open();
  const std::vector<std::uint32_t> tokens = ids_of(random_tokens(*engine, 40));
  mf_message why = {};

  std::shared_ptr<Engine> open() const {
    EngineOptions options{.threads = 1};
    const std::shared_ptr<Engine> held = model.open(options);
    options.expert_cache_bytes = held->memory_plan().experts_bytes / 3;
    options.drive = DriveChoice{.kind = DriveKind::buffered};
    options.store.wrap_drive = [this](std::unique_ptr<Drive> drive) {
      return std::make_unique<FaultyDrive>(std::move(drive), faults);
    };
    return model.open(options);
  }
  static std::vector<std::uint32_t> ids_of(const Tokens& tokens) {
    std::vector<std::uint32_t> ids;
    for (const TokenId token : tokens) ids.push_back(token.index());
    return ids;
  }
  void fail_every_read() {
    faults->set_plan(
        {.faults = {{.kind = DriveFaultKind::error, .and_all_later = true, .error_number = EIO}}});
  }
};

TEST_F(StreamingInC, AnIoFaultIsReportedAndTheSessionContinuesAfterIt) {
  Logits expected(engine->config().vocabulary), found(expected.size());
  mf_session undisturbed(new_session(*engine)), session(new_session(*engine));
  ASSERT_EQ(mf_session_extend(&undisturbed, tokens.data(), 20, expected.data(), nullptr, &why), MF_OK);
  ASSERT_EQ(mf_session_extend(&session, tokens.data(), 10, nullptr, nullptr, &why), MF_OK);

  fail_every_read();
  EXPECT_EQ(mf_session_extend(&session, tokens.data() + 10, 10, found.data(), nullptr, &why), MF_IO_FAILED);
  EXPECT_THAT(why.text, States("expert"));
  EXPECT_THAT(why.text, HasSubstr("experts/layer_"));
  EXPECT_THAT(why.text, States("Input/output error"));
  EXPECT_EQ(mf_session_position(&session), 10u);

  faults->set_plan({});
  ASSERT_EQ(mf_session_extend(&session, tokens.data() + 10, 10, found.data(), nullptr, &why), MF_OK)
      << why.text;
  EXPECT_TRUE(same_bits(found, expected));
}

// A context as mf_init_model opens it where memory is short.
struct PrefetchInC : StreamingInC {
  mf_ctx context{engine, new_session(*engine), "small"};
  Logits logits = Logits(engine->config().vocabulary);

  // A prompt of `count` tokens leaves experts in memory that its last token did not choose; their slots are
  // free for guesses. From 11 tokens on, it sweeps the experts, which are then guesses too.
  void eval(std::size_t begin, std::size_t count) {
    const std::vector<std::int32_t> some(tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                                         tokens.begin() + static_cast<std::ptrdiff_t>(begin + count));
    ASSERT_EQ(mf_eval_prompt(&context, some.data(), count, begin, 0, logits.data()), 0)
        << mf_last_error(&context);
  }
  struct Guesses {
    std::uint64_t right = 7, wrong = 7;
  };
  Guesses guesses() const {
    Guesses found;
    mf_prefetch_stats(&context, &found.right, &found.wrong);
    return found;
  }
};

TEST_F(PrefetchInC, CountsRightAndWrongGuessesSinceTheReset) {
  EXPECT_EQ(guesses().right + guesses().wrong, 0u);
  eval(0, 20);
  eval(20, 1);
  const ExpertStatistics then = engine->expert_statistics();
  EXPECT_EQ(guesses().right, then.useful_guesses + then.late_guesses);
  EXPECT_EQ(guesses().wrong, then.wrong_guesses);
  EXPECT_GT(guesses().right + guesses().wrong, 0u);

  mf_prefetch_reset(&context);
  EXPECT_EQ(guesses().right + guesses().wrong, 0u);
  eval(21, 18);
  eval(39, 1);
  const ExpertStatistics since = engine->expert_statistics() - then;
  EXPECT_EQ(guesses().right, since.useful_guesses + since.late_guesses);
  EXPECT_EQ(guesses().wrong, since.wrong_guesses);
}

// The same steps; the test above shows that the second one guesses.
TEST_F(PrefetchInC, GuessesNothingAfterPredictionsAreCleared) {
  eval(0, 10);
  const std::uint64_t before = engine->expert_statistics().speculated_bytes;
  mf_prefetch_clear_predictions(&context);
  eval(10, 1);
  EXPECT_EQ(engine->expert_statistics().speculated_bytes, before);
  EXPECT_EQ(guesses().right + guesses().wrong, 0u);
}

TEST_F(PrefetchInC, AnIoFaultIsReportedByTheOriginalsFunctions) {
  eval(0, 10);
  fail_every_read();
  const auto token = static_cast<std::int32_t>(tokens[10]);
  EXPECT_EQ(mf_eval_token(&context, token, 10, 0, logits.data()), MF_IO_FAILED);
  EXPECT_THAT(mf_last_error(&context), States("expert"));
  EXPECT_EQ(mf_memory_seq_pos_max(&context, 0), 10);
  faults->set_plan({});
  eval(10, 10);
}

}  // namespace
}  // namespace moeflux
