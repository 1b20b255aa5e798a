#pragma once
// Replaces the routers' choices of experts.
//
// Speed depends on which experts a row visits, not on what they compute. Benchmarks therefore replace the
// choices (measure/routing_source.h): with generated ones, so that a measurement does not depend on a prompt,
// or with recorded ones. The logits of such a step are meaningless.
//
// Called on the thread that runs the step: once per step for each layer with a router, in ascending order of
// layers.

#include <cstdint>
#include <span>

#include "base/ids.h"

namespace moeflux {

class RoutingOverride {
 public:
  RoutingOverride() = default;
  virtual ~RoutingOverride() = default;
  RoutingOverride(const RoutingOverride&) = delete;
  RoutingOverride& operator=(const RoutingOverride&) = delete;

  // Replaces the router's choices for all rows of the batch, or keeps them. Must not allocate: it runs in the
  // token loop.
  //   chosen: [rows][experts_per_token]; before and after the call, ids below `experts`, ascending and
  //           distinct within a row
  //   weights: the same shape; weights[k] belongs to chosen[k]
  virtual void choose(LayerId layer, std::uint32_t experts, std::uint32_t experts_per_token,
                      std::span<std::uint32_t> chosen, std::span<float> weights) = 0;
};

}  // namespace moeflux
