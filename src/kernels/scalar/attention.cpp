// The specification of attention, in plain loops.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/law.h"
#include "kernels/scalar_tables.h"
#include "quant/kv_dtype.h"

namespace moeflux {
namespace {

void attend_one(const AttendArgs& args, std::uint32_t query) {
  const std::uint32_t visible = args.visible[query];
  float p[kAttentionBlock];
  for (std::uint32_t j = 0; j < visible; ++j)
    p[j] = law::dot(args.queries + query * args.query_stride, args.keys + j * args.key_stride, args.key_dim) *
           args.scale;
  const law::SoftmaxPartial partial = law::softmax_block(p, visible);
  args.max[query] = partial.max;
  args.sum[query] = partial.sum;

  float* const out = args.out + query * args.out_stride;
  for (std::uint32_t c = 0; c < args.value_dim; ++c) {
    float sum = 0.0f;
    for (std::uint32_t j = 0; j < visible; ++j)
      sum = std::fma(p[j], args.values[j * args.value_stride + c], sum);
    out[c] = sum;
  }
}

void attend(const AttendArgs& args) noexcept {
  for (std::uint32_t query = 0; query < args.count; ++query) attend_one(args, query);
}

// NOLINTNEXTLINE(bugprone-easily-swappable-parameters): the three parts of a result, in the order of attend()
void merge(float* running_max, float* running_sum, float* running_out, float block_max, float block_sum,
           const float* block_out, std::uint32_t value_dim) noexcept {
  const float max = law::larger(*running_max, block_max);
  const float a = law::exp(*running_max - max);
  const float b = law::exp(block_max - max);
  *running_max = max;
  *running_sum = std::fma(*running_sum, a, block_sum * b);
  for (std::uint32_t c = 0; c < value_dim; ++c)
    running_out[c] = std::fma(running_out[c], a, block_out[c] * b);
}

void finish(const float* out, float sum, std::uint32_t value_dim, float* y) noexcept {
  for (std::uint32_t c = 0; c < value_dim; ++c) y[c] = out[c] / sum;
}

void narrow_bf16(const float* x, std::uint32_t n, float* row) noexcept {
  auto* const to = reinterpret_cast<std::byte*>(row);
  for (std::uint32_t i = 0; i < n; ++i) {
    const std::uint16_t half = law::bf16_bits(x[i]);
    std::memcpy(to + i * sizeof half, &half, sizeof half);
  }
}

void widen_bf16(const float* row, std::uint32_t n, float* y) noexcept {
  const auto* const from = reinterpret_cast<const std::byte*>(row);
  for (std::uint32_t i = 0; i < n; ++i) {
    std::uint16_t half;
    std::memcpy(&half, from + i * sizeof half, sizeof half);
    y[i] = std::bit_cast<float>(std::uint32_t{half} << 16);
  }
}

void narrow_int8(const float* x, std::uint32_t n, float* row) noexcept {
  auto* const codes = reinterpret_cast<std::int8_t*>(row);
  for (std::uint32_t first = 0; first < n; first += kKvGroup) {
    const std::uint32_t end = std::min(n, first + kKvGroup);
    row[kv_code_words(n) + first / kKvGroup] = law::to_bytes(x + first, end - first, codes + first);
  }
}

void widen_int8(const float* row, std::uint32_t n, float* y) noexcept {
  const auto* const codes = reinterpret_cast<const std::int8_t*>(row);
  for (std::uint32_t i = 0; i < n; ++i)
    y[i] = row[kv_code_words(n) + i / kKvGroup] * static_cast<float>(codes[i]);
}

}  // namespace

const AttentionKernels kScalarAttention = {.attend = attend,
                                           .merge = merge,
                                           .finish = finish,
                                           .narrow_bf16 = narrow_bf16,
                                           .widen_bf16 = widen_bf16,
                                           .narrow_int8 = narrow_int8,
                                           .widen_int8 = widen_int8};

}  // namespace moeflux
