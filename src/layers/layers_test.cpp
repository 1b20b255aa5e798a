// Every kind of layer, on scalar kernels, against its formula in double precision
// (layers/testing/float64_reference.h).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/overloaded.h"
#include "experts/record_view.h"
#include "experts/resident_experts.h"
#include "kernels/kernel_table.h"
#include "layers/decoder_layer.h"
#include "layers/gated_attention.h"
#include "layers/gated_delta_net.h"
#include "layers/mla.h"
#include "layers/moe.h"
#include "layers/swiglu_mlp.h"
#include "layers/testing/float64_reference.h"
#include "model/testing/random_model.h"
#include "ops/cpu_ops.h"

namespace moeflux {
namespace {

using reference::Sequence;

struct TestSession {
  SessionState state;
  Sequence seen = {};      // the rows that were run, for the reference
  Sequence computed = {};  // the layer's output for them
};

class LayerTest : public testing::Test {
 protected:
  // `layer`: the one under test.
  LayerTest(const ModelConfig& model_config, std::uint32_t layer)
      : config(model_config),
        layer_id(layer),
        model(open_random_model(directory, config)),
        memory(*AlignedBuffer::create(model.manifest().resident_bytes)),
        weights(Weights(model, std::as_const(memory).bytes()).of_layer(layer)),
        experts(*ResidentExperts::open(model)),
        ops(pool, **select_kernels("scalar"), *Workspace::create(std::size_t{64} << 20)) {
    EXPECT_TRUE(model.resident_file().read_exactly(0, memory.bytes()));
  }

  TestSession new_session() { return {*SessionState::create(config, kv_pool, config.max_positions)}; }

  // Runs one step in which sessions[i] gets counts[i] more rows; `forward` is the layer.
  using Forward = std::function<Status(const Step& step, const Input& x, Rows y)>;
  void run(const std::vector<TestSession*>& sessions, const std::vector<std::uint32_t>& counts,
           const Forward& forward) {
    const Ops::Scope scope(ops);
    const std::vector<TokenId> tokens(100, TokenId(0));
    std::vector<StepSegment> segments;
    std::uint32_t rows = 0;
    for (std::size_t i = 0; i < sessions.size(); ++i) {
      ASSERT_TRUE(sessions[i]->state.begin_step(std::span(tokens).first(counts[i])));
      segments.push_back({.state = &sessions[i]->state,
                          .tokens = std::span(tokens).first(counts[i]),
                          .first_row = rows,
                          .position = sessions[i]->state.position()});
      rows += counts[i];
    }
    const Rows x = ops.take(rows, config.dim), y = ops.take(rows, config.dim);
    for (std::uint32_t row = 0; row < rows; ++row)
      std::generate_n(x.row(row), config.dim, [&] { return input_size * random_number(random); });
    Step step{.ops = ops, .experts = *experts, .segments = segments, .rows = rows};
    const RopeTable table = rope_table(segments, rows);
    step.rope = {&table, 1};
    ASSERT_TRUE(forward(step, ops.prepare(x), y));
    for (std::size_t i = 0; i < sessions.size(); ++i) {
      for (std::uint32_t row = segments[i].first_row; row < segments[i].first_row + counts[i]; ++row) {
        sessions[i]->seen.emplace_back(x.row(row), x.row(row) + config.dim);
        sessions[i]->computed.emplace_back(y.row(row), y.row(row) + config.dim);
      }
      sessions[i]->state.commit();
    }
  }

  // Two sessions in steps of few and of many rows, alone and together; each is compared with a reference of
  // its own.
  void expect_matches(const Forward& forward, const std::function<Sequence(const Sequence&)>& expected) {
    TestSession first = new_session(), second = new_session();
    run({&first}, {3}, forward);
    run({&second, &first}, {1, 4}, forward);
    run({&first}, {1}, forward);
    run({&first, &second}, {40, 7}, forward);
    for (const TestSession* session : {&first, &second}) {
      expect_near(session->computed, expected(session->seen));
    }
  }

  // Equal up to the rounding of float32, relative to the largest number.
  static void expect_near(const Sequence& found, const Sequence& expected) {
    double largest = 0;
    for (const reference::Vector& row : expected)
      for (const double number : row) largest = std::max(largest, std::abs(number));
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t row = 0; row < expected.size(); ++row) {
      ASSERT_EQ(found[row].size(), expected[row].size()) << "row " << row;
      for (std::size_t i = 0; i < expected[row].size(); ++i)
        ASSERT_NEAR(found[row][i], expected[row][i], 2e-5 * largest) << "row " << row << ", channel " << i;
    }
  }

  template <class Config>
  const Config& mixer() const {
    return std::get<Config>(config.layers[layer_id.index()].mixer);
  }

  const ModelConfig config;
  const LayerId layer_id;
  TemporaryDirectory directory;
  PackedModel model;
  AlignedBuffer memory;
  Weights weights;
  std::unique_ptr<ResidentExperts> experts;
  ThreadPool pool{1};
  CpuOps ops;
  BlockPool kv_pool{BlockPool::kNoBudget};
  std::mt19937 random{11};
  float input_size = 2;  // of the numbers of a row

 private:
  RopeTable rope_table(const std::vector<StepSegment>& segments, std::uint32_t rows) {
    const MixerConfig& mixer_config = config.layers[layer_id.index()].mixer;
    const auto* attention = std::get_if<GatedAttentionConfig>(&mixer_config);
    const auto* mla = std::get_if<MlaConfig>(&mixer_config);
    if (attention == nullptr && mla == nullptr) return {};
    const Rope rope(attention != nullptr ? attention->rope : mla->rope);
    const RopeTable table{ops.take(rows, rope.pairs()), ops.take(rows, rope.pairs())};
    for (const StepSegment& segment : segments)
      for (std::uint32_t row = 0; row < segment.rows(); ++row)
        rope.fill(segment.position + row, {table.cos.row(segment.first_row + row), rope.pairs()},
                  {table.sin.row(segment.first_row + row), rope.pairs()});
    return table;
  }
};

ModelConfig qwen_with_more_heads() {
  ModelConfig config = tiny_qwen_config();
  auto& attention = std::get<GatedAttentionConfig>(config.layers[1].mixer);
  attention.query_heads = 4;
  attention.kv_heads = 2;
  return config;
}

struct DeltaNetLayer : LayerTest {
  DeltaNetLayer() : LayerTest(tiny_qwen_config(), 0) {}

  void expect_formula() {
    const auto& net = mixer<GatedDeltaNetConfig>();
    GatedDeltaNet layer(net, config.norm_eps, weights);
    layer.derive();
    expect_matches(
        [&](const Step& step, const Input& x, Rows y) {
          layer.forward(step, layer_id, x, y);
          return Status();
        },
        [&](const Sequence& x) { return reference::gated_delta_net(net, config.norm_eps, weights, x); });
  }
};

TEST_F(DeltaNetLayer, MatchesItsFormula) { expect_formula(); }

// Queries and keys so small that the epsilon of their norms decides their length.
TEST_F(DeltaNetLayer, MatchesItsFormulaForTinyInputs) {
  input_size = 1e-4f;
  expect_formula();
}

struct AttentionLayer : LayerTest {
  AttentionLayer() : LayerTest(qwen_with_more_heads(), 1) {}
};

TEST_F(AttentionLayer, MatchesItsFormula) {
  const auto& attention = mixer<GatedAttentionConfig>();
  const GatedAttention layer(attention, config.norm_eps, 0, weights);
  expect_matches(
      [&](const Step& step, const Input& x, Rows y) {
        layer.forward(step, layer_id, x, y);
        return Status();
      },
      [&](const Sequence& x) { return reference::gated_attention(attention, config.norm_eps, weights, x); });
}

ModelConfig deepseek_with_value_dim(std::uint32_t value_dim) {
  ModelConfig config = tiny_deepseek_config();
  for (LayerConfig& layer : config.layers) std::get<MlaConfig>(layer.mixer).value_dim = value_dim;
  return config;
}

// With 24 values per head, heads begin within a block of 16 rows.
struct MlaLayer : LayerTest, testing::WithParamInterface<std::uint32_t> {
  MlaLayer() : LayerTest(deepseek_with_value_dim(GetParam()), 1) {}
};
INSTANTIATE_TEST_SUITE_P(, MlaLayer, testing::Values(24u, 32u),
                         [](const auto& dim) { return "ValueDim" + std::to_string(dim.param); });

TEST_P(MlaLayer, MatchesItsFormulaWithoutAbsorbing) {
  const auto& mla = mixer<MlaConfig>();
  Result<Mla> layer = Mla::create(mla, config.norm_eps, 0, weights);
  ASSERT_TRUE(layer);
  layer->derive();
  expect_matches(
      [&](const Step& step, const Input& x, Rows y) {
        layer->forward(step, layer_id, x, y);
        return Status();
      },
      [&](const Sequence& x) { return reference::mla(mla, config.norm_eps, weights, x); });
}

struct SwigluLayer : LayerTest {
  SwigluLayer() : LayerTest(tiny_deepseek_config(), 0) {}
};

TEST_F(SwigluLayer, MatchesItsFormula) {
  const SwigluMlp layer(weights, "mlp");
  const reference::Swiglu expected = reference::swiglu(weights, "mlp");
  expect_matches(
      [&](const Step& step, const Input& x, Rows y) {
        layer.forward(step.ops, x, y);
        return Status();
      },
      [&](const Sequence& x) {
        Sequence y;
        for (const reference::Vector& row : x) y.push_back(expected.times(row));
        return y;
      });
}

class MoeLayer : public LayerTest {
 protected:
  using LayerTest::LayerTest;

  std::vector<reference::Swiglu> decoded_experts() const {
    std::vector<reference::Swiglu> all;
    for (std::uint32_t e = 0; e < moe().experts; ++e) {
      const ExpertKey key{layer_id, ExpertId(e)};
      const ExpertRecord& record = model.record(key);
      std::vector<std::byte> bytes(record.bytes);
      EXPECT_TRUE(model.expert_file(layer_id).read_exactly(record.offset, bytes));
      const ExpertView view = view_of(model.expert_format(record), bytes);
      all.push_back(
          {reference::decoded(view.gate), reference::decoded(view.up), reference::decoded(view.down)});
    }
    return all;
  }
  const MoeConfig& moe() const { return std::get<MoeConfig>(config.layers[layer_id.index()].mlp); }

  void expect_matches_formula() {
    const Moe layer(moe(), weights);
    const std::vector<reference::Swiglu> all = decoded_experts();
    expect_matches(
        [&](const Step& step, const Input& x, Rows y) { return layer.forward(step, layer_id, x, y); },
        [&](const Sequence& x) { return reference::moe(moe(), all, weights, x); });
  }
};

ModelConfig qwen_with_more_experts() {
  ModelConfig config = tiny_qwen_config();
  auto& moe = std::get<MoeConfig>(config.layers[0].mlp);
  moe.experts = 8;
  moe.experts_per_token = 3;
  return config;
}
ModelConfig deepseek_with_more_experts() {
  ModelConfig config = tiny_deepseek_config();
  auto& moe = std::get<MoeConfig>(config.layers[1].mlp);
  moe.experts = 16;
  moe.experts_per_token = 4;
  moe.router = GroupedSigmoidRouterConfig{.groups = 4, .groups_kept = 2, .normalise = true, .scale = 2.5};
  return config;
}

struct SoftmaxMoeLayer : MoeLayer {
  SoftmaxMoeLayer() : MoeLayer(qwen_with_more_experts(), 0) {}
};
TEST_F(SoftmaxMoeLayer, MatchesItsFormula) { expect_matches_formula(); }

struct GroupedSigmoidMoeLayer : MoeLayer {
  GroupedSigmoidMoeLayer() : MoeLayer(deepseek_with_more_experts(), 1) {}
};
TEST_F(GroupedSigmoidMoeLayer, MatchesItsFormula) { expect_matches_formula(); }

// Replaces every choice by the first experts, with weights of 1.
class FirstExperts final : public RoutingOverride {
 public:
  void choose(LayerId, std::uint32_t, std::uint32_t experts_per_token, std::span<std::uint32_t> chosen,
              std::span<float> weights) override {
    for (std::size_t i = 0; i < chosen.size(); ++i)
      chosen[i] = static_cast<std::uint32_t>(i % experts_per_token);
    std::ranges::fill(weights, 1.0f);
  }
};

TEST_F(SoftmaxMoeLayer, VisitsTheExpertsOfAnOverrideAndRecordsThoseOfTheLastRow) {
  const Moe layer(moe(), weights);
  const std::vector<reference::Swiglu> all = decoded_experts();
  MoeConfig without_experts = moe();
  without_experts.experts_per_token = 0;
  FirstExperts first_experts;
  ExpertHistory history(config.layers.size(), moe().experts_per_token);
  TestSession session = new_session();
  run({&session}, {5}, [&](const Step& given, const Input& x, Rows y) {
    StepSegment segment = given.segments[0];
    segment.history = &history;
    Step step{.ops = given.ops, .experts = given.experts, .segments = {&segment, 1}, .rows = given.rows};
    step.experts_per_token = 2;
    step.options.routing = &first_experts;
    return layer.forward(step, layer_id, x, y);
  });
  EXPECT_TRUE(std::ranges::equal(history.of(layer_id), std::vector{0u, 1u}));
  const Sequence shared = reference::moe(without_experts, all, weights, session.seen);
  for (std::size_t row = 0; row < 5; ++row) {
    const reference::Vector a = all[0].times(session.seen[row]), b = all[1].times(session.seen[row]);
    for (std::size_t i = 0; i < config.dim; ++i)
      ASSERT_NEAR(session.computed[row][i], shared[row][i] + a[i] + b[i], 2e-5) << row << ", " << i;
  }
}

struct DecoderCase {
  const char* name;
  ModelConfig config;
  std::uint32_t layer;

  friend void PrintTo(const DecoderCase& given, std::ostream* out) { *out << given.name; }
};

// The layers of both families: every mixer and every kind of MLP.
class WholeLayer : public MoeLayer, public testing::WithParamInterface<DecoderCase> {
 protected:
  WholeLayer() : MoeLayer(GetParam().config, GetParam().layer) {}

  DecoderLayer new_layer() const {
    Result<DecoderLayer> layer = DecoderLayer::create(config, layer_id, 0, weights);
    EXPECT_TRUE(layer);
    layer->derive();
    return *std::move(layer);
  }
  bool has_moe() const { return std::holds_alternative<MoeConfig>(config.layers[layer_id.index()].mlp); }
  bool has_shared_gate() const { return has_moe() && moe().shared->gated; }

  static Forward forward_of(const DecoderLayer& layer, StepObserver* observer = nullptr) {
    return [&layer, observer](const Step& given, const Input& x, Rows residual) {
      for (std::uint32_t row = 0; row < given.rows; ++row)
        std::copy_n(x.x.row(row), residual.cols, residual.row(row));
      Step step = given;
      step.options.observer = observer;
      return layer.forward(step, residual);
    };
  }

  reference::DecoderStages expected(const Sequence& x) const {
    const double eps = config.norm_eps;
    const auto mix = overloaded{
        [&](const GatedDeltaNetConfig& net, const Sequence& rows) {
          return reference::gated_delta_net(net, eps, weights, rows);
        },
        [&](const GatedAttentionConfig& attention, const Sequence& rows) {
          return reference::gated_attention(attention, eps, weights, rows);
        },
        [&](const MlaConfig& mla, const Sequence& rows) { return reference::mla(mla, eps, weights, rows); },
    };
    return reference::decoder_layer(
        eps, weights, x,
        [&](const Sequence& rows) {
          return std::visit([&](const auto& mixer) { return mix(mixer, rows); },
                            config.layers[layer_id.index()].mixer);
        },
        [&](const Sequence& rows) { return expected_mlp(rows); });
  }

 private:
  Sequence expected_mlp(const Sequence& x) const {
    if (has_moe()) return reference::moe(moe(), decoded_experts(), weights, x);
    const reference::Swiglu mlp = reference::swiglu(weights, "mlp");
    Sequence y;
    for (const reference::Vector& row : x) y.push_back(mlp.times(row));
    return y;
  }
};

TEST_P(WholeLayer, AddsItsMixerAndThenItsMlpToTheResidual) {
  const DecoderLayer layer = new_layer();
  expect_matches(forward_of(layer), [&](const Sequence& x) { return expected(x).residual; });
}

// Records what a layer shows, in order.
class RecordingObserver final : public StepObserver {
 public:
  void saw(StepPoint point, LayerId layer, std::span<const float> rows, std::uint32_t cols) override {
    points.emplace_back(name_of(point));
    layers.push_back(layer);
    Sequence& matrix = rows_at[point];
    for (std::size_t at = 0; at < rows.size(); at += cols)
      matrix.push_back(reference::as_doubles(rows.subspan(at, cols)));
  }
  void chose(LayerId layer, std::span<const std::uint32_t>, std::span<const float>, std::uint32_t) override {
    points.emplace_back("chose");
    layers.push_back(layer);
  }
  bool replace_residual(LayerId, std::span<float>, std::uint32_t) override {
    ADD_FAILURE() << "the engine asks for residuals, not the layer";
    return false;
  }

  std::vector<std::string> points;
  std::vector<LayerId> layers;
  std::map<StepPoint, Sequence> rows_at;
};

TEST_P(WholeLayer, ShowsAnObserverEveryStageInOrder) {
  const DecoderLayer layer = new_layer();
  RecordingObserver observer;
  TestSession observed = new_session();
  run({&observed}, {5}, forward_of(layer, &observer));
  std::vector<std::string> order = {"normed", "mixed", "mlp_normed"};
  if (has_moe()) order.insert(order.end(), {"router_logits", "chose", "shared", "routed"});
  if (has_shared_gate()) order.emplace_back("shared_gate");
  order.emplace_back("residual");
  EXPECT_THAT(observer.points, testing::ElementsAreArray(order));
  EXPECT_THAT(observer.layers, testing::Each(layer_id));
  const reference::DecoderStages stages = expected(observed.seen);
  expect_near(observer.rows_at[StepPoint::normed], stages.normed);
  expect_near(observer.rows_at[StepPoint::mixed], stages.mixed);
  expect_near(observer.rows_at[StepPoint::mlp_normed], stages.mlp_normed);
  expect_near(observer.rows_at[StepPoint::residual], stages.residual);
  EXPECT_EQ(observer.rows_at[StepPoint::residual], observed.computed);
  if (!has_shared_gate()) return;
  const reference::Matrix gate = reference::decoded(weights.matrix("mlp.shared_expert_gate"));
  Sequence scores;  // before the sigmoid
  for (const reference::Vector& row : stages.mlp_normed) scores.push_back(gate.times(row));
  expect_near(observer.rows_at[StepPoint::shared_gate], scores);
}

INSTANTIATE_TEST_SUITE_P(DecoderLayer, WholeLayer,
                         testing::Values(DecoderCase{"QwenDeltaNet", qwen_with_more_experts(), 0},
                                         DecoderCase{"QwenAttention", qwen_with_more_heads(), 1},
                                         DecoderCase{"DeepseekDense", tiny_deepseek_config(), 0},
                                         DecoderCase{"DeepseekMoe", deepseek_with_more_experts(), 1}),
                         [](const auto& given) { return std::string(given.param.name); });

}  // namespace
}  // namespace moeflux
