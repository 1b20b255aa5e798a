#include "model/packed_format.h"

#include <fmt/format.h>

#include "base/arithmetic.h"
#include "base/check.h"
#include "base/overloaded.h"
#include "quant/tile16.h"

namespace moeflux {
namespace {

std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
  return divide_up(value, alignment) * alignment;
}

// Collects tensors, layer by layer.
class TensorList {
 public:
  explicit TensorList(std::vector<TensorShape>& out) : out_(out) {}
  void matrix(std::string name, std::uint64_t rows, std::uint64_t cols) {
    out_.push_back({prefix_ + std::move(name), rows, cols, false});
  }
  void vector(std::string name, std::uint64_t size) {
    out_.push_back({prefix_ + std::move(name), 1, size, true});
  }
  void table(std::string name, std::uint64_t rows, std::uint64_t cols) {
    out_.push_back({prefix_ + std::move(name), rows, cols, true});
  }
  void swiglu(const std::string& name, std::uint64_t hidden, std::uint64_t dim) {
    matrix(name + ".gate_proj", hidden, dim);
    matrix(name + ".up_proj", hidden, dim);
    matrix(name + ".down_proj", dim, hidden);
  }
  void begin_layer(std::size_t layer) { prefix_ = fmt::format("layers.{}.", layer); }
  void end_layers() { prefix_.clear(); }

 private:
  std::vector<TensorShape>& out_;
  std::string prefix_;
};

void list_mixer(TensorList& list, const MixerConfig& mixer, std::uint64_t dim, bool split_kv_b) {
  std::visit(overloaded{
                 [&](const GatedDeltaNetConfig& net) {
                   list.matrix("linear_attn.in_proj_qkv", net.conv_dim(), dim);
                   list.matrix("linear_attn.in_proj_z", net.value_dim(), dim);
                   list.matrix("linear_attn.in_proj_a", net.value_heads, dim);
                   list.matrix("linear_attn.in_proj_b", net.value_heads, dim);
                   list.table("linear_attn.conv1d", net.conv_dim(), net.conv_width);
                   list.vector("linear_attn.A_log", net.value_heads);
                   list.vector("linear_attn.dt_bias", net.value_heads);
                   list.vector("linear_attn.norm", net.value_head_dim);
                   list.matrix("linear_attn.out_proj", dim, net.value_dim());
                 },
                 [&](const GatedAttentionConfig& attention) {
                   list.matrix("self_attn.q_proj", 2 * std::uint64_t{attention.query_dim()}, dim);
                   list.matrix("self_attn.k_proj", attention.kv_dim(), dim);
                   list.matrix("self_attn.v_proj", attention.kv_dim(), dim);
                   list.vector("self_attn.q_norm", attention.head_dim);
                   list.vector("self_attn.k_norm", attention.head_dim);
                   list.matrix("self_attn.o_proj", dim, attention.query_dim());
                 },
                 [&](const MlaConfig& mla) {
                   const std::uint64_t heads = mla.heads;
                   if (mla.query_latent_dim) {
                     list.matrix("self_attn.q_a_proj", *mla.query_latent_dim, dim);
                     list.vector("self_attn.q_a_layernorm", *mla.query_latent_dim);
                     list.matrix("self_attn.q_b_proj", mla.query_dim(), *mla.query_latent_dim);
                   } else {
                     list.matrix("self_attn.q_proj", mla.query_dim(), dim);
                   }
                   list.matrix("self_attn.kv_a_proj_with_mqa", mla.latent_dim + mla.rope_dim, dim);
                   list.vector("self_attn.kv_a_layernorm", mla.latent_dim);
                   if (split_kv_b) {
                     list.matrix("self_attn.embed_q", heads * mla.latent_dim, mla.nope_dim);
                     list.matrix("self_attn.unembed_out", heads * mla.value_dim, mla.latent_dim);
                   } else {
                     list.matrix("self_attn.kv_b_proj", heads * (mla.nope_dim + mla.value_dim),
                                 mla.latent_dim);
                   }
                   list.matrix("self_attn.o_proj", dim, heads * mla.value_dim);
                 },
             },
             mixer);
}

void list_mlp(TensorList& list, const MlpConfig& mlp, std::uint64_t dim) {
  std::visit(overloaded{
                 [&](const DenseMlpConfig& dense) { list.swiglu("mlp", dense.hidden_dim, dim); },
                 [&](const MoeConfig& moe) {
                   list.matrix("mlp.gate", moe.experts, dim);
                   if (std::holds_alternative<GroupedSigmoidRouterConfig>(moe.router))
                     list.vector("mlp.gate.e_score_correction_bias", moe.experts);
                   if (!moe.shared) return;
                   list.swiglu(moe.shared->gated ? "mlp.shared_expert" : "mlp.shared_experts",
                               moe.shared->hidden_dim, dim);
                   if (moe.shared->gated) list.matrix("mlp.shared_expert_gate", 1, dim);
                 },
             },
             mlp);
}

}  // namespace

std::uint64_t packed_bytes(const MatrixFormat& format, TensorLayout layout) {
  switch (layout) {
    case TensorLayout::rows:
      MF_REQUIRE(format.encoding == Encoding(PlainFormat{Dtype::f32}), "rows are F32");
      return format.rows * format.cols * 4;
    case TensorLayout::tile16: return tile16::matrix_bytes(format.encoding, format.rows, format.cols);
  }
  return 0;
}

std::string expert_file_name(LayerId layer) { return fmt::format("experts/layer_{:03}.bin", layer.index()); }

RecordLayout record_layout(const ExpertFormat& format) {
  MF_REQUIRE(format.gate.rows == format.up.rows, "gate and up have as many rows");
  RecordLayout layout{};
  layout.gate_block_bytes = tile16::block_bytes(format.gate.encoding, format.gate.cols);
  layout.up_block_bytes = tile16::block_bytes(format.up.encoding, format.up.cols);
  layout.gate_up_bytes =
      divide_up(format.gate.rows, tile16::kBlockRows) * (layout.gate_block_bytes + layout.up_block_bytes);
  layout.down_offset = align_up(layout.gate_up_bytes, kRecordAlignment);
  layout.down_bytes = packed_bytes(format.down, TensorLayout::tile16);
  layout.record_bytes = align_up(layout.down_offset + layout.down_bytes, kRecordAlignment);
  return layout;
}

std::vector<TensorShape> resident_tensors(const ModelConfig& config, bool split_kv_b) {
  std::vector<TensorShape> shapes;
  TensorList list(shapes);
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    list.begin_layer(i);
    list.vector("input_layernorm", config.dim);
    list_mixer(list, config.layers[i].mixer, config.dim, split_kv_b);
    list.vector("post_attention_layernorm", config.dim);
    list_mlp(list, config.layers[i].mlp, config.dim);
  }
  list.end_layers();
  list.vector("norm", config.dim);
  if (!config.tied_embeddings) list.matrix("lm_head", config.vocabulary, config.dim);
  list.matrix("embed_tokens", config.vocabulary, config.dim);  // last: a token needs only one of its rows
  return shapes;
}

}  // namespace moeflux
