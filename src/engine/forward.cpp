// The pass of a step through the model: embedding, layers, logits.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

std::span<RopeTable> Engine::take_rope_tables(const Step& step) const {
  const std::span<RopeTable> tables = step.ops.take_host<RopeTable>(ropes_.size());
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const std::uint32_t pairs = ropes_[i].pairs();
    tables[i] = {step.ops.take(step.rows, pairs), step.ops.take(step.rows, pairs)};
  }
  return tables;
}

void Engine::fill_rope_tables(const Step& step, std::span<const RopeTable> tables) const {
  Ops& ops = step.ops;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const std::uint32_t pairs = ropes_[i].pairs();
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
}

// What forward() keeps from layer to layer.
struct Engine::Pass {
  std::span<StepSegment> segments;
  std::span<RopeTable> rope;
  Rows residual;
};

// Fails the segments whose callers have cancelled them. Then removes the rows of those that have failed, so
// that the layers after this one do no work for them.
Status Engine::drop_failed(Step& step, Pass& pass) const {
  for (const StepSegment& segment : pass.segments) {
    if (segment.cancel != nullptr && segment.cancel->load(std::memory_order_relaxed))
      segment.fail(Error(ErrorCode::cancelled, "the segment was cancelled"));
    if (segment.has_failed() && step.all_or_none) return *segment.outcome;
  }
  if (std::ranges::none_of(pass.segments, &StepSegment::has_failed)) return {};

  Ops& ops = step.ops;
  const Ops::Scope scope(ops);
  const std::span<float> moving = ops.take_host<float>(std::size_t{step.rows} * pass.residual.cols);
  std::size_t count = 0;
  step.rows = 0;
  for (const StepSegment& segment : pass.segments) {
    if (segment.has_failed()) continue;
    const std::span<float> rows = moving.first(std::size_t{segment.rows()} * pass.residual.cols);
    ops.read(pass.residual.some(segment.first_row, segment.rows()), rows);
    ops.write(rows, pass.residual.some(step.rows, segment.rows()));
    pass.segments[count] = segment;
    pass.segments[count++].first_row = step.rows;
    step.rows += segment.rows();
  }
  step.segments = pass.segments = pass.segments.first(count);
  pass.residual = pass.residual.some(0, step.rows);
  for (RopeTable& table : pass.rope) table = {table.cos.some(0, step.rows), table.sin.some(0, step.rows)};
  fill_rope_tables(step, pass.rope);
  return {};
}

Status Engine::forward(Step step, std::span<StepSegment> segments) const {
  Ops& ops = step.ops;
  const Ops::Scope scope(ops);
  step.segments = segments;
  Pass pass{segments, take_rope_tables(step), ops.take(step.rows, config().dim)};
  step.rope = pass.rope;
  fill_rope_tables(step, pass.rope);
  for (const StepSegment& segment : step.segments)
    ops.embed(embedding_, segment.tokens, pass.residual.some(segment.first_row, segment.rows()));
  observe(step, StepPoint::embedding, LayerId(0), pass.residual);
  for (std::uint32_t i = 0; i < layers_.size(); ++i) {
    if (step.options.cancel != nullptr && step.options.cancel->load(std::memory_order_relaxed))
      return Error(ErrorCode::cancelled, "the step was cancelled");
    MF_TRY_STATUS(drop_failed(step, pass));
    if (pass.segments.empty()) return {};
    replace_residual(step, LayerId(i), pass.residual);
    sweep_ahead(step, i);
    MF_TRY_STATUS(layers_[i].forward(step, pass.residual));
  }
  const TraceSpan span(step.trace, "logits");
  compute_logits(step, pass.residual);
  if (step.all_or_none)
    for (const StepSegment& segment : pass.segments) MF_TRY_STATUS(*segment.outcome);
  return {};
}

void Engine::replace_residual(const Step& step, LayerId layer, Rows residual) {
  if (step.options.observer == nullptr) return;
  Ops& ops = step.ops;
  const Ops::Scope scope(ops);
  const std::span<float> rows = ops.take_host<float>(std::size_t{step.rows} * residual.cols);
  ops.read(residual, rows);
  if (step.options.observer->replace_residual(layer, rows, residual.cols)) ops.write(rows, residual);
}

// Checks the rows that the head multiplies, not the logits: a row of these is a hundred times shorter, and
// logits of finite rows are finite.
void Engine::fail_not_finite(const Step& step, Rows normed) {
  Ops& ops = step.ops;
  const Ops::Scope scope(ops);
  const std::span<float> numbers = ops.take_host<float>(normed.cols);
  std::uint32_t at = 0;
  for (const StepSegment& segment : step.segments)
    for (std::uint32_t row = segment.rows() - segment.logits_rows; row < segment.rows(); ++row) {
      ops.read(normed.some(at++, 1), numbers);
      if (!std::ranges::all_of(numbers, [](float number) { return std::isfinite(number); }))
        segment.fail(Error(ErrorCode::corrupt_data,
                           fmt::format("row {} of the last layer's output is not finite", row)));
    }
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
  fail_not_finite(step, normed);

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
