#include "ops/ops.h"

#include <algorithm>
#include <new>

#include "base/arithmetic.h"

namespace moeflux {

std::string_view name_of(Precision precision) {
  switch (precision) {
    case Precision::exact: return "exact";
    case Precision::fast: return "fast";
  }
  return "unknown";
}

// Rows begin at cache lines. A stride that is a multiple of 4096 bytes would map the same column of all rows
// to the same few cache sets (half the speed in the int8 prototype of docs/decisions/0004), so such rows get
// one more line.
Rows Ops::take(std::uint32_t count, std::uint32_t cols) {
  constexpr std::uint64_t kLineFloats = 16;
  std::uint64_t stride = divide_up<std::uint64_t>(cols, kLineFloats) * kLineFloats;
  if (count > 1 && stride % 1024 == 0) stride += kLineFloats;
  return {workspace_.take<float>(count * stride).data(), count, cols, stride};
}

Input Ops::norm_and_prepare(Rows x, std::span<const float> weight, float eps, Rounding finest, Rows y) {
  rms_norm(x, weight, eps, y);
  return prepare(y, finest);
}

// NOLINTBEGIN(bugprone-easily-swappable-parameters): outputs of projections, in the order of the layer
Input Ops::mix_delta(const DeltaMix& mix, std::span<const RecurrentSegment> conv_states,
                     std::span<const RecurrentSegment> delta_states, Rows qkv, Rows gate, Rows a, Rows b) {
  // NOLINTEND(bugprone-easily-swappable-parameters)
  const DeltaRuleShape& shape = mix.shape;
  const std::uint32_t all_keys = shape.all_keys(), all_values = shape.all_values();
  const Rows mixed = take(qkv.count, shape.channels());
  conv(conv_states, qkv, mix.conv_weight, mix.conv_width, mixed);
  const Heads queries = as_heads(mixed.columns(0, all_keys), shape.key_heads, shape.key_dim);
  const Heads keys = as_heads(mixed.columns(all_keys, all_keys), shape.key_heads, shape.key_dim);
  const Heads values = as_heads(mixed.columns(2 * all_keys, all_values), shape.value_heads, shape.value_dim);
  l2_norm(queries, mix.unit_eps, mix.query_scale, queries);
  l2_norm(keys, mix.unit_eps, 1, keys);
  decay_beta(a, b, mix.rate, mix.dt_bias, a, b);
  const Rows read = take(qkv.count, all_values);
  const Heads read_heads = as_heads(read, shape.value_heads, shape.value_dim);
  delta_rule(delta_states, shape, queries, keys, values, a, b, read_heads);
  gated_rms_norm(read_heads, mix.norm, as_heads(gate, shape.value_heads, shape.value_dim), mix.norm_eps,
                 read_heads);
  return prepare(read);
}

Input Ops::mix_attention(const AttentionMix& mix, std::span<const KvSegment> segments, const RopeTable& table,
                         Heads queries, Heads gates, Heads keys, Heads values) {
  rms_norm(queries, mix.query_norm, mix.norm_eps, queries);
  rms_norm(keys, mix.key_norm, mix.norm_eps, keys);
  rope(queries.part(0, mix.rope_dims), table, mix.pairing);
  rope(keys.part(0, mix.rope_dims), table, mix.pairing);
  append(segments, keys, values);
  const Rows mixed = take(queries.count, queries.heads * queries.dim);
  const Heads mixed_heads = as_heads(mixed, queries.heads, queries.dim);
  attend(segments, mix.shape, queries, mixed_heads);
  sigmoid_gate(mixed_heads, gates, mixed_heads);
  return prepare(mixed);
}

std::byte* Ops::measured_host(std::size_t size) {
  Result<AlignedBuffer> buffer = AlignedBuffer::create(std::max<std::size_t>(size, 1), Workspace::kAlignment);
  if (!buffer) throw std::bad_alloc();
  return measured_host_.emplace_back(*std::move(buffer)).data();
}

}  // namespace moeflux
