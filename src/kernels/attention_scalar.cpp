// The specification of attention: plain loops, no tricks.

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/isa_tables.h"
#include "kernels/law.h"

namespace moeflux {
namespace {

void attend_one(const AttendArgs& args, std::uint32_t query) {
  const std::uint32_t visible = args.visible[query];
  float p[kAttentionBlock];
  float max = -std::numeric_limits<float>::infinity();
  for (std::uint32_t j = 0; j < visible; ++j) {
    p[j] = law::dot(args.queries + query * args.query_stride, args.keys + j * args.key_stride, args.key_dim) *
           args.scale;
    max = law::larger(p[j], max);
  }
  max = max + 0.0f;  // zeros of both signs are equal: which of them is met first must not matter

  float lanes[law::kLanes] = {};
  for (std::uint32_t j = 0; j < visible; ++j) {
    p[j] = law::exp(p[j] - max);
    lanes[j % law::kLanes] = lanes[j % law::kLanes] + p[j];
  }
  args.max[query] = max;
  args.sum[query] = law::fold_add(lanes);

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

}  // namespace

const AttentionKernels kScalarAttention = {.attend = attend, .merge = merge, .finish = finish};

}  // namespace moeflux
