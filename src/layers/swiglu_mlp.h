#pragma once
// down (silu(gate x) * up x): a dense layer's MLP or a shared expert. Immutable: thread-safe.

#include <string>

#include "layers/step.h"
#include "layers/weights.h"

namespace moeflux {

class SwigluMlp {
 public:
  // Finds the matrices NAME.gate_proj, NAME.up_proj and NAME.down_proj.
  SwigluMlp(const Weights& weights, const std::string& name)
      : gate_(weights.matrix(name + ".gate_proj")),
        up_(weights.matrix(name + ".up_proj")),
        down_(weights.matrix(name + ".down_proj")) {}

  void forward(Ops& ops, const Input& x, Rows y) const { ops.mlp(gate_, up_, down_, x, y); }

 private:
  TiledMatrix gate_, up_;  // [hidden, dim]
  TiledMatrix down_;       // [dim, hidden]
};

}  // namespace moeflux
