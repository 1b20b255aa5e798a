#pragma once
// Rotary positions: which angle each pair of channels turns by at each position.
//
// The angle of pair i at position p is p * frequency[i]. Frequencies are made once, in double precision; cosines and
// sines are made for the rows of a step, in double precision by a polynomial of our own, and rounded once, so there is
// one result on every machine and no table whose size is the context. Immutable: any thread.

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

  // cos, sin: [pairs]. YaRN's magnitude is a factor of both.
  void fill(std::uint32_t position, std::span<float> cos, std::span<float> sin) const;

 private:
  std::vector<double> frequencies_;
  double magnitude_ = 1;
};

// What MLA's scores are multiplied by: 1 / sqrt(a head's key size), times the square of YaRN's magnitude for all
// dimensions.
double mla_score_scale(const MlaConfig& config);

struct CosSin {
  double cos, sin;
};
// Within 1e-12 for angles up to 2^20, the longest context; only + - * / and fma of doubles.
CosSin cos_sin(double angle);

}  // namespace moeflux
