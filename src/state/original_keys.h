#pragma once
// Converts the rotated keys in the original's snapshots of latent attention (version 2).
//
// Both programs compute the same key, of `n` channels, and then rotate pairs of channels. The original
// rotated other pairs by other angles (docs/formats/snapshot.md):
//
//                 pairs                                 angle of pair i at position p
//   the original  channels i and i + n/2                p * g[i]
//   moeflux       config.rope.pairing, as in training   p * f[i]
//
// With YaRN g[i] is computed from 1 / (factor * theta)^(2i/n) where f[i] has 1 / (factor * theta^(2i/n)). The
// conversion reverses the first rotation and applies the second, in double precision. Pure functions: any
// thread.

#include <cstdint>
#include <span>
#include <vector>

#include "model/config.h"
#include "state/snapshot.h"

namespace moeflux {

// The rotation of the original: its frequencies with its float32 rounding, and the factor of its cosines and
// sines.
struct OriginalRope {
  explicit OriginalRope(const RopeConfig& config);
  std::vector<float> frequencies;
  float magnitude = 1;
};

// Converts the keys of all layers with latent attention in place. `blocks` are those of each layer, in
// float32, for `positions` positions.
void convert_original_keys(const ModelConfig& config, std::span<const std::vector<KvBlock>> blocks,
                           std::uint32_t positions);

}  // namespace moeflux
