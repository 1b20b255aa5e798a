#include "source/testing/tiny_models.h"

#include <algorithm>
#include <variant>

#include "base/check.h"
#include "base/overloaded.h"

namespace moeflux {
namespace {

constexpr const char* kQwenConfig = R"({
  "model_type": "qwen3_5_moe", "hidden_size": 64, "vocab_size": 96, "num_hidden_layers": 2,
  "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "max_position_embeddings": 512,
  "rms_norm_eps": 1e-6, "tie_word_embeddings": false, "eos_token_id": 95,
  "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
  "layer_types": ["linear_attention", "full_attention"],
  "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
  "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4,
  "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
  "shared_expert_intermediate_size": 64})";

constexpr const char* kDeepseekConfig = R"({
  "model_type": "deepseek_v3", "hidden_size": 64, "vocab_size": 96, "num_hidden_layers": 2,
  "num_attention_heads": 2, "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
  "tie_word_embeddings": false, "eos_token_id": 1, "rope_theta": 10000,
  "q_lora_rank": 64, "kv_lora_rank": 64, "qk_nope_head_dim": 64, "qk_rope_head_dim": 16, "v_head_dim": 32,
  "first_k_dense_replace": 1, "intermediate_size": 128, "n_routed_experts": 4, "num_experts_per_tok": 2,
  "moe_intermediate_size": 64, "n_shared_experts": 1, "n_group": 2, "topk_group": 1,
  "norm_topk_prob": true, "routed_scaling_factor": 2.5})";

Json parse(const char* text) { return Json::parse(text); }

void swiglu(TinyCheckpoint& tiny, const std::string& base, std::uint64_t hidden, const Encoding& encoding) {
  tiny.module(base + "gate_proj", {hidden, 64}, encoding);
  tiny.module(base + "up_proj", {hidden, 64}, encoding);
  tiny.module(base + "down_proj", {64, hidden}, encoding);
}

void stacked_experts(TinyCheckpoint& tiny, const std::string& mlp, const Encoding& encoding) {
  for (const char* part : {"gate_proj", "up_proj", "down_proj"})
    tiny.module(mlp + "switch_mlp." + part, {4, 64, 64}, encoding);
}

void qwen_mixer(TinyCheckpoint& tiny, const std::string& layer, bool full, const Encoding& encoding,
                bool mlx) {
  if (full) {
    tiny.module(layer + "self_attn.q_proj", {128, 64}, encoding);
    tiny.module(layer + "self_attn.k_proj", {32, 64}, encoding);
    tiny.module(layer + "self_attn.v_proj", {32, 64}, encoding);
    tiny.module(layer + "self_attn.o_proj", {64, 64}, encoding);
    tiny.tensor(layer + "self_attn.q_norm.weight", {32});
    tiny.tensor(layer + "self_attn.k_norm.weight", {32});
    return;
  }
  tiny.module(layer + "linear_attn.in_proj_qkv", {128, 64}, encoding);
  tiny.module(layer + "linear_attn.in_proj_z", {64, 64}, encoding);
  tiny.module(layer + "linear_attn.in_proj_a", {4, 64}, encoding);
  tiny.module(layer + "linear_attn.in_proj_b", {4, 64}, encoding);
  tiny.module(layer + "linear_attn.out_proj", {64, 64}, encoding);
  tiny.tensor(layer + "linear_attn.conv1d.weight", mlx ? Shape{128, 4, 1} : Shape{128, 1, 4});
  tiny.tensor(layer + "linear_attn.A_log", {4}, Dtype::f32);
  tiny.tensor(layer + "linear_attn.dt_bias", {4});
  tiny.tensor(layer + "linear_attn.norm.weight", {16});
}

TinyCheckpoint tiny_qwen(const std::string& body, const std::string& head, const Encoding& encoding,
                         const Encoding& gates, bool mlx) {
  TinyCheckpoint tiny;
  tiny.config = parse(kQwenConfig);
  tiny.module(body + "embed_tokens", {96, 64}, encoding);
  for (int i = 0; i < 2; ++i) {
    const std::string layer = body + "layers." + std::to_string(i) + ".";
    tiny.tensor(layer + "input_layernorm.weight", {64});
    tiny.tensor(layer + "post_attention_layernorm.weight", {64});
    qwen_mixer(tiny, layer, i == 1, encoding, mlx);
    tiny.module(layer + "mlp.gate", {4, 64}, gates);
    tiny.module(layer + "mlp.shared_expert_gate", {1, 64}, gates);
    swiglu(tiny, layer + "mlp.shared_expert.", 64, encoding);
    if (mlx) {
      stacked_experts(tiny, layer + "mlp.", encoding);
    } else {
      tiny.tensor(layer + "mlp.experts.gate_up_proj", {4, 128, 64});
      tiny.tensor(layer + "mlp.experts.down_proj", {4, 64, 64});
    }
  }
  tiny.tensor(body + "norm.weight", {64});
  tiny.module(head, {96, 64}, encoding);
  return tiny;
}

TinyCheckpoint tiny_deepseek(const Encoding& encoding, bool stacked) {
  const Encoding plain = PlainFormat{Dtype::bf16};
  const Encoding outer = stacked ? encoding : plain;  // published FP8 checkpoints do not quantize embeddings
  TinyCheckpoint tiny;
  tiny.config = parse(kDeepseekConfig);
  tiny.module("model.embed_tokens", {96, 64}, outer);
  for (int i = 0; i < 2; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    tiny.tensor(layer + "input_layernorm.weight", {64});
    tiny.tensor(layer + "post_attention_layernorm.weight", {64});
    tiny.module(layer + "self_attn.q_a_proj", {64, 64}, encoding);
    tiny.tensor(layer + "self_attn.q_a_layernorm.weight", {64});
    tiny.module(layer + "self_attn.q_b_proj", {160, 64}, encoding);
    tiny.module(layer + "self_attn.kv_a_proj_with_mqa", {80, 64}, encoding);
    tiny.tensor(layer + "self_attn.kv_a_layernorm.weight", {64});
    tiny.module(layer + "self_attn.kv_b_proj", {192, 64}, encoding);
    tiny.module(layer + "self_attn.o_proj", {64, 64}, encoding);
  }
  swiglu(tiny, "model.layers.0.mlp.", 128, encoding);
  const std::string mlp = "model.layers.1.mlp.";
  tiny.module(mlp + "gate", {4, 64}, plain);
  tiny.tensor(mlp + "gate.e_score_correction_bias", {4}, Dtype::f32);
  swiglu(tiny, mlp + "shared_experts.", 64, encoding);
  if (stacked) {
    stacked_experts(tiny, mlp, encoding);
  } else {
    for (int e = 0; e < 4; ++e) swiglu(tiny, mlp + "experts." + std::to_string(e) + ".", 64, encoding);
  }
  tiny.tensor("model.norm.weight", {64});
  tiny.module("lm_head", {96, 64}, outer);
  return tiny;
}

}  // namespace

void TinyCheckpoint::tensor(const std::string& name, const Shape& shape, Dtype dtype) {
  tensors.push_back({name, dtype, shape});
}

void TinyCheckpoint::module(const std::string& module, const Shape& shape, const Encoding& encoding) {
  const auto with_cols = [&](std::uint64_t cols) {
    Shape changed = shape;
    changed.back() = cols;
    return changed;
  };
  std::visit(overloaded{[&](const PlainFormat& plain) { tensor(module + ".weight", shape, plain.dtype); },
                        [&](const AffineFormat& affine) {
                          const Shape groups = with_cols(shape.back() / affine.group);
                          tensor(module + ".weight", with_cols(shape.back() * affine.bits / 32), Dtype::u32);
                          tensor(module + ".scales", groups, affine.scale_dtype);
                          tensor(module + ".biases", groups, affine.scale_dtype);
                        },
                        [&](const Fp8BlockFormat& fp8) {
                          Shape blocks = with_cols((shape.back() + 127) / 128);
                          blocks[blocks.size() - 2] = (blocks[blocks.size() - 2] + 127) / 128;
                          tensor(module + ".weight", shape, Dtype::f8_e4m3);
                          tensor(module + ".weight_scale_inv", blocks, fp8.scale_dtype);
                        }},
             encoding);
}

TestTensor& TinyCheckpoint::find(std::string_view name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const TestTensor& tensor) { return tensor.name == name; });
  MF_REQUIRE(found != tensors.end(), "the test names a tensor of its model");
  return *found;
}

void TinyCheckpoint::remove(std::string_view name) {
  const std::string removed(name);
  MF_REQUIRE(std::erase_if(tensors, [&](const TestTensor& tensor) { return tensor.name == removed; }) == 1,
             "the test names a tensor of its model");
}

void TinyCheckpoint::remove_all(std::string_view part) {
  MF_REQUIRE(
      std::erase_if(
          tensors, [&](const TestTensor& tensor) { return tensor.name.find(part) != std::string::npos; }) > 0,
      "the test names tensors of its model");
}

SafetensorsBuilder TinyCheckpoint::safetensors() const {
  SafetensorsBuilder builder;
  for (const TestTensor& tensor : tensors) builder.add(tensor.name, tensor.dtype, tensor.shape);
  return builder;
}

std::filesystem::path TinyCheckpoint::write(const TemporaryDirectory& directory,
                                            std::string_view name) const {
  directory.write(std::string(name) + "/model.safetensors", safetensors().file());
  return directory.write(std::string(name) + "/config.json", config.dump(1)).parent_path();
}

TinyCheckpoint tiny_qwen_mlx() {
  TinyCheckpoint tiny =
      tiny_qwen("language_model.model.", "language_model.lm_head", kAffine4, kAffine8, true);
  tiny.config["quantization"] = {{"group_size", 64u}, {"bits", 4u}, {"mode", "affine"}};
  for (const char* layer : {"0", "1"})
    for (const char* gate : {"gate", "shared_expert_gate"})
      tiny.config["quantization"][std::string("language_model.model.layers.") + layer + ".mlp." + gate] = {
          {"group_size", 64u}, {"bits", 8u}};
  return tiny;
}

TinyCheckpoint tiny_qwen_hugging_face() {
  return tiny_qwen("model.language_model.", "lm_head", PlainFormat{Dtype::bf16}, PlainFormat{Dtype::bf16},
                   false);
}

TinyCheckpoint tiny_deepseek_mlx() {
  TinyCheckpoint tiny = tiny_deepseek(kAffine4, true);
  tiny.config["quantization"] = {{"group_size", 64u}, {"bits", 4u}};
  return tiny;
}

TinyCheckpoint tiny_deepseek_fp8() {
  TinyCheckpoint tiny = tiny_deepseek(Fp8BlockFormat{Dtype::f32}, false);
  tiny.config["quantization_config"] = {
      {"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {128u, 128u}}};
  return tiny;
}

}  // namespace moeflux
