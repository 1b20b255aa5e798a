// The specification of attention over bytes, in plain loops.

#include "kernels/byte_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/arithmetic.h"
#include "kernels/law.h"
#include "kernels/scalar_tables.h"

namespace moeflux {
namespace {

void narrow_query(const float* x, std::uint32_t key_dim, float* query) noexcept {
  const std::uint32_t quads = divide_up(key_dim, 4u), groups = divide_up(key_dim, kKvGroup);
  auto* const codes = reinterpret_cast<std::int8_t*>(query);
  std::memset(codes, 0, std::size_t{quads} * 4);
  for (std::uint32_t group = 0; group < groups; ++group) {
    const std::uint32_t first = group * kKvGroup, end = std::min(key_dim, first + kKvGroup);
    query[quads + group] = law::to_bytes(x + first, end - first, codes + first);
    std::int32_t sum = 0;
    for (std::uint32_t i = first; i < end; ++i) sum += codes[i];
    const std::int32_t zero = static_cast<std::int32_t>(ByteBlockShape::kKeyZero) * sum;
    std::memcpy(&query[quads + groups + group], &zero, sizeof zero);
  }
}

void open(const ByteBlockShape& shape, const StoredBytes& keys, const StoredBytes& values, std::uint32_t rows,
          std::byte* block) noexcept {
  auto* const key_scales = reinterpret_cast<float*>(block + shape.key_scales_at());
  for (std::uint32_t j = 0; j < divide_up(rows, 16u) * 16; ++j) {
    const bool exists = j < rows;
    for (std::uint32_t c = 0; c < shape.quads() * 4; ++c) {
      const int key = exists && c < shape.key_dim ? keys.codes[j * keys.stride * sizeof(float) + c] : 0;
      block[shape.keys_at(j, c / 4) + std::size_t{j % ByteBlockShape::kTilePositions} * 4 + c % 4] =
          static_cast<std::byte>(key + static_cast<int>(ByteBlockShape::kKeyZero));
    }
    for (std::uint32_t group = 0; group < shape.key_groups(); ++group)
      key_scales[group * kAttentionBlock + j] = exists ? keys.scales[j * keys.stride + group] : 0.0f;
  }
  auto* const value_scales = reinterpret_cast<float*>(block + shape.value_scales_at());
  for (std::uint32_t group = 0; group < shape.value_groups(); ++group) {
    auto* const to = reinterpret_cast<std::int8_t*>(block + shape.values_at(group));
    const std::uint32_t channels = shape.group_channels(group);
    for (std::uint32_t j = 0; j < divide_up(rows, 2u) * 2; ++j)
      for (std::uint32_t i = 0; i < channels; ++i) {
        const std::uint32_t c = group * kKvGroup + i;
        const bool exists = j < rows && c < shape.value_dim;
        to[(std::size_t{j / 2} * channels + i) * 2 + j % 2] =
            exists ? values.codes[j * values.stride * sizeof(float) + c] : std::int8_t{0};
      }
    for (std::uint32_t j = 0; j < divide_up(rows, 16u) * 16; ++j)
      value_scales[group * kAttentionBlock + j] = j < rows ? values.scales[j * values.stride + group] : 0.0f;
  }
}

float score(const ByteAttendArgs& args, const float* query, std::uint32_t j) {
  const ByteBlockShape& shape = args.shape;
  const auto* const codes = reinterpret_cast<const std::int8_t*>(query);
  const float* const scales = query + shape.quads();
  const auto* const key_scales = reinterpret_cast<const float*>(args.block + shape.key_scales_at());
  float acc = 0;
  for (std::uint32_t group = 0; group < shape.key_groups(); ++group) {
    std::int32_t dot = 0;
    for (std::uint32_t c = group * kKvGroup; c < std::min(shape.key_dim, (group + 1) * kKvGroup); ++c) {
      const std::byte key =
          args.block[shape.keys_at(j, c / 4) + std::size_t{j % ByteBlockShape::kTilePositions} * 4 + c % 4];
      dot += codes[c] * (std::to_integer<int>(key) - static_cast<int>(ByteBlockShape::kKeyZero));
    }
    acc = std::fma(scales[group] * key_scales[group * kAttentionBlock + j], static_cast<float>(dot), acc);
  }
  return acc * args.scale;
}

void attend_one(const ByteAttendArgs& args, std::uint32_t query) {
  const ByteBlockShape& shape = args.shape;
  float p[kAttentionBlock];
  for (std::uint32_t j = 0; j < args.visible; ++j)
    p[j] = score(args, args.queries + query * args.query_stride, j);
  const law::SoftmaxPartial partial = law::softmax_block(p, args.visible);
  args.max[query] = partial.max;
  args.sum[query] = partial.sum;

  float* const out = args.out + query * args.out_stride;
  const auto* const value_scales = reinterpret_cast<const float*>(args.block + shape.value_scales_at());
  for (std::uint32_t group = 0; group < shape.value_groups(); ++group) {
    float w[kAttentionBlock];
    for (std::uint32_t j = 0; j < args.visible; ++j) w[j] = p[j] * value_scales[group * kAttentionBlock + j];
    const auto [scale, inverse] = law::code_scale(w, args.visible, law::kMaxWordCode);
    const auto* const values = reinterpret_cast<const std::int8_t*>(args.block + shape.values_at(group));
    const std::uint32_t channels = shape.group_channels(group);
    for (std::uint32_t i = 0; i < std::min(kKvGroup, shape.value_dim - group * kKvGroup); ++i) {
      std::int32_t sum = 0;
      for (std::uint32_t j = 0; j < args.visible; ++j) {
        const auto code = inverse != 0 ? static_cast<std::int32_t>(std::rint(w[j] * inverse)) : 0;
        sum += code * values[(std::size_t{j / 2} * channels + i) * 2 + j % 2];
      }
      out[group * kKvGroup + i] = scale * static_cast<float>(sum);
    }
  }
}

void attend(const ByteAttendArgs& args) noexcept {
  for (std::uint32_t query = 0; query < args.count; ++query) attend_one(args, query);
}

}  // namespace

const ByteAttentionKernels kScalarByteAttention = {
    .narrow_query = narrow_query, .open = open, .attend = attend};

}  // namespace moeflux
