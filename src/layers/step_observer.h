#pragma once
// Shows the activations of a step while it runs; for evaluation, tests and tools.
//
// Activations are copied out only if a step has an observer. An observer sees the rows of the whole batch, in
// order and without gaps: [rows][cols]. An observer changes no bit unless it replaces a residual on purpose.
// Called on the thread that runs the step.

#include <cstdint>
#include <span>
#include <string_view>

#include "base/ids.h"

namespace moeflux {

enum class StepPoint {
  embedding,      // the rows of embed_tokens (layer 0)
  normed,         // a layer's input after its first norm
  mixed,          // what the mixer adds to the residual
  mlp_normed,     // the MLP's input
  router_logits,  // [rows][experts]
  routed,         // the sum of the routed experts
  shared,         // the shared expert's output, before its gate
  shared_gate,    // [rows][1]: the gate's score, before the sigmoid; only of shared experts with a gate
  residual,       // after the layer
  final_norm,     // the input of the output head: the rows whose logits are wanted
};
std::string_view name_of(StepPoint point);

class StepObserver {
 public:
  virtual ~StepObserver() = default;

  virtual void saw(StepPoint point, LayerId layer, std::span<const float> rows, std::uint32_t cols) = 0;
  // The routers' choices for all rows: [rows][experts_per_token] each, ids ascending within a row.
  virtual void chose(LayerId layer, std::span<const std::uint32_t> experts, std::span<const float> weights,
                     std::uint32_t experts_per_token) = 0;

  // Called before layer `layer` with its input in `rows`. To replace the input, changes `rows` and returns
  // true.
  virtual bool replace_residual(LayerId layer, std::span<float> rows, std::uint32_t cols) = 0;
};

}  // namespace moeflux
