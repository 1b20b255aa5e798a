#pragma once
// down (silu(gate x) * up x): the MLP that every token visits, as a dense layer or as a shared expert. Immutable.

#include <string>

#include "layers/step.h"
#include "layers/weights.h"

namespace moeflux {

class SwigluMlp {
 public:
  // Its matrices are NAME.gate_proj, NAME.up_proj and NAME.down_proj.
  SwigluMlp(const Weights& weights, const std::string& name)
      : gate_(weights.matrix(name + ".gate_proj")),
        up_(weights.matrix(name + ".up_proj")),
        down_(weights.matrix(name + ".down_proj")) {}

  void forward(Ops& ops, const Input& x, Rows y) const {
    const Ops::Scope scope(ops);
    const auto hidden_dim = static_cast<std::uint32_t>(gate_.rows);
    const Rows gate = ops.take(x.x.count, hidden_dim);
    const Rows up = ops.take(x.x.count, hidden_dim);
    ops.matmul(gate_, x, gate);
    ops.matmul(up_, x, up);
    ops.swiglu(gate, up, gate);
    ops.matmul(down_, ops.prepare(gate), y);
  }

 private:
  TiledMatrix gate_, up_;  // [hidden, dim]
  TiledMatrix down_;       // [dim, hidden]
};

}  // namespace moeflux
