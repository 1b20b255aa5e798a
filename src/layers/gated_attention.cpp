#include "layers/gated_attention.h"

#include <cmath>

namespace moeflux {

GatedAttention::GatedAttention(const GatedAttentionConfig& config, double norm_eps, std::size_t rope,
                               const Weights& weights)
    : config_(config),
      norm_eps_(static_cast<float>(norm_eps)),
      rope_(rope),
      query_gate_(weights.matrix("self_attn.q_proj")),
      key_(weights.matrix("self_attn.k_proj")),
      value_(weights.matrix("self_attn.v_proj")),
      query_norm_(weights.vector("self_attn.q_norm")),
      key_norm_(weights.vector("self_attn.k_norm")),
      out_(weights.matrix("self_attn.o_proj")) {}

void GatedAttention::forward(const Step& step, LayerId layer, const Input& x, Rows y) const {
  Ops& ops = step.ops;
  const Ops::Scope scope(ops);
  const std::uint32_t rows = step.rows, dim = config_.head_dim;
  const Rows query_gate = ops.take(rows, 2 * config_.query_dim());
  const Rows key = ops.take(rows, config_.kv_dim());
  const Rows value = ops.take(rows, config_.kv_dim());
  ops.matmul({{query_gate_, query_gate}, {key_, key}, {value_, value}}, x);
  const Heads both = as_heads(query_gate, config_.query_heads, 2 * dim);
  const AttentionMix mix{.shape = {config_.query_heads, config_.kv_heads, dim, dim,
                                   static_cast<float>(1 / std::sqrt(static_cast<double>(dim)))},
                         .query_norm = query_norm_,
                         .key_norm = key_norm_,
                         .norm_eps = norm_eps_,
                         .rope_dims = config_.rope.dims,
                         .pairing = config_.rope.pairing};
  const Input mixed = ops.mix_attention(mix, kv_segments(step, layer), step.rope[rope_], both.part(0, dim),
                                        both.part(dim, dim), as_heads(key, config_.kv_heads, dim),
                                        as_heads(value, config_.kv_heads, dim));
  ops.matmul(out_, mixed, y);
}

}  // namespace moeflux
