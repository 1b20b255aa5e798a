#pragma once
// What the original computes for the rotated key of a latent attention layer, and where it differs from the
// model. Written from the original's formulas, in its order and in float32, independently of the code under
// test. Test code only.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/rope.h"

namespace moeflux {

// Its inverse frequencies: YaRN with the factor inside the power.
inline std::vector<float> original_frequencies(const RopeConfig& rope) {
  const auto dims = static_cast<float>(rope.dims), base = static_cast<float>(rope.theta);
  std::vector<float> extra, inter;
  const float factor = rope.yarn ? static_cast<float>(rope.yarn->factor) : 1.0f;
  for (std::uint32_t i = 0; i < rope.dims / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / dims;
    extra.push_back(1.0f / std::pow(base, exponent));
    inter.push_back(1.0f / std::pow(factor * base, exponent));
  }
  if (!rope.yarn) return extra;
  const auto correction = [&](double rotations) {
    const float two_pi = 2.0f * 3.14159265358979f;
    return dims *
           std::log(static_cast<float>(rope.yarn->original_positions) /
                    (static_cast<float>(rotations) * two_pi)) /
           (2.0f * std::log(base));
  };
  const float most = dims - 1;
  const float low = std::clamp(std::floor(correction(rope.yarn->beta_fast)), 0.0f, most);
  float high = std::clamp(std::ceil(correction(rope.yarn->beta_slow)), 0.0f, most);
  if (high == low) high = low + 0.001f;
  std::vector<float> mixed;
  for (std::size_t i = 0; i < extra.size(); ++i) {
    const float ramp = std::clamp((static_cast<float>(i) - low) / (high - low), 0.0f, 1.0f);
    const float kept = 1.0f - ramp;
    mixed.push_back(inter[i] * ramp + extra[i] * kept);
  }
  return mixed;
}

// Rotates channels i and i + n/2 by position * frequency, in place; cosines and sines have YaRN's magnitude.
inline void rotate_as_the_original(std::span<float> key, std::uint32_t position, const RopeConfig& rope) {
  const auto mscale = [&](double of) {
    const auto factor = static_cast<float>(rope.yarn->factor);
    return factor <= 1.0f ? 1.0f : 0.1f * static_cast<float>(of) * std::log(factor) + 1.0f;
  };
  const float magnitude = rope.yarn ? mscale(rope.yarn->mscale) / mscale(rope.yarn->mscale_all_dim) : 1.0f;
  const std::vector<float> frequencies = original_frequencies(rope);
  const std::size_t half = key.size() / 2;
  for (std::size_t i = 0; i < half; ++i) {
    const float angle = static_cast<float>(position) * frequencies[i];
    const float cos = std::cos(angle) * magnitude, sin = std::sin(angle) * magnitude;
    const float a = key[i], b = key[i + half];
    key[i] = a * cos - b * sin;
    key[i + half] = a * sin + b * cos;
  }
}

// Rotates a key as the model was trained with, in double precision; with `sign` -1 undoes it.
inline std::vector<double> rotated_as_in_training(std::span<const double> key, std::uint32_t position,
                                                  const RopeConfig& rope, int sign = 1) {
  const Rope angles(rope);
  double magnitude = 1;
  if (rope.yarn) {
    const auto mscale = [&](double of) { return 0.1 * of * std::log(rope.yarn->factor) + 1; };
    magnitude = mscale(rope.yarn->mscale) / mscale(rope.yarn->mscale_all_dim);
  }
  if (sign < 0) magnitude = 1 / magnitude;
  std::vector<double> turned(key.begin(), key.end());
  const std::size_t half = key.size() / 2;
  for (std::size_t i = 0; i < half; ++i) {
    const bool interleaved = rope.pairing == RopePairing::interleaved;
    const std::size_t first = interleaved ? 2 * i : i, second = interleaved ? 2 * i + 1 : i + half;
    const double angle = sign * (position * angles.frequencies()[i]);
    turned[first] = magnitude * (key[first] * std::cos(angle) - key[second] * std::sin(angle));
    turned[second] = magnitude * (key[first] * std::sin(angle) + key[second] * std::cos(angle));
  }
  return turned;
}

// How far an imported key may be from the exact one, for a key of length `norm`: a dozen roundings of
// float32, and an angle whose frequency is off by one float32 because two powf round differently.
inline double import_tolerance(double norm, std::uint32_t position) {
  return norm * (12 * 0x1p-24 + position * 0x1p-23);
}

}  // namespace moeflux
