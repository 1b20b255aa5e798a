// Finds the most scratch memory that a step takes, by running the layers on operations that only measure.

#include <algorithm>
#include <optional>
#include <vector>

#include "engine/engine.h"

namespace moeflux {
namespace {

// Serves experts of the right shapes without memory behind them.
class MeasuringExperts final : public ExpertSource {
 public:
  explicit MeasuringExperts(const PackedModel& model) : model_(model) {}
  std::uint32_t lease_limit() const override { return 1u << 30; }
  const ResidencyMap& residency() const override { return residency_; }

 private:
  void start(LayerId layer, std::span<const std::uint32_t> wanted, FetchOrder) override {
    layer_ = layer;
    wanted_ = wanted;
  }
  Result<std::optional<ReadyExpert>> next_ready() override {
    if (wanted_.empty()) return std::optional<ReadyExpert>();
    const ExpertId expert(wanted_.front());
    wanted_ = wanted_.subspan(1);
    const ExpertFormat& format = model_.expert_format(model_.record({layer_, expert}));
    const auto shaped = [](const MatrixFormat& matrix) {
      return TiledMatrix{matrix.rows, matrix.cols, matrix.encoding, nullptr, 0};
    };
    const ExpertView view{shaped(format.gate), shaped(format.up), shaped(format.down)};
    return std::optional<ReadyExpert>({expert, view, 0});
  }
  bool is_one_ready() const override { return !wanted_.empty(); }
  void stop() override {}
  void release(std::uint32_t) override {}

  static constexpr std::uint32_t kNoRecords = 0;

  const PackedModel& model_;
  const ResidencyMap residency_{{&kNoRecords, 1}};
  LayerId layer_{0};
  std::span<const std::uint32_t> wanted_;
};

class SilentObserver final : public StepObserver {
 public:
  void saw(StepPoint, LayerId, std::span<const float>, std::uint32_t) override {}
  void chose(LayerId, std::span<const std::uint32_t>, std::span<const float>, std::uint32_t) override {}
  bool replace_residual(LayerId, std::span<float>, std::uint32_t) override { return false; }
};

}  // namespace

// Measures the batches that can take the most memory: the largest one, every small number of rows, which
// determines how they are split over threads, and the largest whose experts' outputs are kept. All rows are
// at the end of the context, first as one session's and then each as its own session's. A step that drops
// segments keeps the memory of their rows.
Result<std::uint64_t> Engine::measure_workspace() const {
  std::vector<std::uint32_t> sizes;
  const std::uint32_t small = std::max(32u, 4 * pool_.threads()) + 1;
  for (std::uint32_t rows = 1; rows <= std::min(small, options_.step_rows); ++rows) sizes.push_back(rows);
  for (const LayerConfig& layer : config().layers)
    if (const auto* moe = std::get_if<MoeConfig>(&layer.mlp)) {
      const std::uint32_t rows = sweeping_rows(*moe, options_.experts_per_token) - 1;
      if (rows > small && rows < options_.step_rows && rows != sizes.back()) sizes.push_back(rows);
    }
  sizes.push_back(options_.step_rows);

  std::uint64_t most = 0;
  for (const std::uint32_t rows : sizes)
    for (const std::uint32_t rows_per_session : {std::min(rows, options_.context), 1u}) {
      MF_TRY(const std::uint64_t bytes, measure_step(rows, rows_per_session));
      most = std::max(most, bytes);
    }
  return most;
}

Result<std::uint64_t> Engine::measure_step(std::uint32_t rows, std::uint32_t rows_per_session) const {
  SilentObserver observer;
  MeasuringExperts experts(model_);
  const std::vector<TokenId> tokens(rows_per_session, TokenId(0));
  // Shared by all sessions. Nothing is written, so it takes no memory.
  const std::size_t logits_size = std::size_t{rows_per_session} * config().vocabulary;
  MF_TRY(HugeBuffer logits, HugeBuffer::create(logits_size * sizeof(float)));
  CpuOps ops(pool_.threads(), options_.precision);
  const Ops::Scope scope(ops);
  ops.take_host<StepSegment>(options_.step_rows);  // as run() does
  for (const Rope& rope : ropes_) ops.take(2 * (options_.step_rows - rows), rope.pairs());
  ops.take(options_.step_rows - rows, config().dim);
  std::vector<StepSegment> segments;
  for (std::uint32_t first = 0; first < rows; first += rows_per_session) {
    const std::uint32_t count = std::min(rows_per_session, rows - first);
    segments.push_back({.tokens = std::span(tokens).first(count),
                        .first_row = first,
                        .position = options_.context - count,
                        .logits_rows = count,
                        .logits = {reinterpret_cast<float*>(logits.data()), logits_size}});
  }
  Step step = step_over(ops, experts, segments);
  step.options.observer = &observer;
  MF_TRY_STATUS(forward(step, segments));
  return ops.workspace().high_water();
}

}  // namespace moeflux
