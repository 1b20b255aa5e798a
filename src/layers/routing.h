#pragma once
// Who decides which experts a row visits, when the router does not.
//
// Speed depends on which experts are wanted, not on what they compute: benchmarks put choices of their own
// here (measure/routing.h), so that they do not depend on a prompt, or can be those of another day. Choices
// that are not the router's make the logits meaningless.
//
// Called on the thread that runs the step, once a layer with a router and step, layers ascending.

#include <cstdint>
#include <span>

#include "base/ids.h"

namespace moeflux {

class Routing {
 public:
  Routing() = default;
  virtual ~Routing() = default;
  Routing(const Routing&) = delete;
  Routing& operator=(const Routing&) = delete;

  // Replaces the router's choices of all rows of the batch, or leaves them.
  //   chosen: [rows][experts_per_token], ids below `experts`, ascending in a row and no two the same; so they
  //           are when it returns
  //   weights: the same shape; the k-th weight belongs to the k-th id
  // Allocates nothing: it is part of the token loop.
  virtual void choose(LayerId layer, std::uint32_t experts, std::uint32_t experts_per_token,
                      std::span<std::uint32_t> chosen, std::span<float> weights) = 0;
};

}  // namespace moeflux
