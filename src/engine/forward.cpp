// The pass of a step through the model: embedding, layers, logits.

#include <algorithm>

#include "engine/engine.h"

namespace moeflux {
namespace {

// Logits are computed for this many rows at a time, which bounds their scratch memory (a row of 248,320 is 1
// MB).
constexpr std::uint32_t kLogitRows = 64;

}  // namespace

Step Engine::step_over(Ops& ops, ExpertSource& experts, std::span<const StepSegment> segments) const {
  Step step{.ops = ops, .experts = experts, .segments = segments};
  for (const StepSegment& segment : segments) step.rows += segment.rows();
  step.experts_per_token = options_.experts_per_token;
  step.kv_dtype = options_.kv_dtype;
  step.trace = options_.trace;
  return step;
}

std::span<const RopeTable> Engine::rope_tables(const Step& step) const {
  Ops& ops = step.ops;
  const std::span<RopeTable> tables = ops.take_host<RopeTable>(ropes_.size());
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const std::uint32_t pairs = ropes_[i].pairs();
    tables[i] = {ops.take(step.rows, pairs), ops.take(step.rows, pairs)};
    const Ops::Scope scope(ops);
    const std::span<float> cos = ops.take_host<float>(std::size_t{step.rows} * pairs);
    const std::span<float> sin = ops.take_host<float>(cos.size());
    for (const StepSegment& segment : step.segments)
      for (std::uint32_t row = 0; row < segment.rows(); ++row) {
        const std::size_t at = (std::size_t{segment.first_row} + row) * pairs;
        ropes_[i].fill(segment.position + row, cos.subspan(at, pairs), sin.subspan(at, pairs));
      }
    ops.write(cos, tables[i].cos);
    ops.write(sin, tables[i].sin);
  }
  return tables;
}

Status Engine::forward(Step step) const {
  Ops& ops = step.ops;
  const Ops::Scope scope(ops);
  step.rope = rope_tables(step);
  const Rows residual = ops.take(step.rows, config().dim);
  for (const StepSegment& segment : step.segments)
    ops.embed(embedding_, segment.tokens, residual.some(segment.first_row, segment.rows()));
  observe(step, StepPoint::embedding, LayerId(0), residual);
  for (std::uint32_t i = 0; i < layers_.size(); ++i) {
    if (step.options.cancel != nullptr && step.options.cancel->load(std::memory_order_relaxed))
      return Error(ErrorCode::cancelled, "the step was cancelled");
    if (step.options.observer != nullptr) {
      const Ops::Scope replacing(ops);
      const std::span<float> rows = ops.take_host<float>(std::size_t{step.rows} * residual.cols);
      ops.read(residual, rows);
      if (step.options.observer->replace_residual(LayerId(i), rows, residual.cols)) ops.write(rows, residual);
    }
    sweep_ahead(step, i);
    MF_TRY_STATUS(layers_[i].forward(step, residual));
  }
  const TraceSpan span(step.trace, "logits");
  compute_logits(step, residual);
  return {};
}

// Gathers the rows that want logits from all segments and multiplies them with the head, kLogitRows at a
// time.
void Engine::compute_logits(const Step& step, Rows residual) const {
  Ops& ops = step.ops;
  std::uint32_t wanted = 0;
  for (const StepSegment& segment : step.segments) wanted += segment.logits_rows;
  if (wanted == 0) return;
  const Ops::Scope scope(ops);
  const Rows normed = ops.take(wanted, config().dim);
  std::uint32_t at = 0;
  for (const StepSegment& segment : step.segments) {
    const std::uint32_t count = segment.logits_rows;
    if (count == 0) continue;
    const std::uint32_t end = segment.first_row + segment.rows();
    ops.rms_norm(residual.some(end - count, count), final_norm_, static_cast<float>(config().norm_eps),
                 normed.some(at, count));
    at += count;
  }
  observe(step, StepPoint::final_norm, LayerId(static_cast<std::uint32_t>(layers_.size()) - 1), normed);

  const std::uint32_t slice_rows = std::min(wanted, kLogitRows);
  const Rows logits = ops.take(slice_rows, config().vocabulary);
  auto segment = step.segments.begin();
  std::uint32_t written = 0;  // rows of `segment`
  for (std::uint32_t first = 0; first < wanted; first += slice_rows) {
    const Ops::Scope slicing(ops);
    const std::uint32_t count = std::min(slice_rows, wanted - first);
    ops.matmul({{head_, logits.some(0, count), Rounding::fine}},
               ops.prepare(normed.some(first, count), Rounding::fine));
    for (std::uint32_t row = 0; row < count; ++row) {
      while (written == segment->logits_rows) {
        ++segment;
        written = 0;
      }
      const std::uint64_t vocabulary = config().vocabulary;
      ops.read(logits.some(row, 1), segment->logits.subspan(written++ * vocabulary, vocabulary));
    }
  }
}

}  // namespace moeflux
