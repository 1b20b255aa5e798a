#pragma once
// From a router's logits to the experts of one token and their weights.
//
// Two rules. Both write the chosen experts in ascending order, so that what comes after adds them up in one
// order, and break ties in favour of the lower id. Nothing here allocates; all memory is the caller's. A
// logit that is not finite comes from a broken model, not from a broken promise: the answer is false, and
// what was written means nothing. Pure functions: any thread.

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/kernel_table.h"

namespace moeflux {

// The k = ids.size() largest logits; weights are their softmax, over the chosen alone:
//   weight = exp(logit - largest logit) / sum, where the sum is over ascending ids.
//   logits: [experts]   scratch: [experts] or more   ids, weights: [k], 1 <= k <= experts
bool choose_softmax(const RowKernels& kernels, std::span<const float> logits, std::span<float> scratch,
                    std::span<std::uint32_t> ids, std::span<float> weights);

// DeepSeek's "noaux_tc".
struct GroupedChoice {
  std::uint32_t groups = 1;  // of equally many neighbouring experts
  std::uint32_t groups_kept = 1;
  bool normalise = true;  // weights are divided by their sum
  float scale = 1;        // and multiplied by this
};

constexpr std::size_t grouped_scratch(std::size_t experts) { return 3 * experts; }

// With s = sigmoid(logit) and c = s + bias: the groups whose two largest c have the largest sum are kept, and
// of their experts the k with the largest c are chosen. A group of one expert counts with its c alone.
//   weight = s, divided by (sum over ascending ids + 1e-20) where normalised, times scale
//   logits, bias: [experts]   scratch: [grouped_scratch(experts)] or more
//   ids, weights: [k], 1 <= k <= experts of the kept groups
// A bias that is not finite counts as such a logit.
bool choose_grouped_sigmoid(const RowKernels& kernels, const GroupedChoice& choice,
                            std::span<const float> logits, std::span<const float> bias,
                            std::span<float> scratch, std::span<std::uint32_t> ids, std::span<float> weights);

}  // namespace moeflux
