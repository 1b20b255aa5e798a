// The operations on rows, sixteen numbers at a time. Included by the kernels of each ISA after lanes_*.h and
// lanes_math.inl; rows_scalar.cpp says what they compute.

namespace moeflux {
namespace {

constexpr std::size_t kWidth = law::kLanes;

// Reads a group of lanes of any row: a whole one, or the rest of the row.
struct WholeGroup {
  std::size_t at;
  Lanes operator()(const float* row) const { return load(row + at); }
};
struct LastGroup {
  std::size_t at, count;
  Lanes operator()(const float* row) const { return load_first(row + at, count); }
};

// y = of(group), group after group. A row that `of` reads may be y: a group is written after it is read.
template <class Of>
MF_LANES void each(std::uint32_t n, float* y, Of of) {
  std::size_t i = 0;
  for (; i + kWidth <= n; i += kWidth) store(y + i, of(WholeGroup{i}));
  if (i < n) store_first(y + i, of(LastGroup{i, n - i}), n - i);
}

MF_LANES float sum_of_squares(const float* x, std::uint32_t n) {
  Lanes sum = broadcast(0.0f);
  std::size_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    const Lanes group = load(x + i);
    sum = fma(group, group, sum);
  }
  if (i < n) {
    const Lanes group = load_first(x + i, n - i);
    sum = fma(group, group, sum);
  }
  return fold_add(sum);
}

MF_LANES float rms_inverse(const float* x, std::uint32_t n, float eps) {
  return 1.0f / square_root(sum_of_squares(x, n) / static_cast<float>(n) + eps);
}

void rms_norm(const float* x, const float* weight, std::uint32_t n, float eps, float* y) noexcept {
  const Lanes inverse = broadcast(rms_inverse(x, n, eps));
  each(n, y, [=](auto at) { return at(x) * inverse * at(weight); });
}

void gated_rms_norm(const float* x, const float* weight, const float* gate, std::uint32_t n, float eps,
                    float* y) noexcept {
  const Lanes inverse = broadcast(rms_inverse(x, n, eps));
  each(n, y, [=](auto at) { return at(x) * inverse * at(weight) * lanes_silu(at(gate)); });
}

void l2_norm(const float* x, std::uint32_t n, float eps, float scale, float* y) noexcept {
  const Lanes inverse = broadcast(1.0f / square_root(sum_of_squares(x, n) + eps));
  const Lanes scales = broadcast(scale);
  each(n, y, [=](auto at) { return at(x) * inverse * scales; });
}

void add(const float* x, const float* a, std::uint32_t n, float* y) noexcept {
  each(n, y, [=](auto at) { return at(x) + at(a); });
}

void add_scaled(const float* x, const float* a, float scale, std::uint32_t n, float* y) noexcept {
  const Lanes scales = broadcast(scale);
  each(n, y, [=](auto at) { return fma(scales, at(a), at(x)); });
}

void swiglu(const float* both, std::uint32_t n, float* y) noexcept {
  for (std::size_t i = 0; i < n; i += kWidth, both += 2 * kWidth) {
    const std::size_t count = n - i < kWidth ? n - i : kWidth;
    store_up_to(y + i, lanes_silu(load_up_to(both, count)) * load_up_to(both + kWidth, count), count);
  }
}

void sigmoid_gate(const float* x, const float* gate, std::uint32_t n, float* y) noexcept {
  each(n, y, [=](auto at) { return at(x) * lanes_sigmoid(at(gate)); });
}

void sigmoid(const float* x, std::uint32_t n, float* y) noexcept {
  each(n, y, [=](auto at) { return lanes_sigmoid(at(x)); });
}

void exp_minus(const float* x, float shift, std::uint32_t n, float* y) noexcept {
  const Lanes shifts = broadcast(shift);
  each(n, y, [=](auto at) { return lanes_exp(at(x) - shifts); });
}

void rope_half(float* x, const float* cos, const float* sin, std::uint32_t n) noexcept {
  for (std::size_t i = 0; i < n; i += kWidth) {
    const std::size_t count = n - i < kWidth ? n - i : kWidth;
    const Lanes a = load_up_to(x + i, count), b = load_up_to(x + n + i, count);
    const Lanes c = load_up_to(cos + i, count), s = load_up_to(sin + i, count);
    store_up_to(x + i, a * c - b * s, count);
    store_up_to(x + n + i, a * s + b * c, count);
  }
}

// Of `count` channels, a b a b ...: a c - b s is a c + b (-s), and a s + b c is b c + a s.
MF_LANES void turn(float* x, Lanes c, Lanes s, std::size_t count) {
  const Lanes pairs = load_up_to(x, count);
  store_up_to(x, pairs * c + swap_neighbours(pairs) * negated_even(s), count);
}

void rope_interleaved(float* x, const float* cos, const float* sin, std::uint32_t n) noexcept {
  for (std::size_t i = 0; i < n; i += kWidth) {
    const std::size_t count = n - i < kWidth ? n - i : kWidth;
    const Lanes c = load_up_to(cos + i, count), s = load_up_to(sin + i, count);
    const std::size_t channels = 2 * count;
    turn(x + 2 * i, first_half_twice(c), first_half_twice(s), channels < kWidth ? channels : kWidth);
    if (channels > kWidth)
      turn(x + 2 * i + kWidth, second_half_twice(c), second_half_twice(s), channels - kWidth);
  }
}

constexpr RowKernels kRows = {
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

}  // namespace
}  // namespace moeflux
