#pragma once
// Linear attention by the gated delta rule: a state a value head, decayed, corrected and read by every token.
// Immutable: any thread.

#include <vector>

#include "layers/step.h"
#include "layers/weights.h"
#include "model/config.h"

namespace moeflux {

class GatedDeltaNet {
 public:
  GatedDeltaNet(const GatedDeltaNetConfig& config, double norm_eps, const Weights& weights);

  // Once the weights are there.
  void derive();

  // y = the layer's contribution to the residual. x: [rows][dim], normalised
  void forward(const Step& step, LayerId layer, const Input& x, Rows y) const;

 private:
  GatedDeltaNetConfig config_;
  float norm_eps_;
  TiledMatrix qkv_;                 // [conv_dim, dim]: queries, keys, values
  TiledMatrix gate_;                // [value_dim, dim]
  TiledMatrix decay_, beta_;        // [value_heads, dim]
  std::span<const float> conv_;     // [conv_dim][conv_width]
  std::span<const float> a_log_;    // [value_heads]
  std::vector<float> rate_;         // [value_heads]: -exp(A_log), once derived
  std::span<const float> dt_bias_;  // [value_heads]
  std::span<const float> norm_;     // [value_head_dim]
  TiledMatrix out_;                 // [dim, value_dim]
};

}  // namespace moeflux
