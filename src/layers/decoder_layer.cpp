#include "layers/decoder_layer.h"

#include <utility>

#include "base/overloaded.h"

namespace moeflux {
namespace {

std::variant<Moe, SwigluMlp> make_mlp(const MlpConfig& config, const Weights& weights) {
  using Mlp = std::variant<Moe, SwigluMlp>;
  return std::visit(overloaded{
                        [&](const MoeConfig& moe) -> Mlp { return Moe(moe, weights); },
                        [&](const DenseMlpConfig&) -> Mlp { return SwigluMlp(weights, "mlp"); },
                    },
                    config);
}

}  // namespace

DecoderLayer::DecoderLayer(const ModelConfig& config, LayerId layer, Mixer mixer, const Weights& weights)
    : layer_(layer),
      norm_eps_(static_cast<float>(config.norm_eps)),
      mixer_norm_(weights.vector("input_layernorm")),
      mlp_norm_(weights.vector("post_attention_layernorm")),
      mixer_(std::move(mixer)),
      mlp_(make_mlp(config.layers[layer.index()].mlp, weights)) {}

Result<DecoderLayer> DecoderLayer::create(const ModelConfig& config, LayerId layer, std::size_t rope,
                                          const Weights& weights) {
  MF_TRY(Mixer mixer,
         std::visit(overloaded{
                        [&](const GatedDeltaNetConfig& net) -> Result<Mixer> {
                          return Mixer(GatedDeltaNet(net, config.norm_eps, weights));
                        },
                        [&](const GatedAttentionConfig& attention) -> Result<Mixer> {
                          return Mixer(GatedAttention(attention, config.norm_eps, rope, weights));
                        },
                        [&](const MlaConfig& mla) -> Result<Mixer> {
                          MF_TRY(Mla made, Mla::create(mla, config.norm_eps, rope, weights));
                          return Mixer(std::move(made));
                        },
                    },
                    config.layers[layer.index()].mixer));
  return DecoderLayer(config, layer, std::move(mixer), weights);
}

void DecoderLayer::derive() {
  std::visit(overloaded{
                 [](GatedDeltaNet& net) { net.derive(); },
                 [](GatedAttention&) {},
                 [](Mla& mla) { mla.derive(); },
             },
             mixer_);
}

std::uint64_t DecoderLayer::derived_bytes() const {
  return std::visit(overloaded{
                        [](const GatedDeltaNet&) { return std::uint64_t{0}; },
                        [](const GatedAttention&) { return std::uint64_t{0}; },
                        [](const Mla& mla) { return mla.derived_bytes(); },
                    },
                    mixer_);
}

Status DecoderLayer::forward(const Step& step, Rows residual) const {
  Ops& ops = step.ops;
  const Ops::Scope scope(ops);
  const Rows normed = ops.take(step.rows, residual.cols);
  const Rows delta = ops.take(step.rows, residual.cols);

  {
    const Ops::Scope mixing(ops);
    const TraceSpan span(step.trace, "mixer", layer_.index());
    const Input x = ops.norm_and_prepare(residual, mixer_norm_, norm_eps_, Rounding::coarse, normed);
    observe(step, StepPoint::normed, layer_, normed);
    std::visit([&](const auto& mixer) { mixer.forward(step, layer_, x, delta); }, mixer_);
  }
  observe(step, StepPoint::mixed, layer_, delta);
  ops.add(residual, delta, residual);

  // Routers need fine rounding.
  const Input x = ops.norm_and_prepare(residual, mlp_norm_, norm_eps_, Rounding::fine, normed);
  observe(step, StepPoint::mlp_normed, layer_, normed);
  MF_TRY_STATUS(std::visit(overloaded{
                               [&](const Moe& moe) { return moe.forward(step, layer_, x, delta); },
                               [&](const SwigluMlp& mlp) {
                                 const TraceSpan span(step.trace, "mlp", layer_.index());
                                 mlp.forward(ops, x, delta);
                                 return Status();
                               },
                           },
                           mlp_));
  ops.add(residual, delta, residual);
  observe(step, StepPoint::residual, layer_, residual);
  return {};
}

}  // namespace moeflux
