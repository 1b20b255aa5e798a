// What a StepObserver sees of a step, and what it may change.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "engine/testing/test_models.h"

namespace moeflux {
namespace {

class RecordingObserver : public StepObserver {
 public:
  struct Seen {
    std::string what;
    std::uint32_t layer;
    std::size_t rows;
    std::uint32_t cols;
    friend bool operator==(const Seen&, const Seen&) = default;
    friend void PrintTo(const Seen& one, std::ostream* out) {
      *out << one.what << " of layer " << one.layer << ": " << one.rows << " x " << one.cols;
    }
  };
  void saw(StepPoint point, LayerId layer, std::span<const float> rows, std::uint32_t cols) override {
    ASSERT_EQ(rows.size() % cols, 0u);
    seen.push_back({std::string(name_of(point)), layer.index(), rows.size() / cols, cols});
    values.emplace_back(rows.begin(), rows.end());
  }
  void chose(LayerId layer, std::span<const std::uint32_t> experts, std::span<const float> weights,
             std::uint32_t experts_per_token) override {
    ASSERT_EQ(experts.size(), weights.size());
    seen.push_back({"choice", layer.index(), experts.size() / experts_per_token, experts_per_token});
    values.emplace_back(weights.begin(), weights.end());
  }
  bool replace_residual(LayerId layer, std::span<float> rows, std::uint32_t cols) override {
    asked.push_back({"replace", layer.index(), rows.size() / cols, cols});
    inputs.emplace_back(rows.begin(), rows.end());
    if (!replacing || layer.index() != replaced_layer) return false;
    replacing(rows);
    return true;
  }
  const std::vector<float>& value_of(const std::string& what, std::uint32_t layer) const {
    for (std::size_t i = 0; i < seen.size(); ++i)
      if (seen[i].what == what && seen[i].layer == layer) return values[i];
    ADD_FAILURE() << what << " of layer " << layer << " was not seen";
    return values.front();
  }

  std::vector<Seen> seen, asked;
  std::vector<std::vector<float>> values, inputs;  // of `seen` and of `asked`
  std::uint32_t replaced_layer = 0;
  std::function<void(std::span<float>)> replacing;
};

class Observing : public OnSmallModels {
 protected:
  // What an observer sees of a step with `rows` rows, `wanted` of which want logits.
  std::vector<RecordingObserver::Seen> expected_points(std::size_t rows, std::size_t wanted) const {
    std::vector<RecordingObserver::Seen> points = {{"embedding", 0, rows, config.dim}};
    for (std::uint32_t i = 0; i < config.layers.size(); ++i) {
      for (const char* point : {"normed", "mixed", "mlp_normed"})
        points.push_back({point, i, rows, config.dim});
      if (const auto* moe = std::get_if<MoeConfig>(&config.layers[i].mlp)) {
        points.push_back({"router_logits", i, rows, moe->experts});
        points.push_back({"choice", i, rows, moe->experts_per_token});
        points.push_back({"shared", i, rows, config.dim});
        points.push_back({"routed", i, rows, config.dim});
        if (moe->shared->gated) points.push_back({"shared_gate", i, rows, 1});
      }
      points.push_back({"residual", i, rows, config.dim});
    }
    const auto last = static_cast<std::uint32_t>(config.layers.size()) - 1;
    if (wanted != 0) points.push_back({"final_norm", last, wanted, config.dim});
    return points;
  }
};
INSTANTIATE_TEST_SUITE_P(, Observing, testing::Values("qwen", "deepseek"), name_of_model);

TEST_P(Observing, SeesEveryPointInOrder) {
  const auto engine = model.open({.threads = 2});
  const Tokens tokens = random_tokens(*engine, 40);
  for (const std::size_t rows : {1u, 5u, 40u}) {
    Session session = new_session(*engine);
    RecordingObserver all, last, none;
    all_logits(session, std::span(tokens).first(rows), {.observer = &all});
    logits_after(session, std::span(tokens).first(rows), {.observer = &last});
    step(*engine, {{&session, std::span(tokens).first(rows), WantedLogits::none, {}}}, {.observer = &none});
    EXPECT_EQ(all.seen, expected_points(rows, rows));
    EXPECT_EQ(last.seen, expected_points(rows, 1));
    EXPECT_EQ(none.seen, expected_points(rows, 0));
    ASSERT_EQ(all.asked.size(), config.layers.size());
    for (std::uint32_t i = 0; i < config.layers.size(); ++i)
      EXPECT_EQ(all.asked[i], (RecordingObserver::Seen{"replace", i, rows, config.dim}));
  }
}

TEST_P(Observing, SeesTheRowsOfAllSessionsInTheOrderOfTheBatch) {
  const auto engine = model.open();
  const Tokens tokens = random_tokens(*engine, 6);
  Session alone = new_session(*engine), first = new_session(*engine), second = new_session(*engine);
  RecordingObserver of_alone, of_both;
  Logits logits(config.vocabulary);
  logits_after(alone, std::span(tokens).first(2), {.observer = &of_alone});
  step(*engine,
       {{&first, std::span(tokens).last(4), WantedLogits::none, {}},
        {&second, std::span(tokens).first(2), WantedLogits::last, logits}},
       {.observer = &of_both});
  EXPECT_EQ(of_both.seen, expected_points(6, 1));
  for (std::size_t i = 0; i < of_alone.values.size(); ++i) {
    const std::vector<float>& expected = of_alone.values[i];
    const std::span<const float> found = std::span(of_both.values[i]).last(expected.size());
    EXPECT_TRUE(same_bits(found, expected)) << of_alone.seen[i].what;
  }
}

TEST_P(Observing, ChangesNoBit) {
  const auto engine = model.open({.threads = 2});
  const Tokens tokens = random_tokens(*engine, 50);
  for (const std::size_t rows : {5u, 50u}) {
    Session watched = new_session(*engine), unwatched = new_session(*engine);
    RecordingObserver observer;
    const auto some = std::span(tokens).first(rows);
    const Logits logits = all_logits(watched, some, {.observer = &observer});
    EXPECT_TRUE(same_bits(logits, all_logits(unwatched, some)));
    EXPECT_TRUE(same_bits(all_logits(watched, some), all_logits(unwatched, some)));
  }
}

TEST_P(Observing, MayReplaceAResidual) {
  const auto engine = model.open();
  const Tokens tokens = random_tokens(*engine, 9), others = random_tokens(*engine, 9, 2);
  Session session = new_session(*engine), other = new_session(*engine);
  RecordingObserver seen;
  const Logits expected = all_logits(session, tokens, {.observer = &seen});
  const auto last = static_cast<std::uint32_t>(config.layers.size()) - 1;
  // The last layer of another text, run on this text's residual, computes this text's keys and values too.
  RecordingObserver replacing;
  replacing.replaced_layer = last;
  replacing.replacing = [&](std::span<float> rows) {
    std::ranges::copy(seen.value_of("residual", last - 1), rows.begin());
  };
  EXPECT_TRUE(same_bits(all_logits(other, others, {.observer = &replacing}), expected));
  other.clear();
  EXPECT_FALSE(same_bits(all_logits(other, others), expected));
}

TEST_P(Observing, GetsTheInputOfALayerToReplace) {
  const auto engine = model.open();
  const Tokens tokens = random_tokens(*engine, 9);
  Session session = new_session(*engine), steered = new_session(*engine), same = new_session(*engine);
  RecordingObserver seen;
  const Logits expected = all_logits(session, tokens, {.observer = &seen});
  ASSERT_EQ(seen.inputs.size(), config.layers.size());
  EXPECT_TRUE(same_bits(seen.inputs[0], seen.value_of("embedding", 0)));
  for (std::uint32_t i = 1; i < config.layers.size(); ++i)
    EXPECT_TRUE(same_bits(seen.inputs[i], seen.value_of("residual", i - 1))) << i;

  RecordingObserver steering;
  steering.replaced_layer = 1;
  steering.replacing = [](std::span<float> rows) { rows[0] += 1; };
  EXPECT_FALSE(same_bits(all_logits(steered, tokens, {.observer = &steering}), expected));
  steering.replacing = [](std::span<float>) {};  // replaces the input by itself
  EXPECT_TRUE(same_bits(all_logits(same, tokens, {.observer = &steering}), expected));
}

}  // namespace
}  // namespace moeflux
