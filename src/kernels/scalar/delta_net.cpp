// The specification of the Gated DeltaNet's operations, in plain loops.

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/law.h"
#include "kernels/scalar_tables.h"
#include "quant/delta_state.h"

namespace moeflux {
namespace {

// Row `row` of the state followed by x: row t of y ends with row t + width - 1.
const float* input_row(const ConvArgs& args, std::size_t row) {
  const std::size_t history = args.width - 1;
  return row < history ? args.state_in + row * args.state_stride : args.x + (row - history) * args.x_stride;
}

void conv(const ConvArgs& args) noexcept {
  for (std::size_t t = 0; t < args.rows; ++t)
    for (std::size_t c = 0; c < args.channels; ++c) {
      float sum = 0.0f;
      for (std::size_t k = 0; k < args.width; ++k)
        sum = std::fma(input_row(args, t + k)[c], args.weight[c * args.width + k], sum);
      args.y[t * args.y_stride + c] = law::silu(sum);
    }
  if (args.state_out == nullptr) return;
  for (std::size_t row = 0; row + 1 < args.width; ++row)
    for (std::size_t c = 0; c < args.channels; ++c)
      args.state_out[row * args.state_stride + c] = input_row(args, args.rows + row)[c];
}

float sum_of_chains(const float (&chains)[4]) { return (chains[0] + chains[1]) + (chains[2] + chains[3]); }

void delta_rule(const DeltaRuleArgs& args) noexcept {
  const DeltaStateShape shape{args.key_dim, args.value_dim};
  const float* before = args.state_in;
  for (std::size_t t = 0; t < args.rows; ++t, before = args.state_out) {
    const float* const query = args.queries + t * args.query_stride;
    const float* const key = args.keys + t * args.key_stride;
    const float decay = args.decay[t * args.decay_stride];
    const float beta = args.beta[t * args.beta_stride];
    for (std::size_t v = 0; v < args.value_dim; ++v) {
      float with_key[4] = {};
      for (std::size_t k = 0; k < args.key_dim; ++k) {
        float& state = args.state_out[shape.place(k, v)];
        state = before[shape.place(k, v)] * decay;
        with_key[k % 4] = std::fma(state, key[k], with_key[k % 4]);
      }
      const float delta = (args.values[t * args.value_stride + v] - sum_of_chains(with_key)) * beta;
      float out[4] = {};
      for (std::size_t k = 0; k < args.key_dim; ++k) {
        float& state = args.state_out[shape.place(k, v)];
        state = std::fma(key[k], delta, state);
        out[k % 4] = std::fma(state, query[k], out[k % 4]);
      }
      args.y[t * args.y_stride + v] = sum_of_chains(out);
    }
  }
}

void delta_step(const DeltaStepArgs& args) noexcept {
  for (std::size_t i = 0; i < args.head_count; ++i)
    delta_rule(rule_of_head(args.heads[i], args.key_dim, args.value_dim));
}

void decay_beta(const float* a, const float* b, const float* rate, const float* dt_bias, std::uint32_t n,
                float* decay, float* beta) noexcept {
  for (std::uint32_t i = 0; i < n; ++i) {
    decay[i] = law::exp(rate[i] * law::softplus(a[i] + dt_bias[i]));
    beta[i] = law::sigmoid(b[i]);
  }
}

}  // namespace

const DeltaNetKernels kScalarDeltaNet = {
    .conv = conv, .delta_rule = delta_rule, .delta_step = delta_step, .decay_beta = decay_beta};

}  // namespace moeflux
