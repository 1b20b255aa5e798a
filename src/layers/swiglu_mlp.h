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
      : matrices_{weights.matrix(name + ".gate_proj"), weights.matrix(name + ".up_proj"),
                  weights.matrix(name + ".down_proj")} {}

  const MlpMatrices& matrices() const { return matrices_; }
  void forward(Ops& ops, const Input& x, Rows y) const { ops.mlp(matrices_, x, y); }

 private:
  MlpMatrices matrices_;
};

}  // namespace moeflux
