// law.h, sixteen numbers at a time. Included after one of the lanes_*.h; no include guard, because a kernel file
// includes it once.

namespace moeflux {
namespace {

// load_first and store_first for rows that are mostly whole groups, for which masks are slower than a branch.
MF_LANES Lanes load_up_to(const float* from, std::size_t count) {
  return count < law::kLanes ? load_first(from, count) : load(from);
}
MF_LANES void store_up_to(float* to, Lanes a, std::size_t count) {
  if (count < law::kLanes) {
    store_first(to, a, count);
  } else {
    store(to, a);
  }
}

MF_LANES Lanes lanes_larger(Lanes a, Lanes b) { return select(greater(a, b), a, b); }

MF_LANES law::CodeScale lanes_byte_scale(const float* x, std::size_t n) {
  Lanes largest = broadcast(0.0f), nothing = broadcast(0.0f);
  for (std::size_t i = 0; i < n; i += law::kLanes) {
    const Lanes size = magnitude(load_up_to(x + i, n - i));
    largest = lanes_larger(size, largest);
    nothing = nothing + (size - size);  // zeros, or not a number
  }
  return law::code_scale_of(fold_largest(largest), fold_add(nothing) == 0, law::kByteSteps);
}

// law::to_bytes; adds the codes to `sum`.
MF_LANES float lanes_to_bytes(const float* x, std::size_t n, std::int8_t* codes, Ints& sum) {
  const law::CodeScale by = lanes_byte_scale(x, n);
  const Lanes inverse = broadcast(by.inverse);
  for (std::size_t i = 0; i < n; i += law::kLanes) {
    const Ints code = round_to_int(by.inverse != 0 ? load_up_to(x + i, n - i) * inverse : broadcast(0.0f));
    sum = sum + code;
    std::int8_t some[law::kLanes];
    store_bytes(some, code);
    __builtin_memcpy(codes + i, some, n - i < law::kLanes ? n - i : law::kLanes);
  }
  return by.scale;
}

MF_LANES Lanes lanes_exp(Lanes x) {
  const Lanes lowest = broadcast(law::kExpLowest), highest = broadcast(law::kExpHighest);
  Lanes clamped = select(less(x, lowest), lowest, x);
  clamped = select(greater(clamped, highest), highest, clamped);
  const Lanes to_integer = broadcast(law::kRoundToInteger);
  const Lanes n = fma(clamped, broadcast(law::kLog2E), to_integer) - to_integer;
  Lanes r = fma(n, broadcast(-law::kLn2High), clamped);
  r = fma(n, broadcast(-law::kLn2Low), r);
  Lanes sum = broadcast(1.0f / 5040);
  sum = fma(sum, r, broadcast(1.0f / 720));
  sum = fma(sum, r, broadcast(1.0f / 120));
  sum = fma(sum, r, broadcast(1.0f / 24));
  sum = fma(sum, r, broadcast(1.0f / 6));
  sum = fma(sum, r, broadcast(0.5f));
  sum = fma(sum, r, broadcast(1.0f));
  sum = fma(sum, r, broadcast(1.0f));
  const Ints exponent = to_int(n);
  const Ints half = shift_right_signed<1>(exponent);
  const Ints bias = broadcast(std::int32_t{127});
  const Lanes first = as_float(shift_left<23>(half + bias));
  const Lanes second = as_float(shift_left<23>(exponent - half + bias));
  return select(not_a_number(x), x, sum * first * second);
}

MF_LANES Lanes lanes_log(Lanes x) {
  const Ints bits = as_int(x);
  const Ints exponent = shift_right_signed<23>(bits - broadcast(law::kSqrtHalfBits));
  const Lanes m = as_float(bits - shift_left<23>(exponent));
  const Lanes e = to_float(exponent);
  const Lanes one = broadcast(1.0f);
  const Lanes s = (m - one) / (m + one);
  const Lanes z = s * s;
  Lanes series = broadcast(1.0f / 11);
  series = fma(series, z, broadcast(1.0f / 9));
  series = fma(series, z, broadcast(1.0f / 7));
  series = fma(series, z, broadcast(1.0f / 5));
  series = fma(series, z, broadcast(1.0f / 3));
  const Lanes twice = s + s;
  const Lanes log_m = fma(twice * z, series, twice);
  return fma(e, broadcast(law::kLn2High), fma(e, broadcast(law::kLn2Low), log_m));
}

MF_LANES Lanes lanes_log1p(Lanes u) {
  const Lanes one = broadcast(1.0f);
  const Lanes w = one + u;
  const Lanes lost = u - (w - one);
  return lanes_log(w) + lost / w;
}

MF_LANES Lanes lanes_sigmoid(Lanes x) {
  const Lanes one = broadcast(1.0f);
  return one / (one + lanes_exp(negated(x)));
}
MF_LANES Lanes lanes_silu(Lanes x) { return x / (broadcast(1.0f) + lanes_exp(negated(x))); }
MF_LANES Lanes lanes_softplus(Lanes x) {
  return lanes_larger(x, broadcast(0.0f)) + lanes_log1p(lanes_exp(negated(magnitude(x))));
}

}  // namespace
}  // namespace moeflux
