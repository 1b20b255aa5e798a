#include "pack/synthetic/tensors.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/arithmetic.h"
#include "base/overloaded.h"
#include "base/sizes.h"
#include "quant/encoding.h"
#include "source/tensor_catalog.h"

namespace moeflux {
namespace {

using Shape = std::vector<std::uint64_t>;

constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 60;

// The precision of a matrix in each format; BF16 unless quantized.
struct Precision {
  std::uint32_t mlx_bits;  // 0: not quantized
  bool fp8;
};
constexpr Precision kProjection{kSyntheticBits, true};
constexpr Precision kTable{kSyntheticBits, false};  // embeddings, and the few rows of in_proj_a and in_proj_b
constexpr Precision kGate{8, false};
constexpr Precision kPlain{0, false};

// Root mean squares and gains, chosen so that the stream grows from 1 to less than 2 at any depth.
constexpr double kEmbeddingRms = 1.0;
constexpr double kTiedEmbeddingRms = 0.25;  // 1.0 would give logits of sqrt(dim), because it is also the head
constexpr double kHeadGain = 4.0;           // gives the likeliest of 250,000 tokens a few percent
constexpr double kSoftmaxRouterGain = 2.0;  // gives the chosen experts unequal weights
constexpr double kSigmoidRouterGain = 1.0;  // keeps scores where the sigmoid is not flat
constexpr double kCorrectionRms = 0.01;     // scores spread by 0.2, so every expert can be chosen
constexpr double kNormRms = 0.05;           // for norms stored as weight - 1
constexpr double kStepBiasRms = 2.0;  // dt_bias in [-3.3, -0.8]: memories of a few to hundreds of tokens
constexpr double kLogDecayRms = 1.7;  // A_log in [0.7, 2.8], so that A is in [2, 16]

double residual_gain(const ModelConfig& model) {
  return 2.0 / std::sqrt(2.0 * static_cast<double>(model.layers.size()));
}

// The outputs of a token's K experts are independent, so their sum with weights of 1/K is smaller than one of
// them by sqrt(K).
double routed_gain(const MoeConfig& moe) {
  const double spread = std::sqrt(static_cast<double>(moe.experts_per_token));
  const auto* sigmoid = std::get_if<GroupedSigmoidRouterConfig>(&moe.router);
  if (sigmoid == nullptr) return spread;
  return (sigmoid->normalise ? spread : 1 / spread) / sigmoid->scale;
}

class Planner {
 public:
  Planner(const ModelConfig& model, SyntheticFormat format, std::uint64_t seed)
      : model_(model),
        format_(format),
        seed_(seed),
        qwen_(model.family == Family::qwen3_5_moe),
        residual_gain_(residual_gain(model)) {
    const bool mlx = format == SyntheticFormat::mlx;
    body_ = !qwen_ ? "model." : mlx ? "language_model.model." : "model.language_model.";
    head_ = qwen_ && mlx ? "language_model.lm_head" : "lm_head";
  }

  Result<SyntheticPlan> plan() && {
    const std::uint64_t dim = model_.dim, vocabulary = model_.vocabulary;
    matrix_of_rms(body_ + "embed_tokens", {vocabulary, dim},
                  model_.tied_embeddings ? kTiedEmbeddingRms : kEmbeddingRms, kTable);
    for (std::size_t i = 0; i < model_.layers.size() && !too_large_; ++i) layer(i);
    model_norm(body_ + "norm", dim);
    if (!model_.tied_embeddings) matrix(head_, {vocabulary, dim}, kHeadGain, kTable);
    if (too_large_)
      return Error{ErrorCode::unsupported,
                   fmt::format("a {} checkpoint of this shape has more than {} tensors or 2^60 bytes",
                               name_of(format_), with_thousands(kMaxTensorsInSource))};
    return std::move(plan_);
  }

 private:
  void layer(std::size_t index) {
    const LayerConfig& config = model_.layers[index];
    const std::string layer = fmt::format("{}layers.{}.", body_, index);
    model_norm(layer + "input_layernorm", model_.dim);
    std::visit(
        overloaded{[&](const GatedDeltaNetConfig& net) { delta_net(layer + "linear_attn.", net); },
                   [&](const GatedAttentionConfig& attention) { gated(layer + "self_attn.", attention); },
                   [&](const MlaConfig& attention) { mla(layer + "self_attn.", attention); }},
        config.mixer);
    model_norm(layer + "post_attention_layernorm", model_.dim);
    std::visit(overloaded{[&](const MoeConfig& config_of_moe) { moe(layer + "mlp", config_of_moe); },
                          [&](const DenseMlpConfig& dense) { swiglu(layer + "mlp", dense.hidden_dim, 1); }},
               config.mlp);
  }

  void delta_net(const std::string& base, const GatedDeltaNetConfig& net) {
    const std::uint64_t dim = model_.dim, channels = net.conv_dim(), width = net.conv_width;
    matrix(base + "in_proj_qkv", {channels, dim}, 1, kProjection);
    matrix(base + "in_proj_z", {net.value_dim(), dim}, 1, kProjection);
    matrix(base + "in_proj_a", {net.value_heads, dim}, 1, kTable);
    matrix(base + "in_proj_b", {net.value_heads, dim}, 1, kTable);
    add(base + "conv1d.weight", Dtype::bf16,
        format_ == SyntheticFormat::mlx ? Shape{channels, width, 1} : Shape{channels, 1, width},
        spread(Dtype::bf16, Sign::random, 1 / std::sqrt(static_cast<double>(width))));
    add(base + "A_log", Dtype::f32, {net.value_heads}, spread(Dtype::f32, Sign::positive, kLogDecayRms));
    add(base + "dt_bias", Dtype::bf16, {net.value_heads}, spread(Dtype::bf16, Sign::negative, kStepBiasRms));
    norm(base + "norm", net.value_head_dim);
    matrix(base + "out_proj", {dim, net.value_dim()}, residual_gain_, kProjection);
  }

  void gated(const std::string& base, const GatedAttentionConfig& attention) {
    const std::uint64_t dim = model_.dim;
    matrix(base + "q_proj", {std::uint64_t{2} * attention.query_dim(), dim}, 1, kProjection);
    matrix(base + "k_proj", {attention.kv_dim(), dim}, 1, kProjection);
    matrix(base + "v_proj", {attention.kv_dim(), dim}, 1, kProjection);
    model_norm(base + "q_norm", attention.head_dim);
    model_norm(base + "k_norm", attention.head_dim);
    matrix(base + "o_proj", {dim, attention.query_dim()}, residual_gain_, kProjection);
  }

  void mla(const std::string& base, const MlaConfig& attention) {
    const std::uint64_t dim = model_.dim, heads = attention.heads, latent = attention.latent_dim;
    if (attention.query_latent_dim) {
      matrix(base + "q_a_proj", {*attention.query_latent_dim, dim}, 1, kProjection);
      norm(base + "q_a_layernorm", *attention.query_latent_dim);
      matrix(base + "q_b_proj", {attention.query_dim(), *attention.query_latent_dim}, 1, kProjection);
    } else {
      matrix(base + "q_proj", {attention.query_dim(), dim}, 1, kProjection);
    }
    matrix(base + "kv_a_proj_with_mqa", {latent + attention.rope_dim, dim}, 1, kProjection);
    norm(base + "kv_a_layernorm", latent);
    matrix(base + "kv_b_proj", {heads * (attention.nope_dim + attention.value_dim), latent}, 1, kProjection);
    matrix(base + "o_proj", {dim, heads * attention.value_dim}, residual_gain_, kProjection);
  }

  void moe(const std::string& mlp, const MoeConfig& config) {
    const std::uint64_t dim = model_.dim;
    if (qwen_) {
      matrix(mlp + ".gate", {config.experts, dim}, kSoftmaxRouterGain, kGate);
    } else {
      matrix(mlp + ".gate", {config.experts, dim}, kSigmoidRouterGain, kPlain);
      add(mlp + ".gate.e_score_correction_bias", Dtype::f32, {config.experts},
          spread(Dtype::f32, Sign::random, kCorrectionRms));
    }
    experts(mlp, config);
    if (!config.shared) return;
    swiglu(mlp + (qwen_ ? ".shared_expert" : ".shared_experts"), config.shared->hidden_dim, 1);
    if (config.shared->gated) matrix(mlp + ".shared_expert_gate", {1, dim}, 1, kGate);
  }

  void experts(const std::string& mlp, const MoeConfig& config) {
    const std::uint64_t dim = model_.dim, hidden = config.hidden_dim, count = config.experts;
    const double gain = routed_gain(config);
    if (format_ == SyntheticFormat::mlx) {
      matrix(mlp + ".switch_mlp.gate_proj", {count, hidden, dim}, 1, kProjection);
      matrix(mlp + ".switch_mlp.up_proj", {count, hidden, dim}, 1, kProjection);
      matrix(mlp + ".switch_mlp.down_proj", {count, dim, hidden}, gain * residual_gain_, kProjection);
    } else if (format_ == SyntheticFormat::bf16 && qwen_) {
      add(mlp + ".experts.gate_up_proj", Dtype::bf16, {count, 2 * hidden, dim},
          spread(Dtype::bf16, Sign::random, rms_of(1, dim)));
      add(mlp + ".experts.down_proj", Dtype::bf16, {count, dim, hidden},
          spread(Dtype::bf16, Sign::random, rms_of(gain * residual_gain_, hidden)));
    } else {
      for (std::uint64_t i = 0; i < count && !too_large_; ++i)
        swiglu(fmt::format("{}.experts.{}", mlp, i), hidden, gain);
    }
  }

  void swiglu(const std::string& module, std::uint64_t hidden, double gain) {
    matrix(module + ".gate_proj", {hidden, model_.dim}, 1, kProjection);
    matrix(module + ".up_proj", {hidden, model_.dim}, 1, kProjection);
    matrix(module + ".down_proj", {model_.dim, hidden}, gain * residual_gain_, kProjection);
  }

  // A norm that Hugging Face stores as weight - 1 for qwen3_5_moe.
  void model_norm(const std::string& module, std::uint64_t size) {
    if (!qwen_ || format_ == SyntheticFormat::mlx) return norm(module, size);
    add(module + ".weight", Dtype::bf16, {size}, spread(Dtype::bf16, Sign::random, kNormRms));
  }

  void norm(const std::string& module, std::uint64_t size) {
    add(module + ".weight", Dtype::bf16, {size}, near_one());
  }

  static double rms_of(double gain, std::uint64_t inputs) {
    return gain / std::sqrt(static_cast<double>(inputs));
  }

  // A matrix [..., rows, inputs] whose outputs have a root mean square of `gain` for inputs with one of 1.
  void matrix(const std::string& module, const Shape& shape, double gain, Precision precision) {
    matrix_of_rms(module, shape, rms_of(gain, shape.back()), precision);
  }

  void matrix_of_rms(const std::string& module, const Shape& shape, double rms, Precision precision) {
    if (format_ == SyntheticFormat::mlx && precision.mlx_bits != 0 && shape.back() % kSyntheticGroup == 0)
      return affine(module, shape, rms, precision.mlx_bits);
    if (format_ == SyntheticFormat::fp8 && precision.fp8) return fp8(module, shape, rms);
    add(module + ".weight", Dtype::bf16, shape, spread(Dtype::bf16, Sign::random, rms));
  }

  void affine(const std::string& module, Shape shape, double rms, std::uint32_t bits) {
    const double codes = std::exp2(bits);  // 0 .. codes - 1, all equally likely
    const double scale = rms / std::sqrt((codes * codes - 1) / 12);
    const std::uint64_t inputs = shape.back();
    shape.back() = inputs * bits / 32;
    add(module + ".weight", Dtype::u32, shape, any_bits());
    shape.back() = inputs / kSyntheticGroup;
    add(module + ".scales", Dtype::bf16, shape, scales(Dtype::bf16, scale));
    add(module + ".biases", Dtype::bf16, std::move(shape),
        affine_biases(scale, static_cast<float>((codes - 1) / 2)), synthetic_key(seed_, module + ".scales"));
    if (bits != kSyntheticBits) plan_.eight_bit_modules.push_back(module);
  }

  void fp8(const std::string& module, const Shape& shape, double rms) {
    const std::uint64_t block = Fp8BlockFormat::kBlock;
    add(module + ".weight", Dtype::f8_e4m3, shape, e4m3_codes());
    add(module + ".weight_scale_inv", Dtype::f32, {divide_up(shape[0], block), divide_up(shape[1], block)},
        scales(Dtype::f32, rms / rms_of_e4m3_codes()));
  }

  void add(std::string name, Dtype dtype, Shape shape, const SyntheticPattern& pattern) {
    const std::uint64_t key = synthetic_key(seed_, name);
    add(std::move(name), dtype, std::move(shape), pattern, key);
  }

  void add(std::string name, Dtype dtype, Shape shape, const SyntheticPattern& pattern, std::uint64_t key) {
    const auto numbers = checked_product(shape);
    const auto bytes = numbers ? checked_multiply(*numbers, bits_of(dtype) / 8) : std::nullopt;
    if (!bytes || *bytes > kMaxBytes - bytes_ || plan_.tensors.size() == kMaxTensorsInSource)
      too_large_ = true;
    if (too_large_) return;
    bytes_ += *bytes;
    plan_.tensors.push_back({std::move(name), dtype, std::move(shape), *bytes, key, pattern});
  }

  const ModelConfig& model_;
  SyntheticFormat format_;
  std::uint64_t seed_;
  bool qwen_;
  double residual_gain_;
  std::string body_, head_;
  SyntheticPlan plan_;
  std::uint64_t bytes_ = 0;
  bool too_large_ = false;
};

}  // namespace

std::string_view name_of(SyntheticFormat format) {
  switch (format) {
    case SyntheticFormat::mlx: return "mlx";
    case SyntheticFormat::bf16: return "bf16";
    case SyntheticFormat::fp8: return "fp8";
  }
  return "unknown";
}

std::optional<SyntheticFormat> synthetic_format_from_name(std::string_view name) {
  for (const auto format : {SyntheticFormat::mlx, SyntheticFormat::bf16, SyntheticFormat::fp8})
    if (name == name_of(format)) return format;
  return std::nullopt;
}

Result<SyntheticPlan> plan_synthetic_tensors(const ModelConfig& model, SyntheticFormat format,
                                             std::uint64_t seed) {
  return Planner(model, format, seed).plan();
}

}  // namespace moeflux
