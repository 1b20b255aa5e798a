#include "layers/gated_delta_net.h"

#include <cmath>

#include "kernels/law.h"

namespace moeflux {
namespace {

// For queries and keys; added to the sum of squares, as transformers does.
constexpr float kUnitEps = 1e-6f;

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
  const Rows qkv = ops.take(step.rows, config_.conv_dim());
  const Rows gate = ops.take(step.rows, config_.value_dim());
  const Rows a = ops.take(step.rows, config_.value_heads), b = ops.take(step.rows, config_.value_heads);
  ops.matmul({{qkv_, qkv}, {gate_, gate}, {decay_, a}, {beta_, b}}, x);
  const DeltaMix mix{
      .shape = {config_.key_heads, config_.value_heads, config_.key_head_dim, config_.value_head_dim},
      .conv_weight = conv_,
      .conv_width = config_.conv_width,
      .rate = rate_,
      .dt_bias = dt_bias_,
      .unit_eps = kUnitEps,
      .query_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config_.key_head_dim))),
      .norm = norm_,
      .norm_eps = norm_eps_};
  const Input mixed =
      ops.mix_delta(mix, conv_segments(step, layer), delta_segments(step, layer), qkv, gate, a, b);
  ops.matmul(out_, mixed, y);
}

}  // namespace moeflux
