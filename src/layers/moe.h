#pragma once
// A mixture of experts: a router chooses a few experts for every row, and an expert that all rows visit may stand
// beside them. Expert-major: the rows of the whole batch that chose an expert visit it together.
//
// By the law a row's experts are added in ascending order of their ids, then the shared expert. Few rows keep every
// expert's output and add later, so experts may come in any order; many rows take experts in ascending order and add
// at once. Immutable: any thread.

#include <optional>

#include "layers/step.h"
#include "layers/swiglu_mlp.h"
#include "layers/weights.h"
#include "model/config.h"

namespace moeflux {

// Batches of at most so many rows keep the outputs of all their experts.
inline constexpr std::uint32_t kFewRows = 32;

class Moe {
 public:
  Moe(const MoeConfig& config, const Weights& weights);

  // y = the layer's contribution to the residual. x: [rows][dim], normalised
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
