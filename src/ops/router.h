#pragma once
// From a router's logits to the experts of one token and their weights.
//
// Two rules. Both write the chosen experts in ascending order, so that the caller adds them up in one order,
// and break ties in favor of the lower id. Nothing here allocates; all memory is the caller's. A logit that
// is not finite comes from a broken model and is not a contract violation: the functions return false, and
// the outputs are then indeterminate. Pure functions, thread-safe.

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/kernel_table.h"

namespace moeflux {

// Chooses the k = ids.size() largest logits; the weights are the softmax over the chosen ones:
//   weight = exp(logit - largest logit) / sum, where the sum is over ascending ids.
//   logits: [experts]   scratch: [experts] or more   ids, weights: [k], 1 <= k <= experts
bool choose_softmax(const RowKernels& kernels, std::span<const float> logits, std::span<float> scratch,
                    std::span<std::uint32_t> ids, std::span<float> weights);

// DeepSeek's "noaux_tc": GroupedSigmoidRouterConfig of model/config.h, which this layer does not see, with
// the scale in the precision of the arithmetic.
struct GroupedChoice {
  std::uint32_t groups = 1;  // of neighboring experts, all of the same size
  std::uint32_t groups_kept = 1;
  bool normalise = true;  // divide weights by their sum
  float scale = 1;        // then multiply them by this
};

constexpr std::size_t grouped_scratch(std::size_t experts) { return 3 * experts; }

// With s = sigmoid(logit) and c = s + bias: keeps the groups whose two largest c have the largest sum, and
// chooses the k experts of these groups with the largest c. A group of one expert counts with its c alone.
//   weight = s, divided by (sum over ascending ids + 1e-20) if `normalise`, times scale
//   logits, bias: [experts]   scratch: [grouped_scratch(experts)] or more
//   ids, weights: [k], 1 <= k <= experts of the kept groups
// Returns false if a logit or a bias is not finite.
bool choose_grouped_sigmoid(const RowKernels& kernels, const GroupedChoice& choice,
                            std::span<const float> logits, std::span<const float> bias,
                            std::span<float> scratch, std::span<std::uint32_t> ids, std::span<float> weights);

}  // namespace moeflux
