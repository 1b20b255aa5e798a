// Eight sessions of one engine on four threads: steps, forks, snapshots, files, cancels and failures at the
// same time. Each session must have what a plain model says, and the bits of a session alone. ThreadSanitizer
// runs this, too.

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "engine/testing/test_models.h"

namespace moeflux {
namespace {

constexpr std::uint32_t kThreads = 4, kSessionsPerThread = 2;
constexpr int kOperations = 300;
constexpr std::size_t kLongest = 120;

// One thread's sessions, and their tokens by the plain model.
class Client {
 public:
  Client(Engine& engine, std::uint32_t seed) : engine_(engine), random_(seed) {
    for (std::uint32_t i = 0; i < kSessionsPerThread; ++i) sessions_.push_back({new_session(engine), {}});
  }

  void run() {
    for (int i = 0; i < kOperations; ++i) operate();
  }

  // Called when the threads have ended.
  void expect_the_bits_of_sessions_alone() {
    const Tokens next = random_tokens(engine_, 2, 1);
    for (const Own& own : sessions_) {
      EXPECT_TRUE(std::ranges::equal(own.session.tokens(), own.tokens));
      EXPECT_TRUE(
          same_bits(logits_ahead(own.session, next), fresh_logits(engine_, joined(own.tokens, next))));
    }
  }

  int committed = 0, refused = 0, failed = 0;

 private:
  struct Own {
    Session session;
    Tokens tokens;
  };

  std::uint32_t below(std::uint32_t limit) { return static_cast<std::uint32_t>(random_() % limit); }
  Own& any() { return sessions_[below(kSessionsPerThread)]; }
  Tokens some_tokens() {
    return random_tokens(engine_, 1 + below(12), static_cast<std::uint32_t>(random_()));
  }

  void operate() {
    Own& own = any();
    if (own.tokens.size() > kLongest) {
      own.session.clear();
      own.tokens.clear();
    }
    switch (below(8)) {
      case 0: step_together(Tokens(1, TokenId(engine_.config().vocabulary)), nullptr); break;
      case 1: cancel_while_it_runs(); break;
      case 2: own.session.checkpoint(); break;
      case 3: fork(own); break;
      case 4: rewind(own); break;
      case 5: save_and_load(own); break;
      case 6: restore(own); break;
      default: step_together(some_tokens(), nullptr); break;
    }
  }

  // A step of all sessions of this thread, where `first_tokens` are those of the first one.
  void step_together(const Tokens& first_tokens, const std::atomic<bool>* cancel) {
    std::array<Tokens, kSessionsPerThread> tokens{first_tokens, some_tokens()};
    std::vector<Segment> batch;
    for (std::uint32_t i = 0; i < kSessionsPerThread; ++i)
      batch.push_back({&sessions_[i].session, tokens[i], WantedLogits::none, {}, i == 0 ? cancel : nullptr});
    std::array<Status, kSessionsPerThread> outcomes;
    if (const Result<StepStatistics> done = engine_.step_each(batch, outcomes); !done) {
      EXPECT_EQ(done.error().code(), ErrorCode::io_failed);
      ++failed;
      return;
    }
    for (std::uint32_t i = 0; i < kSessionsPerThread; ++i) count(outcomes[i], sessions_[i], tokens[i]);
  }

  void count(const Status& outcome, Own& own, const Tokens& tokens) {
    if (outcome) {
      ++committed;
      own.tokens.insert(own.tokens.end(), tokens.begin(), tokens.end());
    } else if (outcome.error().code() != ErrorCode::cancelled) {  // that depends on when the flag is set
      EXPECT_EQ(outcome.error().code(), ErrorCode::token_out_of_range);
      ++refused;
    }
  }

  // Another thread sets the flag before, during or after the step.
  void cancel_while_it_runs() {
    std::atomic<bool> cancel = false;
    std::thread canceller([&] { cancel = true; });
    step_together(some_tokens(), &cancel);
    canceller.join();
  }

  // Goes on as a fork; the session itself ends.
  void fork(Own& own) { own.session = fork_of(own.session); }

  void rewind(Own& own) {
    const std::uint32_t position = own.tokens.empty() ? 0 : below(own.session.position() + 1);
    const Result<StepStatistics> done = own.session.rewind(position);
    if (done)
      own.tokens.resize(position, TokenId(0));
    else
      ++failed;
  }

  void save_and_load(Own& own) {
    const std::vector<std::byte> file = saved(own.session);
    Own other{new_session(engine_), own.tokens};
    EXPECT_TRUE(succeeds(other.session.load(file)));
    own = std::move(other);
  }

  void restore(Own& own) {
    const Snapshot snapshot = own.session.snapshot();
    const Tokens tokens = some_tokens();
    if (!own.session.extend(tokens)) ++failed;
    EXPECT_TRUE(succeeds(own.session.restore(snapshot)));
  }

  Engine& engine_;
  std::mt19937 random_;
  std::vector<Own> sessions_;
};

using ManySessions = OnSmallModels;
INSTANTIATE_TEST_SUITE_P(, ManySessions, testing::Values("qwen", "deepseek"), name_of_model);

TEST_P(ManySessions, OnFourThreadsHaveTheBitsOfSessionsAlone) {
  FailingExperts::Control control;
  const auto engine = model.open({.threads = 2, .context = 300, .step_rows = 64}, control);
  std::vector<Client> clients;
  for (std::uint32_t i = 0; i < kThreads; ++i) clients.emplace_back(*engine, 10 + i);
  control.fail_every = 97;
  {
    std::vector<std::jthread> threads;
    for (Client& client : clients) threads.emplace_back([&client] { client.run(); });
  }
  control.fail_every = FailingExperts::kNever;
  int committed = 0, refused = 0, failed = 0;
  for (Client& client : clients) {
    client.expect_the_bits_of_sessions_alone();
    committed += client.committed;
    refused += client.refused;
    failed += client.failed;
  }
  EXPECT_GT(committed, 100);
  EXPECT_GT(refused, 10);
  EXPECT_GT(failed, 5);
  clients.clear();
  EXPECT_EQ(engine->state_pool().used_bytes(), 0u);
}

}  // namespace
}  // namespace moeflux
