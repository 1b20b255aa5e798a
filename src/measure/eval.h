#pragma once
// Compares a packed model with another implementation that ran the same weights.
//
// A Golden is the output of that implementation, as plain values; read_golden() checks its sizes against the
// model. evaluate() feeds the prompt in chunks and the greedy ids one by one. It compares row by row and
// holds the logits of one chunk at a time. A number that is not finite, on either side, counts as an infinite
// error.
//
// Chunks, batches, threads and kernels change no bit of the logits, and logits_xxh3 shows it. One thread at a
// time.

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
  std::vector<std::uint32_t> experts;   // [positions][experts_per_token]
};

struct Golden {
  std::vector<TokenId> input;  // the prompt, at least one token
  // Positions of the prompt that have a row in `logits`: at least one, ascending.
  std::vector<std::uint32_t> logit_positions;
  std::vector<float> logits;         // [logit_positions][vocabulary]
  std::vector<TokenId> greedy;       // the continuation; may be empty
  std::vector<float> greedy_logits;  // [greedy][vocabulary], after each greedy id; or empty
  // [layers + 1][positions][dim], or empty: the embeddings, then the output of each layer; that of the last
  // layer is after the final norm.
  std::vector<float> hidden_states;
  std::vector<GoldenRouter> routers;  // one per layer, or empty
};

struct EvalOptions {
  std::uint32_t chunk = 0;  // positions of the prompt per step; 0: all
  // Sessions per step: the golden's, and others beside it on rotations of the same prompt. Requires:
  // EngineOptions::step_rows >= chunk * batch.
  std::uint32_t batch = 1;
  bool layers = false;  // also compare each layer on the golden's own input
};

struct LayerErrors {
  LayerId layer{0};
  double max_hidden_error = 0;
  // Absent if the golden has no choices of the router. An expert that only one side chose has weight 0 on the
  // other side.
  std::optional<bool> router_ids_equal;
  std::optional<double> max_router_weight_error;
};

struct EvalResult {
  // Over the golden's rows, including those of the greedy ids.
  double max_logit_error = 0;
  double mean_logit_error = 0;
  double top1_agreement = 0;  // fraction of rows whose largest logit is the golden's
  // Whether the model would have chosen every greedy id itself; absent: the golden has none.
  std::optional<bool> greedy_match;
  std::uint64_t positions = 0;  // compared positions of the prompt
  // Hash of all rows, compared or not: the prompt's rows first, then the greedy ids' rows, as little-endian
  // float32.
  Digest logits_xxh3;
  std::vector<LayerErrors> layers;  // empty unless EvalOptions::layers

  bool is_finite() const;  // every number above
};

// Requires: the golden fits the engine's model. `layers` without hidden states is invalid_argument. Also
// fails like Engine::step, for example with context_full if prompt and greedy ids are longer than the
// context.
Result<EvalResult> evaluate(Engine& engine, const Golden& golden, const EvalOptions& options = {});

}  // namespace moeflux
