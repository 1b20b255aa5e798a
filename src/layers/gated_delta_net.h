#pragma once
// Linear attention by the gated delta rule: one state per value head, which every token decays, corrects and
// reads. Immutable once derived: thread-safe.

#include <vector>

#include "layers/step.h"
#include "layers/weights.h"
#include "model/config.h"

namespace moeflux {

class GatedDeltaNet {
 public:
  GatedDeltaNet(const GatedDeltaNetConfig& config, double norm_eps, const Weights& weights);

  // Call once, after the weights are loaded.
  void derive();

  // y = the layer's contribution to the residual. x: [rows][dim], normalized
  void forward(const Step& step, LayerId layer, const Input& x, Rows y) const;

 private:
  GatedDeltaNetConfig config_;
  float norm_eps_;
  TiledMatrix qkv_;                 // [conv_dim, dim]: queries, keys, values
  TiledMatrix gate_;                // [value_dim, dim]
  TiledMatrix decay_, beta_;        // [value_heads, dim]
  std::span<const float> conv_;     // [conv_dim][conv_width]
  std::span<const float> a_log_;    // [value_heads]
  std::vector<float> rate_;         // [value_heads]: -exp(A_log), filled by derive()
  std::span<const float> dt_bias_;  // [value_heads]
  std::span<const float> norm_;     // [value_head_dim]
  TiledMatrix out_;                 // [dim, value_dim]
};

}  // namespace moeflux
