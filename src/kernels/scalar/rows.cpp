// The specification of every operation on rows, in plain loops.

#include <cmath>
#include <cstdint>

#include "kernels/law.h"
#include "kernels/scalar_tables.h"

namespace moeflux {
namespace {

float rms_inverse(const float* x, std::uint32_t n, float eps) {
  return 1.0f / std::sqrt(law::dot(x, x, n) / static_cast<float>(n) + eps);
}

void rms_norm(const float* x, const float* weight, std::uint32_t n, float eps, float* y) noexcept {
  const float inverse = rms_inverse(x, n, eps);
  for (std::uint32_t i = 0; i < n; ++i) y[i] = x[i] * inverse * weight[i];
}

void gated_rms_norm(const float* x, const float* weight, const float* gate, std::uint32_t n, float eps,
                    float* y) noexcept {
  const float inverse = rms_inverse(x, n, eps);
  for (std::uint32_t i = 0; i < n; ++i) y[i] = x[i] * inverse * weight[i] * law::silu(gate[i]);
}

void l2_norm(const float* x, std::uint32_t n, float eps, float scale, float* y) noexcept {
  const float inverse = 1.0f / std::sqrt(law::dot(x, x, n) + eps);
  for (std::uint32_t i = 0; i < n; ++i) y[i] = x[i] * inverse * scale;
}

void add(const float* x, const float* a, std::uint32_t n, float* y) noexcept {
  for (std::uint32_t i = 0; i < n; ++i) y[i] = x[i] + a[i];
}

void add_scaled(const float* x, const float* a, float scale, std::uint32_t n, float* y) noexcept {
  for (std::uint32_t i = 0; i < n; ++i) y[i] = std::fma(scale, a[i], x[i]);
}

void swiglu(const float* both, std::uint32_t n, float* y) noexcept {
  for (std::uint32_t i = 0; i < n; ++i) {
    const float* const gate = both + std::size_t{i} / law::kLanes * 2 * law::kLanes + i % law::kLanes;
    y[i] = law::silu(gate[0]) * gate[law::kLanes];
  }
}

void sigmoid_gate(const float* x, const float* gate, std::uint32_t n, float* y) noexcept {
  for (std::uint32_t i = 0; i < n; ++i) y[i] = x[i] * law::sigmoid(gate[i]);
}

void sigmoid(const float* x, std::uint32_t n, float* y) noexcept {
  for (std::uint32_t i = 0; i < n; ++i) y[i] = law::sigmoid(x[i]);
}

void exp_minus(const float* x, float shift, std::uint32_t n, float* y) noexcept {
  for (std::uint32_t i = 0; i < n; ++i) y[i] = law::exp(x[i] - shift);
}

void turn(float& first, float& second, float cos, float sin) {
  const float a = first, b = second;
  first = a * cos - b * sin;
  second = a * sin + b * cos;
}

void rope_half(float* x, const float* cos, const float* sin, std::uint32_t n) noexcept {
  for (std::uint64_t i = 0; i < n; ++i) turn(x[i], x[n + i], cos[i], sin[i]);
}

void rope_interleaved(float* x, const float* cos, const float* sin, std::uint32_t n) noexcept {
  for (std::uint64_t i = 0; i < n; ++i) turn(x[2 * i], x[2 * i + 1], cos[i], sin[i]);
}

}  // namespace

const RowKernels kScalarRows = {
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

}  // namespace moeflux
