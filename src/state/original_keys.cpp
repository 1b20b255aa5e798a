#include "state/original_keys.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <optional>

#include "model/rope.h"

namespace moeflux {
namespace {

// The original's powf, correctly rounded.
float power(float base, float exponent) {
  return static_cast<float>(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
}

float magnitude_of(float factor, float mscale) {
  return factor <= 1 ? 1.0f : 0.1f * mscale * std::log(factor) + 1.0f;
}

// The pair that makes `rotations` full turns within the context before YaRN.
float pair_turning(float rotations, const RopeConfig& config, const YarnConfig& yarn) {
  const float turns =
      static_cast<float>(yarn.original_positions) / (rotations * 2 * std::numbers::pi_v<float>);
  return static_cast<float>(config.dims) * std::log(turns) / (2 * std::log(static_cast<float>(config.theta)));
}

// From the original's rotation at a position to the model's.
class KeyTurn {
 public:
  explicit KeyTurn(const MlaConfig& config)
      : config_(config),
        original_(config.rope),
        rope_(config.rope),
        pairs_(std::min<std::size_t>(rope_.pairs(), config.rope_dim / 2)),
        undo_(original_.frequencies.size()),
        cos_(rope_.pairs()),
        sin_(rope_.pairs()),
        plain_(2 * pairs_) {}

  const MlaConfig& config() const { return config_; }

  void move_to(std::uint32_t position) {
    for (std::size_t i = 0; i < undo_.size(); ++i)  // the original's angle is a float32
      undo_[i] = cos_sin(static_cast<double>(static_cast<float>(position) * original_.frequencies[i]));
    rope_.fill(position, cos_, sin_);
  }

  // key: [rope_dim]
  void convert(float* key) {
    for (std::size_t i = 0; i < pairs_; ++i) {
      const double a = key[i], b = key[pairs_ + i];
      const auto [cos, sin] = undo_[i];
      plain_[i] = (a * cos + b * sin) / static_cast<double>(original_.magnitude);
      plain_[pairs_ + i] = (b * cos - a * sin) / static_cast<double>(original_.magnitude);
    }
    const bool interleaved = config_.rope.pairing == RopePairing::interleaved;
    for (std::size_t i = 0; i < pairs_; ++i) {
      const std::size_t first = interleaved ? 2 * i : i, second = interleaved ? 2 * i + 1 : pairs_ + i;
      const double a = plain_[first], b = plain_[second];
      const double cos = cos_[i], sin = sin_[i];
      key[first] = static_cast<float>(a * cos - b * sin);
      key[second] = static_cast<float>(a * sin + b * cos);
    }
  }

 private:
  const MlaConfig& config_;
  OriginalRope original_;
  Rope rope_;
  std::size_t pairs_;
  std::vector<CosSin> undo_;
  std::vector<float> cos_, sin_;
  std::vector<double> plain_;
};

}  // namespace

OriginalRope::OriginalRope(const RopeConfig& config) {
  const float theta = static_cast<float>(config.theta), dims = static_cast<float>(config.dims);
  for (std::uint32_t i = 0; i < config.dims / 2; ++i)
    frequencies.push_back(1.0f / power(theta, static_cast<float>(2 * i) / dims));
  if (!config.yarn) return;
  const YarnConfig& yarn = *config.yarn;
  const auto factor = static_cast<float>(yarn.factor);
  const float last = dims - 1;
  const float low =
      std::clamp(std::floor(pair_turning(static_cast<float>(yarn.beta_fast), config, yarn)), 0.0f, last);
  float high =
      std::clamp(std::ceil(pair_turning(static_cast<float>(yarn.beta_slow), config, yarn)), 0.0f, last);
  if (low == high) high += 0.001f;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const float slow = 1.0f / power(factor * theta, static_cast<float>(2 * i) / dims);
    const float ramp = std::clamp((static_cast<float>(i) - low) / (high - low), 0.0f, 1.0f);
    frequencies[i] = slow * ramp + frequencies[i] * (1 - ramp);
  }
  magnitude = magnitude_of(factor, static_cast<float>(yarn.mscale)) /
              magnitude_of(factor, static_cast<float>(yarn.mscale_all_dim));
}

void convert_original_keys(const ModelConfig& config, std::span<const std::vector<KvBlock>> blocks,
                           std::uint32_t positions) {
  // The layers of a model have the same rotation, so its angles are computed once per position.
  std::optional<KeyTurn> turn;
  for (std::uint32_t position = 0; position < positions; ++position) {
    if (turn) turn->move_to(position);
    for (std::size_t layer = 0; layer < config.layers.size(); ++layer) {
      const auto* mla = std::get_if<MlaConfig>(&config.layers[layer].mixer);
      if (mla == nullptr) continue;
      if (!turn || turn->config() != *mla) {
        turn.emplace(*mla);
        turn->move_to(position);
      }
      const std::size_t row = std::size_t{mla->latent_dim} + mla->rope_dim;
      turn->convert(blocks[layer][position / kKvBlockPositions].keys + position % kKvBlockPositions * row +
                    mla->latent_dim);
    }
  }
}

}  // namespace moeflux
