#pragma once
// How near a packed model comes to what another implementation computed from the same weights.
//
// A Golden is that computation, as plain values; whoever reads its file compares the sizes with the model's.
// evaluate() feeds the prompt in chunks and the greedy ids one by one, compares row after row and keeps none:
// at any time it holds the logits of one chunk. A number that is not finite, on either side, is infinitely
// wrong.
//
// How the work is cut (EvalOptions, threads, kernels) changes no bit of the logits, and logits_xxh3 shows it.
// One thread at a time.

#include <cstdint>
#include <optional>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"
#include "base/result.h"
#include "engine/engine.h"

namespace moeflux {

// The choices of one layer's router at every position of the prompt, in any order within a row.
struct GoldenRouter {
  std::uint32_t experts_per_token = 0;  // 0: not recorded
  std::vector<float> weights;           // [positions][experts_per_token]
  std::vector<std::uint32_t> experts;   // the same
};

struct Golden {
  std::vector<TokenId> input;  // the prompt, at least one token
  // Positions of the prompt that `logits` has rows for: at least one, ascending.
  std::vector<std::uint32_t> logit_positions;
  std::vector<float> logits;         // [logit_positions][vocabulary]
  std::vector<TokenId> greedy;       // the continuation; may be empty
  std::vector<float> greedy_logits;  // [greedy][vocabulary], after each of them; or empty
  // [layers + 1][positions][dim], or empty: the embeddings, then what each layer left, but after the last one
  // what its rows are after the final norm.
  std::vector<float> hidden_states;
  std::vector<GoldenRouter> routers;  // one a layer, or empty
};

struct EvalOptions {
  std::uint32_t chunk = 0;  // positions of the prompt in a step; 0: all
  // Sessions in every step: the golden's, and others beside it over the same prompt, rotated.
  // EngineOptions::step_rows is at least chunk * batch.
  std::uint32_t batch = 1;
  bool layers = false;  // also compare layer by layer, each on the golden's own input
};

struct LayerErrors {
  LayerId layer{0};
  double max_hidden_error = 0;
  // Absent where the golden has no choices of a router. An expert that only one side chose has weight 0 on
  // the other.
  std::optional<bool> router_ids_equal;
  std::optional<double> max_router_weight_error;
};

struct EvalResult {
  // Over the golden's rows, those of the greedy ids included.
  double max_logit_error = 0;
  double mean_logit_error = 0;
  double top1_agreement = 0;  // the share of these rows whose largest logit is the golden's
  // Whether the model would have chosen every greedy id itself; absent: there are none.
  std::optional<bool> greedy_match;
  std::uint64_t positions = 0;  // of the prompt, compared
  // Of every row, compared or not: of the prompt, then of the greedy ids, as little-endian float32.
  Digest logits_xxh3;
  std::vector<LayerErrors> layers;  // empty unless asked for

  bool is_finite() const;  // every number of it
};

// The golden fits the engine's model. `layers` without hidden states is invalid_argument; otherwise the
// errors are those of Engine::step: context_full, for one, where prompt and greedy ids are longer than the
// context.
Result<EvalResult> evaluate(Engine& engine, const Golden& golden, const EvalOptions& options = {});

}  // namespace moeflux
