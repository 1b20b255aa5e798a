// What an engine hints for the next step: every session's last experts, and none of an abandoned timeline.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/testing/streaming_testing.h"
#include "layers/moe.h"

namespace moeflux {
namespace {

using Experts = std::vector<std::uint32_t>;

struct Hint {
  std::uint32_t layer;
  Experts experts;
  float confidence;
};

struct Heard {
  std::vector<Hint> hints;
  std::vector<FetchOrder> orders;  // of the fetches
};

// Holds all experts in memory and records hints and fetches.
class ListeningExperts final : public ExpertSource {
 public:
  ListeningExperts(std::unique_ptr<ExpertSource> source, Heard& heard)
      : source_(std::move(source)), heard_(heard) {}
  std::uint32_t lease_limit() const override { return 1u << 30; }
  const ResidencyMap& residency() const override { return source_->residency(); }
  void hint(LayerId layer, std::span<const std::uint32_t> experts, float confidence) override {
    heard_.hints.push_back({layer.index(), {experts.begin(), experts.end()}, confidence});
  }

 private:
  void start(LayerId layer, std::span<const std::uint32_t> wanted, FetchOrder order) override {
    heard_.orders.push_back(order);
    Fetch fetch = source_->begin(layer, wanted, order);
    leases_.clear();
    next_ = 0;
    while (true) {
      Result<std::optional<Lease>> lease = fetch.next();
      if (!lease || !*lease) break;
      leases_.push_back(**std::move(lease));
    }
  }
  Result<std::optional<ReadyExpert>> next_ready() override {
    if (next_ == leases_.size()) return std::optional<ReadyExpert>();
    const Lease& lease = leases_[next_];
    return std::optional<ReadyExpert>({lease.expert(), lease.view(), static_cast<std::uint32_t>(next_++)});
  }
  bool is_one_ready() const override { return next_ < leases_.size(); }
  void stop() override {}
  void release(std::uint32_t) override {}

  std::unique_ptr<ExpertSource> source_;
  Heard& heard_;
  std::vector<Lease> leases_;
  std::size_t next_ = 0;
};

std::shared_ptr<Engine> open_listening(const ModelOnDisk& model, Heard& heard, bool prefetches = true) {
  EngineOptions options{.threads = 1, .context = 256, .step_rows = 64};
  options.prefetches = prefetches;
  options.experts = [&heard](const PackedModel& packed) -> Result<std::unique_ptr<ExpertSource>> {
    MF_TRY(std::unique_ptr<ResidentExperts> resident, ResidentExperts::open(packed));
    return std::unique_ptr<ExpertSource>(new ListeningExperts(std::move(resident), heard));
  };
  return model.open(options);
}

class StreamingHints : public OnSmallModels {
 protected:
  std::shared_ptr<Engine> open(bool prefetches = true) { return open_listening(model, heard, prefetches); }
  // The choices of the last row, by layer.
  using Choices = std::vector<Experts>;  // [layers]
  static Experts sorted(Experts experts) {
    std::ranges::sort(experts);
    return experts;
  }
  Choices run(Session& session, const Tokens& tokens) {
    heard = {};
    ChoiceObserver observer;
    step(session.engine(), {{&session, tokens, WantedLogits::none, {}}}, {.observer = &observer});
    Choices last(config.layers.size());
    for (const ChoiceObserver::Layer& layer : observer.layers)
      last[layer.layer.index()] =
          sorted({layer.experts.end() - layer.experts_per_token, layer.experts.end()});
    return last;
  }
  // The hints of the last step, which swept no layer: one per layer with experts.
  Choices guessed() const {
    Choices all(config.layers.size());
    EXPECT_EQ(heard.hints.size(), std::ranges::count_if(config.layers, [](const LayerConfig& layer) {
                return std::holds_alternative<MoeConfig>(layer.mlp);
              }));
    for (const Hint& hint : heard.hints) all[hint.layer] = sorted(hint.experts);
    return all;
  }
  Choices nothing() const { return Choices(config.layers.size()); }
  Tokens one(Session& session, std::uint32_t seed) const { return random_tokens(session.engine(), 1, seed); }

  Heard heard;
};
INSTANTIATE_TEST_SUITE_P(, StreamingHints, testing::Values("qwen", "deepseek"),
                         [](const auto& name) { return std::string(name.param); });

TEST_P(StreamingHints, AreTheExpertsOfTheSessionsLastToken) {
  const auto engine = open();
  Session session = new_session(*engine);
  Choices last = run(session, random_tokens(*engine, 5));
  EXPECT_EQ(guessed(), nothing());  // no token came before
  for (std::uint32_t i = 0; i < 5; ++i) {
    const Choices now = run(session, random_tokens(*engine, 1 + i, 10 + i));
    EXPECT_EQ(guessed(), last);
    last = now;
  }
}

TEST_P(StreamingHints, AreThoseOfTheSessionsInTheBatch) {
  const auto engine = open();
  Session first = new_session(*engine), second = new_session(*engine);
  const Choices of_first = run(first, one(first, 1)), of_second = run(second, one(second, 2));
  EXPECT_EQ(guessed(), nothing());
  const Tokens tokens = one(first, 3);
  Session third = fork_of(second);
  run(third, tokens);
  EXPECT_EQ(guessed(), of_second) << "a fork has the past of the session that it was made of";
  heard = {};
  step(*engine, {{&first, tokens, WantedLogits::none, {}}, {&second, tokens, WantedLogits::none, {}}});
  Choices both = of_first;
  for (std::size_t layer = 0; layer < both.size(); ++layer) {
    both[layer].insert(both[layer].end(), of_second[layer].begin(), of_second[layer].end());
    std::ranges::sort(both[layer]);
    both[layer].erase(std::unique(both[layer].begin(), both[layer].end()), both[layer].end());
  }
  EXPECT_EQ(guessed(), both);  // each once
}

TEST_P(StreamingHints, AreForgottenWhenASessionIsCleared) {
  const auto engine = open();
  Session session = new_session(*engine);
  run(session, one(session, 1));
  session.clear();
  run(session, one(session, 2));
  EXPECT_EQ(guessed(), nothing());
}

TEST_P(StreamingHints, AreForgottenWhenASessionIsRestoredOrLoaded) {
  const auto engine = open();
  Session session = new_session(*engine);
  run(session, one(session, 1));
  const Snapshot snapshot = session.snapshot();
  const std::vector<std::byte> bytes = saved(session);
  run(session, one(session, 2));
  ASSERT_TRUE(succeeds(session.restore(snapshot)));
  run(session, one(session, 3));
  EXPECT_EQ(guessed(), nothing());
  ASSERT_TRUE(succeeds(session.load(bytes)));
  run(session, one(session, 4));
  EXPECT_EQ(guessed(), nothing());
}

TEST_P(StreamingHints, AreForgottenWhenASessionRestoresACheckpoint) {
  const auto engine = open();
  Session session = new_session(*engine);
  run(session, one(session, 1));
  session.checkpoint();
  run(session, one(session, 2));
  ASSERT_TRUE(succeeds(session.restore_to(1)));
  run(session, one(session, 3));
  EXPECT_EQ(guessed(), nothing());
}

// If the rewind runs tokens again, the last of those counts.
TEST_P(StreamingHints, AreNotThoseOfTheAbandonedTimelineAfterARewind) {
  const auto engine = open();
  Session session = new_session(*engine);
  const Choices at_one = run(session, one(session, 1));
  run(session, one(session, 2));
  run(session, one(session, 3));
  const Result<StepStatistics> again = session.rewind(1);
  ASSERT_TRUE(succeeds(again));
  run(session, one(session, 4));
  EXPECT_EQ(guessed(), again->rows == 0 ? nothing() : at_one);
  ASSERT_TRUE(succeeds(session.rewind_strict(0)));
  run(session, one(session, 5));
  EXPECT_EQ(guessed(), nothing());
}

TEST_P(StreamingHints, AreNotGivenIfPrefetchIsOff) {
  const auto engine = open(false);
  Session session = new_session(*engine);
  run(session, one(session, 1));
  EXPECT_TRUE(heard.hints.empty());
  run(session, random_tokens(*engine, 40));
  EXPECT_TRUE(heard.hints.empty());
}

TEST_P(StreamingHints, ForManyRowsAreAllExpertsOfTheNextLayers) {
  const auto engine = open();
  Session session = new_session(*engine);
  run(session, random_tokens(*engine, 60));
  std::vector<int> times(config.layers.size());
  for (const Hint& hint : heard.hints) {
    const auto* moe = std::get_if<MoeConfig>(&config.layers[hint.layer].mlp);
    ASSERT_NE(moe, nullptr) << "layer " << hint.layer << " has no experts";
    EXPECT_EQ(hint.experts.size(), moe->experts);
    EXPECT_TRUE(std::ranges::is_sorted(hint.experts));
    EXPECT_EQ(hint.confidence, 1.0F);
    ++times[hint.layer];
  }
  for (std::uint32_t layer = 0; layer < times.size(); ++layer)
    EXPECT_EQ(times[layer], std::holds_alternative<MoeConfig>(config.layers[layer].mlp) ? 1 : 0) << layer;
}

// 42 rows choose 32 experts less than four times each on average, 43 rows more.
TEST(StreamingHintsOfMiddleSteps, AreThoseOfFewRowsAndExpertsMayArriveInAnyOrder) {
  ModelConfig config = small_qwen();
  for (LayerConfig& layer : config.layers) std::get<MoeConfig>(layer.mlp).experts = 32;
  const ModelOnDisk model(config);
  Heard heard;
  const auto engine = open_listening(model, heard);
  for (const std::size_t rows : {42u, 43u}) {
    Session session = new_session(*engine);
    ChoiceObserver first;
    step(*engine, {{&session, random_tokens(*engine, 1), WantedLogits::none, {}}}, {.observer = &first});
    heard = {};
    step(*engine, {{&session, random_tokens(*engine, rows), WantedLogits::none, {}}});
    const bool sweeps = rows == 43;
    ASSERT_EQ(heard.hints.size(), config.layers.size());
    for (const Hint& hint : heard.hints)
      EXPECT_EQ(hint.experts.size(), sweeps ? 32u : first.layers[hint.layer].experts.size()) << rows;
    EXPECT_THAT(heard.orders, testing::Each(sweeps ? FetchOrder::ascending : FetchOrder::ready_first));
  }
}

TEST_P(StreamingHints, AfterManyRowsAreThoseOfTheLastRow) {
  const auto engine = open();
  Session session = new_session(*engine);
  const Choices last = run(session, random_tokens(*engine, 50));
  run(session, one(session, 1));
  EXPECT_EQ(guessed(), last);
}

}  // namespace
}  // namespace moeflux
