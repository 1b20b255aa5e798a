#pragma once
// law.h, sixteen numbers at a time.

#include <cstddef>
#include <cstdint>

#include "kernels/law.h"
#include "kernels/vector/lanes.h"

namespace moeflux::vector {
namespace {

// load_first and store_first for rows that are mostly full vectors, where a branch is faster than a mask.
template <class Isa>
MF_INLINE LanesOf<Isa> load_up_to(const float* from, std::size_t count) {
  return count < law::kLanes ? Isa::load_first(from, count) : Isa::load(from);
}
template <class Lanes>
MF_INLINE void store_up_to(float* to, Lanes a, std::size_t count) {
  if (count < law::kLanes) {
    store_first(to, a, count);
  } else {
    store(to, a);
  }
}

template <class Isa>
MF_INLINE law::CodeScale lanes_byte_scale(const float* x, std::size_t n) {
  auto largest = Isa::broadcast(0.0f), non_finite = Isa::broadcast(0.0f);
  for (std::size_t i = 0; i < n; i += law::kLanes) {
    const auto size = magnitude(load_up_to<Isa>(x + i, n - i));
    largest = larger(size, largest);
    non_finite = non_finite + (size - size);  // 0, or NaN
  }
  return law::code_scale_of(fold_largest(largest), fold_add(non_finite) == 0, law::kMaxByteCode);
}

// law::to_bytes; adds the codes to `sum`.
template <class Isa>
MF_INLINE float lanes_to_bytes(const float* x, std::size_t n, std::int8_t* codes, IntsOf<Isa>& sum) {
  const law::CodeScale by = lanes_byte_scale<Isa>(x, n);
  const auto inverse = Isa::broadcast(by.inverse);
  for (std::size_t i = 0; i < n; i += law::kLanes) {
    const auto code =
        round_to_int(by.inverse != 0 ? load_up_to<Isa>(x + i, n - i) * inverse : Isa::broadcast(0.0f));
    sum = sum + code;
    std::int8_t some[law::kLanes];
    store_bytes(some, code);
    __builtin_memcpy(codes + i, some, n - i < law::kLanes ? n - i : law::kLanes);
  }
  return by.scale;
}

template <class Isa>
MF_INLINE LanesOf<Isa> lanes_exp(LanesOf<Isa> x) {
  const auto lowest = Isa::broadcast(law::kExpLowest), highest = Isa::broadcast(law::kExpHighest);
  auto clamped = select(less(x, lowest), lowest, x);
  clamped = select(greater(clamped, highest), highest, clamped);
  const auto to_integer = Isa::broadcast(law::kRoundToInteger);
  const auto n = fma(clamped, Isa::broadcast(law::kLog2E), to_integer) - to_integer;
  auto r = fma(n, Isa::broadcast(-law::kLn2High), clamped);
  r = fma(n, Isa::broadcast(-law::kLn2Low), r);
  auto sum = Isa::broadcast(1.0f / 5040);
  sum = fma(sum, r, Isa::broadcast(1.0f / 720));
  sum = fma(sum, r, Isa::broadcast(1.0f / 120));
  sum = fma(sum, r, Isa::broadcast(1.0f / 24));
  sum = fma(sum, r, Isa::broadcast(1.0f / 6));
  sum = fma(sum, r, Isa::broadcast(0.5f));
  sum = fma(sum, r, Isa::broadcast(1.0f));
  sum = fma(sum, r, Isa::broadcast(1.0f));
  const auto exponent = to_int(n);
  const auto half = shift_right_signed<1>(exponent);
  const auto bias = Isa::broadcast(std::int32_t{127});
  const auto first = as_float(shift_left<23>(half + bias));
  const auto second = as_float(shift_left<23>(exponent - half + bias));
  return select(not_a_number(x), x, sum * first * second);
}

template <class Isa>
MF_INLINE LanesOf<Isa> lanes_log(LanesOf<Isa> x) {
  const auto bits = as_int(x);
  const auto exponent = shift_right_signed<23>(bits - Isa::broadcast(law::kSqrtHalfBits));
  const auto m = as_float(bits - shift_left<23>(exponent));
  const auto e = to_float(exponent);
  const auto one = Isa::broadcast(1.0f);
  const auto s = (m - one) / (m + one);
  const auto z = s * s;
  auto series = Isa::broadcast(1.0f / 11);
  series = fma(series, z, Isa::broadcast(1.0f / 9));
  series = fma(series, z, Isa::broadcast(1.0f / 7));
  series = fma(series, z, Isa::broadcast(1.0f / 5));
  series = fma(series, z, Isa::broadcast(1.0f / 3));
  const auto twice = s + s;
  const auto log_m = fma(twice * z, series, twice);
  return fma(e, Isa::broadcast(law::kLn2High), fma(e, Isa::broadcast(law::kLn2Low), log_m));
}

template <class Isa>
MF_INLINE LanesOf<Isa> lanes_log1p(LanesOf<Isa> u) {
  const auto one = Isa::broadcast(1.0f);
  const auto w = one + u;
  const auto lost = u - (w - one);
  return lanes_log<Isa>(w) + lost / w;
}

template <class Isa>
MF_INLINE LanesOf<Isa> lanes_sigmoid(LanesOf<Isa> x) {
  const auto one = Isa::broadcast(1.0f);
  return one / (one + lanes_exp<Isa>(negated(x)));
}
template <class Isa>
MF_INLINE LanesOf<Isa> lanes_silu(LanesOf<Isa> x) {
  return x / (Isa::broadcast(1.0f) + lanes_exp<Isa>(negated(x)));
}
template <class Isa>
MF_INLINE LanesOf<Isa> lanes_softplus(LanesOf<Isa> x) {
  return larger(x, Isa::broadcast(0.0f)) + lanes_log1p<Isa>(lanes_exp<Isa>(negated(magnitude(x))));
}

}  // namespace
}  // namespace moeflux::vector
