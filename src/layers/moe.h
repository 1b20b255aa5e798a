#pragma once
// A mixture of experts: a router chooses a few experts for every row, and a shared expert, if there is one,
// processes all rows. Expert-major: each expert runs once, on all rows of the batch that chose it.
//
// The law adds a row's experts in ascending order of their ids, then the shared expert. With few rows, every
// expert's output is kept and added later, so experts may arrive in any order. With many rows, experts are
// fetched in ascending order and each output is added at once. Immutable: thread-safe.

#include <optional>

#include "layers/step.h"
#include "layers/swiglu_mlp.h"
#include "layers/weights.h"
#include "model/config.h"

namespace moeflux {

// The largest batch, in rows, for which the outputs of all experts are kept.
inline constexpr std::uint32_t kFewRows = 32;

class Moe {
 public:
  Moe(const MoeConfig& config, const Weights& weights);

  // y = the layer's contribution to the residual. x: [rows][dim], normalized
  Status forward(const Step& step, LayerId layer, const Input& x, Rows y) const;

 private:
  struct Choices;
  struct Shared {
    SwigluMlp mlp;
    std::optional<TiledMatrix> gate;  // [1, dim]
  };

  Status route(const Step& step, LayerId layer, const RouterRule& rule, const Input& x,
               Choices& choices) const;
  Status visit_any_order(const Step& step, Fetch& fetch, const Choices& choices, const Input& x,
                         Rows y) const;
  Status visit_ascending(const Step& step, Fetch& fetch, const Choices& choices, const Input& x,
                         Rows y) const;

  MoeConfig config_;
  RouterRule rule_;
  TiledMatrix router_;  // [experts, dim]
  std::optional<Shared> shared_;
};

}  // namespace moeflux
