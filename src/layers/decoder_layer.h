#pragma once
// One layer of the model: h = h + mixer(norm(h)), then h = h + mlp(norm(h)). Immutable once derived:
// thread-safe.

#include <variant>

#include "layers/gated_attention.h"
#include "layers/gated_delta_net.h"
#include "layers/mla.h"
#include "layers/moe.h"
#include "layers/step.h"
#include "layers/swiglu_mlp.h"
#include "layers/weights.h"
#include "model/config.h"

namespace moeflux {

class DecoderLayer {
 public:
  // `rope`: the index of the mixer's table in Step::rope; unused by mixers without rope.
  static Result<DecoderLayer> create(const ModelConfig& config, LayerId layer, std::size_t rope,
                                     const Weights& weights);

  // Computes what the layer derives from its weights. Call it once, after the weights are loaded; before that
  // the layer can only be measured.
  void derive();
  // Bytes that derive() fills.
  std::uint64_t derived_bytes() const;

  // `residual`: [rows][dim], in and out.
  Status forward(const Step& step, Rows residual) const;

 private:
  using Mixer = std::variant<GatedDeltaNet, GatedAttention, Mla>;
  using Mlp = std::variant<Moe, SwigluMlp>;

  DecoderLayer(const ModelConfig& config, LayerId layer, Mixer mixer, const Weights& weights);

  LayerId layer_;
  float norm_eps_;
  std::span<const float> mixer_norm_, mlp_norm_;  // [dim]
  Mixer mixer_;
  Mlp mlp_;
};

}  // namespace moeflux
