#include "layers/gated_delta_net.h"

#include <cmath>

#include "kernels/law.h"

namespace moeflux {
namespace {

// For queries and keys; added to the sum of squares, as transformers does.
constexpr float kHeadNormEps = 1e-6f;

}  // namespace

GatedDeltaNet::GatedDeltaNet(const GatedDeltaNetConfig& config, double norm_eps, const Weights& weights)
    : config_(config),
      norm_eps_(static_cast<float>(norm_eps)),
      qkv_(weights.matrix("linear_attn.in_proj_qkv")),
      gate_(weights.matrix("linear_attn.in_proj_z")),
      decay_(weights.matrix("linear_attn.in_proj_a")),
      beta_(weights.matrix("linear_attn.in_proj_b")),
      conv_(weights.vector("linear_attn.conv1d")),
      a_log_(weights.vector("linear_attn.A_log")),
      rate_(a_log_.size()),
      dt_bias_(weights.vector("linear_attn.dt_bias")),
      norm_(weights.vector("linear_attn.norm")),
      out_(weights.matrix("linear_attn.out_proj")) {}

void GatedDeltaNet::derive() {
  for (std::size_t i = 0; i < rate_.size(); ++i) rate_[i] = -law::exp(a_log_[i]);
}

void GatedDeltaNet::forward(const Step& step, LayerId layer, const Input& x, Rows y) const {
  Ops& ops = step.ops;
  const Ops::Scope scope(ops);
  const std::uint32_t rows = step.rows, key_dim = config_.key_dim(), value_dim = config_.value_dim();

  const Rows qkv = ops.take(rows, config_.conv_dim());
  const Rows gate = ops.take(rows, value_dim);
  const Rows a = ops.take(rows, config_.value_heads), b = ops.take(rows, config_.value_heads);
  ops.matmul({{qkv_, qkv}, {gate_, gate}, {decay_, a}, {beta_, b}}, x);
  ops.decay_beta(a, b, rate_, dt_bias_, a, b);

  const Rows mixed = ops.take(rows, config_.conv_dim());
  ops.conv(conv_segments(step, layer), qkv, conv_, config_.conv_width, mixed);
  const Heads queries = as_heads(mixed.columns(0, key_dim), config_.key_heads, config_.key_head_dim);
  const Heads keys = as_heads(mixed.columns(key_dim, key_dim), config_.key_heads, config_.key_head_dim);
  const Heads values =
      as_heads(mixed.columns(2 * key_dim, value_dim), config_.value_heads, config_.value_head_dim);
  const auto query_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config_.key_head_dim)));
  ops.l2_norm(queries, kHeadNormEps, query_scale, queries);
  ops.l2_norm(keys, kHeadNormEps, 1, keys);

  const Rows read = ops.take(rows, value_dim);
  const Heads read_heads = as_heads(read, config_.value_heads, config_.value_head_dim);
  const DeltaRuleShape shape{config_.key_heads, config_.value_heads, config_.key_head_dim,
                             config_.value_head_dim};
  ops.delta_rule(delta_segments(step, layer), shape, queries, keys, values, a, b, read_heads);
  ops.gated_rms_norm(read_heads, norm_, as_heads(gate, config_.value_heads, config_.value_head_dim),
                     norm_eps_, read_heads);
  ops.matmul(out_, ops.prepare(read), y);
}

}  // namespace moeflux
