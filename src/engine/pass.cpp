#include "engine/pass.h"

#include <algorithm>
#include <vector>

#include "base/arithmetic.h"

namespace moeflux {
namespace {

std::uint32_t wanted_rows(const Segment& segment) {
  switch (segment.logits) {
    case WantedLogits::none: return 0;
    case WantedLogits::last: return 1;
    case WantedLogits::all: return static_cast<std::uint32_t>(segment.tokens.size());
  }
  return 0;
}

// Hands out experts of the right shapes that are nowhere.
class MeasuringExperts final : public ExpertSource {
 public:
  explicit MeasuringExperts(const PackedModel& model) : model_(model) {}
  std::uint32_t lease_limit() const override { return 1u << 30; }

 private:
  void start(LayerId layer, std::span<const std::uint32_t> wanted, FetchOrder) override {
    layer_ = layer;
    wanted_ = wanted;
  }
  Result<std::optional<HandedOut>> hand_out() override {
    if (wanted_.empty()) return std::optional<HandedOut>();
    const ExpertId expert(wanted_.front());
    wanted_ = wanted_.subspan(1);
    const ExpertFormat& format = model_.expert_format(model_.record({layer_, expert}));
    const auto shaped = [](const MatrixFormat& matrix) {
      return TiledMatrix{matrix.rows, matrix.cols, matrix.encoding, nullptr, 0};
    };
    const ExpertView view{shaped(format.gate), shaped(format.up), shaped(format.down)};
    return std::optional<HandedOut>({expert, view, 0});
  }
  bool is_one_ready() const override { return !wanted_.empty(); }
  void stop() override {}
  void release(std::uint32_t) override {}

  const PackedModel& model_;
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

std::span<const RopeTable> Engine::rope_tables(Ops& ops, std::span<const StepSegment> segments,
                                               std::uint32_t rows) const {
  const std::span<RopeTable> tables = ops.take_host<RopeTable>(ropes_.size());
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const std::uint32_t pairs = ropes_[i].pairs();
    tables[i] = {ops.take(rows, pairs), ops.take(rows, pairs)};
    const Ops::Scope scope(ops);
    const std::span<float> cos = ops.take_host<float>(std::size_t{rows} * pairs);
    const std::span<float> sin = ops.take_host<float>(cos.size());
    for (const StepSegment& segment : segments)
      for (std::uint32_t row = 0; row < segment.rows; ++row) {
        const std::size_t at = (std::size_t{segment.first_row} + row) * pairs;
        ropes_[i].fill(segment.position + row, cos.subspan(at, pairs), sin.subspan(at, pairs));
      }
    ops.write(cos, tables[i].cos);
    ops.write(sin, tables[i].sin);
  }
  return tables;
}

Status Engine::forward(const Pass& pass) const {
  Ops& ops = pass.ops;
  const Ops::Scope scope(ops);
  StepObserver* const observer = pass.options.observer;
  const Step step{ops,
                  pass.experts,
                  pass.segments,
                  pass.rows,
                  rope_tables(ops, pass.segments, pass.rows),
                  observer,
                  options_.experts_per_token,
                  options_.trace,
                  pass.options.routing,
                  options_.kv_numbers};
  const Rows residual = ops.take(pass.rows, config().dim);
  for (std::size_t i = 0; i < pass.batch.size(); ++i)
    ops.embed(embedding_, pass.batch[i].tokens,
              residual.some(pass.segments[i].first_row, pass.segments[i].rows));
  observe(step, StepPoint::embedding, LayerId(0), residual);
  for (std::uint32_t i = 0; i < layers_.size(); ++i) {
    if (pass.options.cancel != nullptr && pass.options.cancel->load(std::memory_order_relaxed))
      return Error(ErrorCode::cancelled, "the step was cancelled");
    if (observer != nullptr) {
      const Ops::Scope replacing(ops);
      const std::span<float> rows = ops.take_host<float>(std::size_t{pass.rows} * residual.cols);
      if (observer->replace_residual(LayerId(i), rows, residual.cols)) ops.write(rows, residual);
    }
    sweep_ahead(pass, i);
    MF_TRY_STATUS(layers_[i].forward(step, residual));
  }
  const TraceSpan span(options_.trace, "logits");
  compute_logits(pass, residual);
  return {};
}

// The rows that are wanted, of all segments, in slices.
void Engine::compute_logits(const Pass& pass, Rows residual) const {
  Ops& ops = pass.ops;
  std::uint32_t wanted = 0;
  for (const Segment& segment : pass.batch) wanted += wanted_rows(segment);
  if (wanted == 0) return;
  const Ops::Scope scope(ops);
  const Rows normed = ops.take(wanted, config().dim);
  std::uint32_t at = 0;
  for (std::size_t i = 0; i < pass.batch.size(); ++i) {
    const std::uint32_t count = wanted_rows(pass.batch[i]);
    if (count == 0) continue;
    const std::uint32_t end = pass.segments[i].first_row + pass.segments[i].rows;
    ops.rms_norm(residual.some(end - count, count), final_norm_, static_cast<float>(config().norm_eps),
                 normed.some(at, count));
    at += count;
  }
  if (pass.options.observer != nullptr) {
    const Ops::Scope observing(ops);
    const std::span<float> copy = ops.take_host<float>(std::size_t{wanted} * normed.cols);
    ops.read(normed, copy);
    pass.options.observer->saw(StepPoint::final_norm, LayerId(static_cast<std::uint32_t>(layers_.size()) - 1),
                               copy, normed.cols);
  }
  const std::uint32_t slice_rows = std::min(wanted, kLogitRows);
  const Rows logits = ops.take(slice_rows, config().vocabulary);
  std::size_t segment = 0;
  std::uint32_t written = 0;  // rows of that segment
  for (std::uint32_t first = 0; first < wanted; first += slice_rows) {
    const Ops::Scope slicing(ops);
    const std::uint32_t count = std::min(slice_rows, wanted - first);
    ops.matmul({{head_, logits.some(0, count), Rounding::fine}},
               ops.prepare(normed.some(first, count), Rounding::fine));
    for (std::uint32_t row = 0; row < count; ++row) {
      while (written == wanted_rows(pass.batch[segment])) {
        ++segment;
        written = 0;
      }
      const std::uint64_t vocabulary = config().vocabulary;
      ops.read(logits.some(row, 1), pass.batch[segment].out.subspan(written++ * vocabulary, vocabulary));
    }
  }
}

// Runs the pass on operations that only measure, over the batches that can take most: every small number of rows
// (how few rows are split over threads, and how many keep their experts' outputs, depends on it) and the largest,
// with all rows at the end of the context, each in a session of its own.
Result<std::uint64_t> Engine::measure_workspace() const {
  std::vector<std::uint32_t> sizes;
  const std::uint32_t small = std::max(kFewRows, 4 * pool_.threads()) + 1;
  for (std::uint32_t rows = 1; rows <= std::min(small, options_.step_rows); ++rows) sizes.push_back(rows);
  sizes.push_back(options_.step_rows);

  std::uint64_t most = 0;
  SilentObserver observer;
  MeasuringExperts experts(model_);
  const std::vector<TokenId> tokens(1, TokenId(0));
  std::vector<float> logits;
  for (const std::uint32_t rows : sizes) {
    CpuOps ops(pool_.threads(), options_.precision);
    const Ops::Scope scope(ops);
    ops.take_host<StepSegment>(rows);
    std::vector<Segment> batch(rows, Segment{nullptr, tokens, WantedLogits::last, {}});
    std::vector<StepSegment> segments;
    for (std::uint32_t row = 0; row < rows; ++row)
      segments.push_back({nullptr, row, 1, options_.context - 1});
    logits.resize(config().vocabulary);  // shared: nothing is written
    for (Segment& segment : batch) segment.out = logits;
    StepOptions step_options;
    step_options.observer = &observer;
    MF_TRY_STATUS(forward({ops, experts, batch, segments, rows, step_options}));
    most = std::max<std::uint64_t>(most, ops.workspace().high_water());
  }
  return most;
}

}  // namespace moeflux
