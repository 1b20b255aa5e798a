#pragma once
// A second implementation of the layers: one token at a time, in double precision, straight from the
// formulas.
//
// It shares only two things with the code under test: the decoding of stored weights (tile16::decode_row) and
// Rope, which has its own tests. A reference takes all rows of one session at once and starts at position 0.
// Test code only.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "layers/weights.h"
#include "model/config.h"
#include "model/rope.h"

namespace moeflux::reference {

using Vector = std::vector<double>;
using Sequence = std::vector<Vector>;  // by row

struct Matrix {
  std::size_t rows, cols;
  Vector numbers;

  Vector times(const Vector& x) const {
    Vector y(rows);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t c = 0; c < cols; ++c) y[r] += numbers[r * cols + c] * x[c];
    return y;
  }
};

inline Matrix decoded(const tile16::TiledMatrix& tiled) {
  Matrix matrix{tiled.rows, tiled.cols, Vector(tiled.rows * tiled.cols)};
  std::vector<float> row(tiled.cols);
  for (std::size_t r = 0; r < matrix.rows; ++r) {
    tile16::decode_row(tiled, r, row);
    std::ranges::copy(row, matrix.numbers.begin() + static_cast<std::ptrdiff_t>(r * matrix.cols));
  }
  return matrix;
}
inline Vector as_doubles(std::span<const float> numbers) { return {numbers.begin(), numbers.end()}; }

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
inline double silu(double x) { return x * sigmoid(x); }
inline double dot(std::span<const double> a, std::span<const double> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

inline void rms_norm(std::span<double> x, const Vector& weight, double eps) {
  const double scale = 1 / std::sqrt(dot(x, x) / static_cast<double>(x.size()) + eps);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= scale * weight[i];
}
inline void l2_norm(std::span<double> x, double scale) {
  const double factor = scale / std::sqrt(dot(x, x) + 1e-6);
  for (double& number : x) number *= factor;
}
inline void softmax(std::span<double> x) {
  if (x.empty()) return;
  const double largest = *std::ranges::max_element(x);
  double sum = 0;
  for (double& number : x) sum += number = std::exp(number - largest);
  for (double& number : x) number /= sum;
}

inline void rotate(std::span<double> x, const RopeConfig& config, std::uint32_t position) {
  const Rope rope(config);
  std::vector<float> cos(rope.pairs()), sin(rope.pairs());
  rope.fill(position, cos, sin);
  for (std::size_t i = 0; i < rope.pairs(); ++i) {
    const bool is_half_split = config.pairing == RopePairing::half_split;
    double& a = x[is_half_split ? i : 2 * i];
    double& b = x[is_half_split ? i + rope.pairs() : 2 * i + 1];
    const double c = cos[i], s = sin[i];
    std::tie(a, b) = std::pair(a * c - b * s, b * c + a * s);
  }
}

// Causal attention of one head at row `row`: the softmax of query . key over rows 0 .. row, times their
// values.
inline Vector attend(std::span<const double> query, const Sequence& keys, const Sequence& values,
                     std::size_t row, double scale) {
  Vector scores;
  for (std::size_t t = 0; t <= row; ++t) scores.push_back(scale * dot(query, keys[t]));
  softmax(scores);
  Vector mixed(values[0].size());
  for (std::size_t t = 0; t <= row; ++t)
    for (std::size_t i = 0; i < mixed.size(); ++i) mixed[i] += scores[t] * values[t][i];
  return mixed;
}

inline std::span<double> head_of(Vector& row, std::size_t head, std::size_t dim) {
  return std::span(row).subspan(head * dim, dim);
}

inline Sequence gated_attention(const GatedAttentionConfig& config, double eps, const Weights& weights,
                                const Sequence& x) {
  const Matrix query_gate = decoded(weights.matrix("self_attn.q_proj"));
  const Matrix key = decoded(weights.matrix("self_attn.k_proj"));
  const Matrix value = decoded(weights.matrix("self_attn.v_proj"));
  const Matrix out = decoded(weights.matrix("self_attn.o_proj"));
  const Vector query_norm = as_doubles(weights.vector("self_attn.q_norm"));
  const Vector key_norm = as_doubles(weights.vector("self_attn.k_norm"));
  const std::size_t dim = config.head_dim;
  std::vector<Sequence> keys(config.kv_heads), values(config.kv_heads);  // by head
  Sequence y;
  for (std::size_t row = 0; row < x.size(); ++row) {
    Vector k = key.times(x[row]), v = value.times(x[row]), both = query_gate.times(x[row]), mixed;
    for (std::size_t h = 0; h < config.kv_heads; ++h) {
      const std::span<double> k_head = head_of(k, h, dim), v_head = head_of(v, h, dim);
      rms_norm(k_head, key_norm, eps);
      rotate(k_head, config.rope, static_cast<std::uint32_t>(row));
      keys[h].emplace_back(k_head.begin(), k_head.end());
      values[h].emplace_back(v_head.begin(), v_head.end());
    }
    for (std::size_t h = 0; h < config.query_heads; ++h) {
      const std::span<double> q = head_of(both, 2 * h, dim), gate = head_of(both, 2 * h + 1, dim);
      rms_norm(q, query_norm, eps);
      rotate(q, config.rope, static_cast<std::uint32_t>(row));
      const std::size_t kv = h / (config.query_heads / config.kv_heads);
      const Vector head = attend(q, keys[kv], values[kv], row, 1 / std::sqrt(static_cast<double>(dim)));
      for (std::size_t i = 0; i < dim; ++i) mixed.push_back(head[i] * sigmoid(gate[i]));
    }
    y.push_back(out.times(mixed));
  }
  return y;
}

inline Sequence gated_delta_net(const GatedDeltaNetConfig& config, double eps, const Weights& weights,
                                const Sequence& x) {
  const Matrix qkv = decoded(weights.matrix("linear_attn.in_proj_qkv"));
  const Matrix z = decoded(weights.matrix("linear_attn.in_proj_z"));
  const Matrix a = decoded(weights.matrix("linear_attn.in_proj_a"));
  const Matrix b = decoded(weights.matrix("linear_attn.in_proj_b"));
  const Matrix out = decoded(weights.matrix("linear_attn.out_proj"));
  const Vector conv = as_doubles(weights.vector("linear_attn.conv1d"));  // [conv_dim][width]
  const Vector a_log = as_doubles(weights.vector("linear_attn.A_log"));
  const Vector dt_bias = as_doubles(weights.vector("linear_attn.dt_bias"));
  const Vector norm = as_doubles(weights.vector("linear_attn.norm"));
  const std::size_t width = config.conv_width, key_dim = config.key_head_dim,
                    value_dim = config.value_head_dim;
  std::vector<Sequence> states(config.value_heads, Sequence(key_dim, Vector(value_dim)));  // [key][value]
  Sequence projected, y;
  for (std::size_t row = 0; row < x.size(); ++row) {
    projected.push_back(qkv.times(x[row]));
    Vector mixed(config.conv_dim());
    for (std::size_t c = 0; c < mixed.size(); ++c) {
      for (std::size_t k = 0; k < width; ++k)
        if (row + k + 1 >= width) mixed[c] += projected[row + k + 1 - width][c] * conv[c * width + k];
      mixed[c] = silu(mixed[c]);
    }
    const Vector decay_in = a.times(x[row]), beta_in = b.times(x[row]);
    Vector gate = z.times(x[row]), read;
    for (std::size_t h = 0; h < config.value_heads; ++h) {
      const std::size_t key_head = h / (config.value_heads / config.key_heads);
      const auto first = mixed.begin() + static_cast<std::ptrdiff_t>(key_head * key_dim);
      const auto size = static_cast<std::ptrdiff_t>(key_dim);
      Vector q(first, first + size), k(first + config.key_dim(), first + config.key_dim() + size);
      l2_norm(q, 1 / std::sqrt(static_cast<double>(key_dim)));
      l2_norm(k, 1);
      const double softplus = std::log1p(std::exp(decay_in[h] + dt_bias[h]));
      const double decay = std::exp(-std::exp(a_log[h]) * softplus), beta = sigmoid(beta_in[h]);
      Sequence& state = states[h];
      Vector head(value_dim);
      for (std::size_t i = 0; i < value_dim; ++i) {
        double found = 0;
        for (std::size_t j = 0; j < key_dim; ++j) found += (state[j][i] *= decay) * k[j];
        const double change = beta * (mixed[2 * config.key_dim() + h * value_dim + i] - found);
        for (std::size_t j = 0; j < key_dim; ++j) head[i] += (state[j][i] += change * k[j]) * q[j];
      }
      rms_norm(head, norm, eps);
      for (std::size_t i = 0; i < value_dim; ++i) read.push_back(head[i] * silu(gate[h * value_dim + i]));
    }
    y.push_back(out.times(read));
  }
  return y;
}

// Latent attention without absorption: each head's keys and values are computed from the latent.
inline Sequence mla(const MlaConfig& config, double eps, const Weights& weights, const Sequence& x) {
  const Matrix query_down = decoded(weights.matrix("self_attn.q_a_proj"));
  const Matrix query_up = decoded(weights.matrix("self_attn.q_b_proj"));
  const Matrix latent = decoded(weights.matrix("self_attn.kv_a_proj_with_mqa"));
  const Matrix key_value = decoded(weights.matrix("self_attn.kv_b_proj"));
  const Matrix out = decoded(weights.matrix("self_attn.o_proj"));
  const Vector query_norm = as_doubles(weights.vector("self_attn.q_a_layernorm"));
  const Vector latent_norm = as_doubles(weights.vector("self_attn.kv_a_layernorm"));
  const std::size_t nope = config.nope_dim, value_dim = config.value_dim;
  std::vector<Sequence> keys(config.heads), values(config.heads);
  Sequence y;
  for (std::size_t row = 0; row < x.size(); ++row) {
    const auto position = static_cast<std::uint32_t>(row);
    Vector compressed = latent.times(x[row]);
    const Vector turned = [&] {
      Vector key(compressed.begin() + config.latent_dim, compressed.end());
      rotate(key, config.rope, position);
      return key;
    }();
    compressed.resize(config.latent_dim);
    rms_norm(compressed, latent_norm, eps);
    Vector both = key_value.times(compressed);
    Vector query_latent = query_down.times(x[row]);
    rms_norm(query_latent, query_norm, eps);
    Vector queries = query_up.times(query_latent), mixed;
    for (std::size_t h = 0; h < config.heads; ++h) {
      const std::span<double> head = head_of(both, h, nope + value_dim);
      Vector key(head.begin(), head.begin() + config.nope_dim);
      key.insert(key.end(), turned.begin(), turned.end());
      keys[h].push_back(std::move(key));
      values[h].emplace_back(head.begin() + config.nope_dim, head.end());
      const std::span<double> query = head_of(queries, h, nope + config.rope_dim);
      rotate(query.subspan(nope), config.rope, position);
      const Vector of_head = attend(query, keys[h], values[h], row, mla_score_scale(config));
      mixed.insert(mixed.end(), of_head.begin(), of_head.end());
    }
    y.push_back(out.times(mixed));
  }
  return y;
}

struct Swiglu {
  Matrix gate, up, down;
  Vector times(const Vector& x) const {
    Vector hidden = gate.times(x);
    const Vector factor = up.times(x);
    for (std::size_t i = 0; i < hidden.size(); ++i) hidden[i] = silu(hidden[i]) * factor[i];
    return down.times(hidden);
  }
};

inline Swiglu swiglu(const Weights& weights, const std::string& name) {
  return {decoded(weights.matrix(name + ".gate_proj")), decoded(weights.matrix(name + ".up_proj")),
          decoded(weights.matrix(name + ".down_proj"))};
}

using ExpertWeights = std::vector<std::pair<std::size_t, double>>;  // (expert, weight)

inline std::vector<std::size_t> largest_of(const Vector& numbers, std::size_t count) {
  std::vector<std::size_t> order(numbers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return numbers[a] > numbers[b]; });
  order.resize(count);
  return order;
}

inline ExpertWeights choose_softmax(const Vector& logits, std::size_t count) {
  Vector weights;
  const std::vector<std::size_t> chosen = largest_of(logits, count);
  for (const std::size_t expert : chosen) weights.push_back(logits[expert]);
  softmax(weights);
  ExpertWeights choice;
  for (std::size_t i = 0; i < count; ++i) choice.emplace_back(chosen[i], weights[i]);
  return choice;
}

inline ExpertWeights choose_grouped(const GroupedSigmoidRouterConfig& router, const Vector& bias,
                                    const Vector& logits, std::size_t count) {
  const std::size_t group_size = logits.size() / router.groups;
  Vector scores, biased, of_groups;
  for (std::size_t e = 0; e < logits.size(); ++e) {
    scores.push_back(sigmoid(logits[e]));
    biased.push_back(scores[e] + bias[e]);
  }
  for (std::size_t g = 0; g < router.groups; ++g) {
    Vector group(biased.begin() + static_cast<std::ptrdiff_t>(g * group_size),
                 biased.begin() + static_cast<std::ptrdiff_t>((g + 1) * group_size));
    double sum = 0;
    for (const std::size_t best : largest_of(group, 2)) sum += group[best];
    of_groups.push_back(sum);
  }
  const std::vector<std::size_t> kept = largest_of(of_groups, router.groups_kept);
  for (std::size_t e = 0; e < logits.size(); ++e)
    if (std::ranges::find(kept, e / group_size) == kept.end()) biased[e] = -1e300;
  ExpertWeights choice;
  double sum = 0;
  for (const std::size_t expert : largest_of(biased, count)) {
    choice.emplace_back(expert, scores[expert]);
    sum += scores[expert];
  }
  for (auto& [expert, weight] : choice) weight *= router.scale / (router.normalise ? sum : 1);
  return choice;
}

inline Sequence moe(const MoeConfig& config, const std::vector<Swiglu>& experts, const Weights& weights,
                    const Sequence& x) {
  const Matrix router = decoded(weights.matrix("mlp.gate"));
  const bool is_gated = config.shared->gated;
  const Swiglu shared = swiglu(weights, is_gated ? "mlp.shared_expert" : "mlp.shared_experts");
  Sequence y;
  for (const Vector& row : x) {
    const Vector logits = router.times(row);
    const auto* grouped = std::get_if<GroupedSigmoidRouterConfig>(&config.router);
    const ExpertWeights choice =
        grouped == nullptr
            ? choose_softmax(logits, config.experts_per_token)
            : choose_grouped(*grouped, as_doubles(weights.vector("mlp.gate.e_score_correction_bias")), logits,
                             config.experts_per_token);
    Vector sum = shared.times(row);
    if (is_gated) {
      const double gate = sigmoid(decoded(weights.matrix("mlp.shared_expert_gate")).times(row)[0]);
      for (double& number : sum) number *= gate;
    }
    for (const auto& [expert, weight] : choice) {
      const Vector out = experts[expert].times(row);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += weight * out[i];
    }
    y.push_back(std::move(sum));
  }
  return y;
}

// A decoder layer by its stages: residual = x + mixed + mlp(mlp_normed).
struct DecoderStages {
  Sequence normed, mixed, mlp_normed, residual;
};

inline DecoderStages decoder_layer(double eps, const Weights& weights, const Sequence& x,
                                   const std::function<Sequence(const Sequence&)>& mixer,
                                   const std::function<Sequence(const Sequence&)>& mlp) {
  const auto norm = [&](Sequence rows, const char* name) {
    for (Vector& row : rows) rms_norm(row, as_doubles(weights.vector(name)), eps);
    return rows;
  };
  const auto add = [](Sequence& to, const Sequence& rows) {
    for (std::size_t row = 0; row < to.size(); ++row)
      for (std::size_t i = 0; i < to[row].size(); ++i) to[row][i] += rows[row][i];
  };
  DecoderStages stages{.normed = norm(x, "input_layernorm"), .mixed = {}, .mlp_normed = {}, .residual = x};
  stages.mixed = mixer(stages.normed);
  add(stages.residual, stages.mixed);
  stages.mlp_normed = norm(stages.residual, "post_attention_layernorm");
  add(stages.residual, mlp(stages.mlp_normed));
  return stages;
}

}  // namespace moeflux::reference
