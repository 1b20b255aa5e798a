#include "layers/step.h"

namespace moeflux {

static_assert(kKvBlockPositions == kAttentionBlock, "the KV cache and the law use the same block");

std::string_view name_of(StepPoint point) {
  switch (point) {
    case StepPoint::embedding: return "embedding";
    case StepPoint::normed: return "normed";
    case StepPoint::mixed: return "mixed";
    case StepPoint::mlp_normed: return "mlp_normed";
    case StepPoint::router_logits: return "router_logits";
    case StepPoint::routed: return "routed";
    case StepPoint::shared: return "shared";
    case StepPoint::shared_gate: return "shared_gate";
    case StepPoint::residual: return "residual";
    case StepPoint::final_norm: return "final_norm";
  }
  return "unknown";
}

std::span<const KvSegment> kv_segments(const Step& step, LayerId layer) {
  const std::span<KvSegment> out = step.ops.take_host<KvSegment>(step.segments.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const StepSegment& segment = step.segments[i];
    const std::uint64_t end = std::uint64_t{segment.position} + segment.rows();
    const std::span<KvBlockView> views = step.ops.take_host<KvBlockView>(kv_blocks_for(end));
    if (segment.state != nullptr) {
      const std::span<const KvBlock> blocks = segment.state->kv(layer);
      for (std::size_t b = 0; b < views.size(); ++b) views[b] = {blocks[b].keys, blocks[b].values};
    }
    out[i] = {segment.in_batch(), segment.position, views, step.kv_dtype};
  }
  return out;
}

namespace {

template <class View>
std::span<const RecurrentSegment> recurrent_segments(const Step& step, View view) {
  const std::span<RecurrentSegment> out = step.ops.take_host<RecurrentSegment>(step.segments.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const StepSegment& segment = step.segments[i];
    const RecurrentView state = segment.state != nullptr ? view(*segment.state) : RecurrentView{};
    out[i] = {segment.in_batch(), state.before, state.after};
  }
  return out;
}

}  // namespace

std::span<const RecurrentSegment> conv_segments(const Step& step, LayerId layer) {
  return recurrent_segments(step, [&](SessionState& state) { return state.conv(layer); });
}

std::span<const RecurrentSegment> delta_segments(const Step& step, LayerId layer) {
  return recurrent_segments(step, [&](SessionState& state) { return state.delta(layer); });
}

void observe(const Step& step, StepPoint point, LayerId layer, const Rows& rows) {
  if (step.options.observer == nullptr) return;
  const Ops::Scope scope(step.ops);
  const std::span<float> copy = step.ops.take_host<float>(std::size_t{rows.count} * rows.cols);
  step.ops.read(rows, copy);
  step.options.observer->saw(point, layer, copy, rows.cols);
}

}  // namespace moeflux
