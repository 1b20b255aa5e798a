#pragma once
// The operations on rows, sixteen numbers at a time; scalar/rows.cpp is the specification.

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"
#include "kernels/vector/lanes.h"
#include "kernels/vector/lanes_math.h"

namespace moeflux::vector {
namespace {

template <class Isa>
struct Rows {
  using Lanes = LanesOf<Isa>;

  // Loads sixteen lanes of any row: a full vector, or the rest of the row.
  struct WholeGroup {
    std::size_t at;
    Lanes operator()(const float* row) const { return Isa::load(row + at); }
  };
  struct LastGroup {
    std::size_t at, count;
    Lanes operator()(const float* row) const { return Isa::load_first(row + at, count); }
  };

  // y = of(group) for each group of sixteen lanes. y may be a row that `of` reads: a group is written after
  // it is read.
  template <class Of>
  MF_INLINE void each(std::uint32_t n, float* y, Of of) {
    std::size_t i = 0;
    for (; i + kWidth <= n; i += kWidth) store(y + i, of(WholeGroup{i}));
    if (i < n) store_first(y + i, of(LastGroup{i, n - i}), n - i);
  }

  MF_INLINE float sum_of_squares(const float* x, std::uint32_t n) {
    Lanes sum = Isa::broadcast(0.0f);
    std::size_t i = 0;
    for (; i + kWidth <= n; i += kWidth) {
      const Lanes group = Isa::load(x + i);
      sum = fma(group, group, sum);
    }
    if (i < n) {
      const Lanes group = Isa::load_first(x + i, n - i);
      sum = fma(group, group, sum);
    }
    return fold_add(sum);
  }

  MF_INLINE float rms_inverse(const float* x, std::uint32_t n, float eps) {
    return 1.0f / Isa::square_root(sum_of_squares(x, n) / static_cast<float>(n) + eps);
  }

  static void rms_norm(const float* x, const float* weight, std::uint32_t n, float eps, float* y) noexcept {
    const Lanes inverse = Isa::broadcast(rms_inverse(x, n, eps));
    each(n, y, [=](auto at) { return at(x) * inverse * at(weight); });
  }

  static void gated_rms_norm(const float* x, const float* weight, const float* gate, std::uint32_t n,
                             float eps, float* y) noexcept {
    const Lanes inverse = Isa::broadcast(rms_inverse(x, n, eps));
    each(n, y, [=](auto at) { return at(x) * inverse * at(weight) * lanes_silu<Isa>(at(gate)); });
  }

  static void l2_norm(const float* x, std::uint32_t n, float eps, float scale, float* y) noexcept {
    const Lanes inverse = Isa::broadcast(1.0f / Isa::square_root(sum_of_squares(x, n) + eps));
    const Lanes scales = Isa::broadcast(scale);
    each(n, y, [=](auto at) { return at(x) * inverse * scales; });
  }

  static void add(const float* x, const float* a, std::uint32_t n, float* y) noexcept {
    each(n, y, [=](auto at) { return at(x) + at(a); });
  }

  static void add_scaled(const float* x, const float* a, float scale, std::uint32_t n, float* y) noexcept {
    const Lanes scales = Isa::broadcast(scale);
    each(n, y, [=](auto at) { return fma(scales, at(a), at(x)); });
  }

  static void swiglu(const float* both, std::uint32_t n, float* y) noexcept {
    for (std::size_t i = 0; i < n; i += kWidth, both += 2 * kWidth) {
      const std::size_t count = n - i < kWidth ? n - i : kWidth;
      store_up_to(y + i,
                  lanes_silu<Isa>(load_up_to<Isa>(both, count)) * load_up_to<Isa>(both + kWidth, count),
                  count);
    }
  }

  static void sigmoid_gate(const float* x, const float* gate, std::uint32_t n, float* y) noexcept {
    each(n, y, [=](auto at) { return at(x) * lanes_sigmoid<Isa>(at(gate)); });
  }

  static void sigmoid(const float* x, std::uint32_t n, float* y) noexcept {
    each(n, y, [=](auto at) { return lanes_sigmoid<Isa>(at(x)); });
  }

  static void exp_minus(const float* x, float shift, std::uint32_t n, float* y) noexcept {
    const Lanes shifts = Isa::broadcast(shift);
    each(n, y, [=](auto at) { return lanes_exp<Isa>(at(x) - shifts); });
  }

  static void rope_half(float* x, const float* cos, const float* sin, std::uint32_t n) noexcept {
    for (std::size_t i = 0; i < n; i += kWidth) {
      const std::size_t count = n - i < kWidth ? n - i : kWidth;
      const Lanes a = load_up_to<Isa>(x + i, count), b = load_up_to<Isa>(x + n + i, count);
      const Lanes c = load_up_to<Isa>(cos + i, count), s = load_up_to<Isa>(sin + i, count);
      store_up_to(x + i, a * c - b * s, count);
      store_up_to(x + n + i, a * s + b * c, count);
    }
  }

  // Rotates `count` channels a b a b ...: a c - b s is a c + b (-s), and a s + b c is b c + a s.
  MF_INLINE void turn(float* x, Lanes c, Lanes s, std::size_t count) {
    const Lanes pairs = load_up_to<Isa>(x, count);
    store_up_to(x, pairs * c + swap_neighbors(pairs) * negated_even(s), count);
  }

  static void rope_interleaved(float* x, const float* cos, const float* sin, std::uint32_t n) noexcept {
    for (std::size_t i = 0; i < n; i += kWidth) {
      const std::size_t count = n - i < kWidth ? n - i : kWidth;
      const Lanes c = load_up_to<Isa>(cos + i, count), s = load_up_to<Isa>(sin + i, count);
      const std::size_t channels = 2 * count;
      turn(x + 2 * i, first_half_twice(c), first_half_twice(s), channels < kWidth ? channels : kWidth);
      if (channels > kWidth)
        turn(x + 2 * i + kWidth, second_half_twice(c), second_half_twice(s), channels - kWidth);
    }
  }

  static constexpr RowKernels kTable = {
      .rms_norm = rms_norm,
      .gated_rms_norm = gated_rms_norm,
      .l2_norm = l2_norm,
      .add = add,
      .add_scaled = add_scaled,
      .swiglu = swiglu,
      .sigmoid_gate = sigmoid_gate,
      .sigmoid = sigmoid,
      .exp_minus = exp_minus,
      .rope_half = rope_half,
      .rope_interleaved = rope_interleaved,
  };
};

}  // namespace
}  // namespace moeflux::vector
