#pragma once
// law::softmax_block, sixteen scores at a time.

#include <cstddef>
#include <cstdint>

#include "kernels/vector/lanes.h"
#include "kernels/vector/lanes_math.h"

namespace moeflux::vector {
namespace {

// p = exp(p - max), for one query.
template <class Isa>
MF_INLINE void softmax_block(float* p, std::uint32_t visible, float* max_out, float* sum_out) {
  // Pads the last vector with scores whose exponentials are zero.
  for (std::uint32_t j = visible; j % kWidth != 0; ++j) p[j] = -__builtin_inff();

  auto largest = Isa::broadcast(-__builtin_inff());
  for (std::size_t j = 0; j < visible; j += kWidth) largest = larger(Isa::load(p + j), largest);
  float lanes[kWidth];
  store(lanes, largest);
  float max = lanes[0];
  for (std::size_t lane = 1; lane < kWidth; ++lane) max = lanes[lane] > max ? lanes[lane] : max;
  max = max + 0.0f;

  const auto shift = Isa::broadcast(max);
  auto sum = Isa::broadcast(0.0f);
  for (std::size_t j = 0; j < visible; j += kWidth) {
    const auto group = lanes_exp<Isa>(Isa::load(p + j) - shift);
    store(p + j, group);
    sum = sum + group;
  }
  *max_out = max;
  *sum_out = fold_add(sum);
}

}  // namespace
}  // namespace moeflux::vector
