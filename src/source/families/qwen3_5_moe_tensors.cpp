// The tensors of the qwen3_5_moe family.

#include <fmt/format.h>

#include <array>

#include "base/check.h"
#include "base/overloaded.h"
#include "source/tensor_map.h"

namespace moeflux {
namespace {

// The software that wrote a checkpoint. It determines whether norms are stored as (weight - 1), and the shape
// of the convolution.
enum class Writer { hugging_face, mlx };

struct Naming {
  std::string body;  // before "layers."
  std::string head;  // the output head's module
};

Result<Naming> find_naming(const TensorCatalog& catalog) {
  const std::array<Naming, 3> known{Naming{"language_model.model.", "language_model.lm_head"},
                                    Naming{"model.language_model.", "lm_head"}, Naming{"model.", "lm_head"}};
  for (const Naming& naming : known)
    if (!catalog.with_prefix(naming.body + "layers.").empty()) return naming;
  return Error{ErrorCode::not_found,
               "no tensor begins with 'language_model.model.layers.', 'model.language_model.layers.' or "
               "'model.layers.': this is not a qwen3_5_moe checkpoint"};
}

// MLX converts the convolution from [channels, 1, width] to [channels, width, 1] in the same pass that adds 1
// to the norms, so the shape identifies the writer; all layers must agree. With a width of 1, or without such
// a layer, the prefix of the names decides.
Result<Writer> find_writer(const ModelConfig& model, const TensorCatalog& catalog, const std::string& body) {
  std::optional<Writer> writer;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const TensorEntry* conv = catalog.find(fmt::format("{}layers.{}.linear_attn.conv1d.weight", body, i));
    if (conv == nullptr || conv->shape.size() != 3 || conv->shape[1] == conv->shape[2]) continue;
    const Writer here = conv->shape[2] == 1 ? Writer::mlx : Writer::hugging_face;
    if (writer && *writer != here)
      return Error{
          ErrorCode::corrupt_data,
          fmt::format("tensor '{}' is {}, in another order than the convolutions before it: some layers were "
                      "converted by MLX and some were not",
                      conv->name, describe_shape(conv->shape))};
    writer = here;
  }
  if (writer) return *writer;
  return body == "model.language_model." ? Writer::hugging_face : Writer::mlx;
}

class LayerMap {
 public:
  LayerMap(TensorMapper& mapper, const ModelConfig& model, Writer writer)
      : mapper_(mapper), dim_{model.dim, "hidden_size"}, writer_(writer) {}

  Status map(std::string layer, const LayerConfig& config) {
    layer_ = std::move(layer);
    const bool add_one = writer_ == Writer::hugging_face;
    MF_TRY_STATUS(mapper_.norm(layer_ + "input_layernorm", dim_, add_one));
    MF_TRY_STATUS(std::visit(
        overloaded{[&](const GatedDeltaNetConfig& net) { return delta_net(net); },
                   [&](const GatedAttentionConfig& attention) { return gated_attention(attention); },
                   [](const MlaConfig&) -> Status {
                     return Error{ErrorCode::unsupported, "qwen3_5_moe has no MLA layers"};
                   }},
        config.mixer));
    MF_TRY_STATUS(mapper_.norm(layer_ + "post_attention_layernorm", dim_, add_one));
    return moe(std::get<MoeConfig>(config.mlp));
  }

 private:
  Status delta_net(const GatedDeltaNetConfig& net) {
    const std::string base = layer_ + "linear_attn.";
    const Dim heads{net.value_heads, "linear_num_value_heads"};
    const Dim values{net.value_dim(), "linear_num_value_heads*linear_value_head_dim"};
    const Dim channels{net.conv_dim(), "width of q, k and v"};
    const Dim width{net.conv_width, "linear_conv_kernel_dim"};
    MF_TRY_STATUS(mapper_.matrix(base + "in_proj_qkv", channels, dim_));
    MF_TRY_STATUS(mapper_.matrix(base + "in_proj_z", values, dim_));
    MF_TRY_STATUS(mapper_.matrix(base + "in_proj_a", heads, dim_));
    MF_TRY_STATUS(mapper_.matrix(base + "in_proj_b", heads, dim_));
    const Dim one{1, ""};
    MF_TRY_STATUS(mapper_.shaped(base + "conv1d", writer_ == Writer::mlx
                                                      ? std::vector<Dim>{channels, width, one}
                                                      : std::vector<Dim>{channels, one, width}));
    MF_TRY_STATUS(mapper_.parameter(base + "A_log", heads));
    MF_TRY_STATUS(mapper_.parameter(base + "dt_bias", heads));
    MF_TRY_STATUS(mapper_.norm(base + "norm", {net.value_head_dim, "linear_value_head_dim"}));  // never + 1
    return mapper_.matrix(base + "out_proj", dim_, values);
  }

  Status gated_attention(const GatedAttentionConfig& attention) {
    const std::string base = layer_ + "self_attn.";
    const bool add_one = writer_ == Writer::hugging_face;
    const Dim kv{attention.kv_dim(), "num_key_value_heads*head_dim"};
    const Dim head{attention.head_dim, "head_dim"};
    // Twice the rows: each head's queries are followed by its gate.
    MF_TRY_STATUS(mapper_.matrix(
        base + "q_proj", {std::uint64_t{2} * attention.query_dim(), "2*num_attention_heads*head_dim"}, dim_));
    MF_TRY_STATUS(mapper_.matrix(base + "k_proj", kv, dim_));
    MF_TRY_STATUS(mapper_.matrix(base + "v_proj", kv, dim_));
    MF_TRY_STATUS(mapper_.norm(base + "q_norm", head, add_one));
    MF_TRY_STATUS(mapper_.norm(base + "k_norm", head, add_one));
    return mapper_.matrix(base + "o_proj", dim_, {attention.query_dim(), "num_attention_heads*head_dim"});
  }

  Status moe(const MoeConfig& moe) {
    MF_TRY_STATUS(mapper_.matrix(layer_ + "mlp.gate", {moe.experts, "num_experts"}, dim_));
    if (!moe.shared) return {};
    MF_TRY_STATUS(mapper_.swiglu(layer_ + "mlp.shared_expert",
                                 {moe.shared->hidden_dim, "shared_expert_intermediate_size"}, dim_));
    return mapper_.matrix(layer_ + "mlp.shared_expert_gate", {1, ""}, dim_);
  }

  TensorMapper& mapper_;
  Dim dim_;
  Writer writer_;
  std::string layer_;
};

}  // namespace

Result<SourceTensors> map_qwen3_5_moe(const ModelConfig& model, MatrixResolver& resolver,
                                      ExpertLocator& experts, Notes& notes) {
  MF_REQUIRE(model.family == Family::qwen3_5_moe, "the model is of this family");
  MF_TRY(const Naming naming, find_naming(resolver.catalog()));
  MF_TRY(const Writer writer, find_writer(model, resolver.catalog(), naming.body));
  TensorMapper mapper(resolver, naming.body);
  const Dim dim{model.dim, "hidden_size"};

  MF_TRY_STATUS(mapper.matrix("embed_tokens", {model.vocabulary, "vocab_size"}, dim));
  LayerMap layers(mapper, model, writer);
  std::vector<std::optional<SourceExperts>> routed;
  for (std::uint32_t i = 0; i < model.layers.size(); ++i) {
    const std::string layer = fmt::format("layers.{}.", i);
    MF_TRY_STATUS(layers.map(layer, model.layers[i]));
    const auto& moe = std::get<MoeConfig>(model.layers[i].mlp);
    MF_TRY(SourceExperts found,
           experts.locate(LayerId(i), naming.body + layer + "mlp",
                          {{moe.experts, "num_experts"}, {moe.hidden_dim, "moe_intermediate_size"}, dim}));
    routed.emplace_back(std::move(found));
  }
  MF_TRY_STATUS(mapper.norm("norm", dim, writer == Writer::hugging_face));
  MF_TRY_STATUS(mapper.output_head(model, naming.head, notes));

  for (const char* prefix : {"mtp.", "model.mtp.", "language_model.mtp."})
    mapper.skip(prefix, "multi-token prediction is not used", notes);
  for (const char* prefix : {"model.visual.", "visual.", "vision_tower.", "vision_model."})
    mapper.skip(prefix, "only the text model is read", notes);
  mapper.note_unused(notes);
  return std::move(mapper).finish(std::move(routed));
}

}  // namespace moeflux
