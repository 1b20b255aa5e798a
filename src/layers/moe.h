#pragma once
// A mixture of experts: a router chooses a few experts for every row, and a shared expert, if there is one,
// processes all rows. Expert-major: each expert runs once, on all rows of the batch that chose it.
//
// The law adds a row's experts in groups, in ascending order of their ids, then the shared expert. Usually
// every expert's output is kept and added later, so experts may arrive in any order. A step that sweeps()
// fetches them in ascending order and adds each output at once. Immutable: thread-safe.

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/arithmetic.h"
#include "layers/step.h"
#include "layers/swiglu_mlp.h"
#include "layers/weights.h"
#include "model/config.h"

namespace moeflux {

// From this many choices per expert on, 98 % of a layer's experts and more are chosen.
inline constexpr std::uint32_t kSweepChoicesPerExpert = 4;

// How many experts of a layer a row chooses. `limit`: EngineOptions::experts_per_token.
inline std::uint32_t choices_per_row(const MoeConfig& moe, std::uint32_t limit) {
  return limit == 0 ? moe.experts_per_token : std::min(moe.experts_per_token, limit);
}
// The smallest step, in rows, that takes nearly all experts of a layer.
inline std::uint32_t sweeping_rows(const MoeConfig& moe, std::uint32_t limit) {
  return divide_up(kSweepChoicesPerExpert * moe.experts, choices_per_row(moe, limit));
}
inline bool sweeps(const MoeConfig& moe, std::uint32_t rows, std::uint32_t limit) {
  return rows >= sweeping_rows(moe, limit);
}

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

    // Its hidden rows, and `score` if it has a gate. `router`: another product that shares x, or null.
    Input hidden(Ops& ops, const Input& x, Rows score, const Product* router = nullptr) const;
  };

  // Fills `choices` by the router's logits. Returns false if no segment is left that has not failed.
  bool choose(const Step& step, LayerId layer, Rows logits, Choices& choices) const;
  static bool fail_segments(const Step& step, LayerId layer, Choices& choices);
  // `beside`: a product that runs beside the first visits, or null.
  Status visit_any_order(const Step& step, Fetch& fetch, const Choices& choices, const Input& x,
                         const OwnProduct* beside, Rows y) const;
  Status visit_ascending(const Step& step, Fetch& fetch, const Choices& choices, const Input& x,
                         Rows y) const;

  MoeConfig config_;
  RouterRule rule_;
  TiledMatrix router_;  // [experts, dim]
  std::optional<Shared> shared_;
};

}  // namespace moeflux
