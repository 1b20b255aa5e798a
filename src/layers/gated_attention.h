#pragma once
// Softmax attention with normalized queries and keys and a sigmoid gate on its output. Immutable:
// thread-safe.

#include "layers/step.h"
#include "layers/weights.h"
#include "model/config.h"

namespace moeflux {

class GatedAttention {
 public:
  // `rope`: the index of its table in Step::rope.
  GatedAttention(const GatedAttentionConfig& config, double norm_eps, std::size_t rope,
                 const Weights& weights);

  // y = the layer's contribution to the residual. x: [rows][dim], normalized
  void forward(const Step& step, LayerId layer, const Input& x, Rows y) const;

 private:
  GatedAttentionConfig config_;
  float norm_eps_;
  std::size_t rope_;
  TiledMatrix query_gate_;   // [heads * 2 * head_dim, dim]: per head its query, then its gate
  TiledMatrix key_, value_;  // [kv_heads * head_dim, dim]
  std::span<const float> query_norm_, key_norm_;  // [head_dim]
  TiledMatrix out_;                               // [dim, heads * head_dim]
};

}  // namespace moeflux
