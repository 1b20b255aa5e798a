#pragma once
// Rotary position embedding: the angle by which each pair of channels is rotated at each position.
//
// The angle of pair i at position p is p * frequency[i]. Frequencies are computed once, in double precision.
// Cosines and sines are computed for the rows of a step, in double precision by our own polynomial, and
// rounded once: the result is the same on every machine, and no table grows with the context. Immutable:
// thread-safe.

#include <cstdint>
#include <span>
#include <vector>

#include "model/config.h"

namespace moeflux {

class Rope {
 public:
  explicit Rope(const RopeConfig& config);

  std::uint32_t pairs() const { return static_cast<std::uint32_t>(frequencies_.size()); }
  std::span<const double> frequencies() const { return frequencies_; }

  // cos, sin: [pairs]. Both include YaRN's magnitude.
  void fill(std::uint32_t position, std::span<float> cos, std::span<float> sin) const;

 private:
  std::vector<double> frequencies_;
  double magnitude_ = 1;
};

// The factor of MLA's attention scores: 1 / sqrt(key size of a head), times the square of YaRN's magnitude
// for all dimensions (mscale_all_dim).
double mla_score_scale(const MlaConfig& config);

struct CosSin {
  double cos, sin;
};
// Within 1e-12 for angles up to 2^20, the longest context; only + - * / and fma of doubles.
CosSin cos_sin(double angle);

}  // namespace moeflux
