#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace moeflux {
namespace {

// YaRN's magnitude for a stretch by `factor`.
double magnitude_of(double factor, double mscale) {
  return factor > 1 ? 0.1 * mscale * std::log(factor) + 1 : 1.0;
}

// The channel pair that makes `rotations` full turns within the original context.
double pair_turning(double rotations, const RopeConfig& config, const YarnConfig& yarn) {
  return config.dims * std::log(yarn.original_positions / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(config.theta));
}

// Fast pairs keep their frequency, slow pairs are slowed down by `factor`, with a linear ramp between:
// frequency = theta^(-2i/d) * (1 - ramp) + theta^(-2i/d) / factor * ramp.
void stretch(std::vector<double>& frequencies, const RopeConfig& config, const YarnConfig& yarn) {
  const double low = std::max(std::floor(pair_turning(yarn.beta_fast, config, yarn)), 0.0);
  double high = std::min(std::ceil(pair_turning(yarn.beta_slow, config, yarn)), config.dims - 1.0);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / yarn.factor * ramp + frequencies[i] * (1 - ramp);
  }
}

}  // namespace

Rope::Rope(const RopeConfig& config) {
  for (std::uint32_t i = 0; i < config.dims / 2; ++i)
    frequencies_.push_back(std::pow(config.theta, -2.0 * i / config.dims));
  if (!config.yarn) return;
  const YarnConfig& yarn = *config.yarn;
  stretch(frequencies_, config, yarn);
  magnitude_ = yarn.mscale != 0 && yarn.mscale_all_dim != 0
                   ? magnitude_of(yarn.factor, yarn.mscale) / magnitude_of(yarn.factor, yarn.mscale_all_dim)
                   : magnitude_of(yarn.factor, 1);
}

void Rope::fill(std::uint32_t position, std::span<float> cos, std::span<float> sin) const {
  MF_REQUIRE(cos.size() == frequencies_.size() && sin.size() == frequencies_.size(), "one angle per pair");
  for (std::size_t i = 0; i < frequencies_.size(); ++i) {
    const CosSin turned = cos_sin(position * frequencies_[i]);
    cos[i] = static_cast<float>(turned.cos * magnitude_);
    sin[i] = static_cast<float>(turned.sin * magnitude_);
  }
}

double mla_score_scale(const MlaConfig& config) {
  double scale = 1 / std::sqrt(static_cast<double>(config.nope_dim + config.rope_dim));
  if (const auto& yarn = config.rope.yarn; yarn && yarn->mscale_all_dim != 0) {
    const double magnitude = magnitude_of(yarn->factor, yarn->mscale_all_dim);
    scale *= magnitude * magnitude;
  }
  return scale;
}

// angle = n pi/2 + r with |r| <= pi/4, pi/2 in three parts, the first two of 33 bits; then the Taylor series
// to r^17, whose remainder is below 1e-17.
CosSin cos_sin(double angle) {
  constexpr double kHalfPiHigh = 0x1.921fb544p+0, kHalfPiMiddle = 0x1.0b4611a6p-34,
                   kHalfPiLow = 0x1.3198a2e037073p-69;
  const double n = std::nearbyint(angle * (2 / std::numbers::pi));
  double r = std::fma(n, -kHalfPiHigh, angle);
  r = std::fma(n, -kHalfPiMiddle, r);
  r = std::fma(n, -kHalfPiLow, r);
  const double z = r * r;
  double s = 1, c = 1;
  for (int k = 8; k >= 1; --k) s = std::fma(-z / ((2 * k) * (2 * k + 1)), s, 1.0);
  for (int k = 8; k >= 1; --k) c = std::fma(-z / ((2 * k - 1) * (2 * k)), c, 1.0);
  s *= r;
  switch (static_cast<std::int64_t>(n) & 3) {
    case 0: return {c, s};
    case 1: return {-s, c};
    case 2: return {-c, -s};
    default: return {s, -c};
  }
}

}  // namespace moeflux
