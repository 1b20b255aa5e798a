#pragma once
// Attention over keys and values that are stored as bytes (KvDtype::int8), in the precision `fast`: integer
// products.
//
// The law for one query and a block of 256 positions, where the query sees the first n:
//   the query  is quantized to bytes in groups of 64 channels, as x of Int8Kernels::quantize; keys and values
//              already are such bytes
//   D[j][g]    = the sum of query[c] key[j][c] over the channels of group g, an exact integer
//   s[j]       = acc * scale, where acc = fma(query scale[g] * key scale[j][g], D[j][g], acc), g ascending
//              from zero
//   max, p, sum: as in AttendArgs
//   w[j]       = p[j] * value scale[j][g], for each group g of 64 value channels, quantized to words: with m
//              the largest w, code = w * (32767 / m), rounded to the nearest integer, ties to even; zeros if
//              m < law::kMinCoded; if a w is not finite, out of the group is NaN
//   out[c]     = (m / 32767) * the sum of code[j] value[j][c], an exact integer below 2^31
//
// A byte would be too coarse for w: beside one position with a large weight, all weights below 1 / 254 of it
// would become zero, and there can be many of them.
//
// Keys are multiplied four channels at a time with sixteen positions side by side, values two positions at a
// time with sixteen channels side by side. open() arranges a block that way, once for all queries that see
// it.

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"
#include "quant/kv_dtype.h"

namespace moeflux {

// An opened block, which is aligned to 64 bytes:
//   keys          [256 / 64][quads][64 positions][4 channels]: key + 128, unsigned; missing channels are 128
//   key scales    [groups][256] float32
//   values        [groups][256 / 2 pairs][channels of the group, a multiple of 16][2 positions]
//   value scales  [groups][256] float32
// Keys and all scales are padded to a multiple of 16 positions and values to a multiple of 2, with zeros
// (keys: 128). The rest is indeterminate.
struct ByteBlockShape {
  std::uint32_t key_dim = 0, value_dim = 0;

  static constexpr std::uint32_t kTilePositions = 64;
  static constexpr std::uint32_t kPairs = kAttentionBlock / 2;
  static constexpr std::uint32_t kKeyZero = 128;  // added to every key

  [[gnu::always_inline]] constexpr std::uint32_t quads() const { return (key_dim + 3) / 4; }
  [[gnu::always_inline]] constexpr std::uint32_t key_groups() const {
    return (key_dim + kKvGroup - 1) / kKvGroup;
  }
  [[gnu::always_inline]] constexpr std::uint32_t value_groups() const {
    return (value_dim + kKvGroup - 1) / kKvGroup;
  }
  // Channels of a group of values, with padding.
  [[gnu::always_inline]] constexpr std::uint32_t group_channels(std::uint32_t group) const {
    const std::uint32_t left = value_dim - group * kKvGroup;
    return left < kKvGroup ? (left + 15) / 16 * 16 : kKvGroup;
  }

  // Offset of quad `quad` of the 64 positions that include `position`.
  [[gnu::always_inline]] constexpr std::size_t keys_at(std::uint32_t position, std::uint32_t quad) const {
    return (std::size_t{position / kTilePositions} * quads() + quad) * kTilePositions * 4;
  }
  [[gnu::always_inline]] constexpr std::size_t key_scales_at() const {
    return std::size_t{kAttentionBlock} * quads() * 4;
  }
  [[gnu::always_inline]] constexpr std::size_t values_at(std::uint32_t group) const {
    return key_scales_at() + std::size_t{key_groups()} * kAttentionBlock * sizeof(float) +
           std::size_t{group} * kPairs * kKvGroup * 2;
  }
  [[gnu::always_inline]] constexpr std::size_t value_scales_at() const {
    const std::uint32_t last = value_groups() - 1;
    return values_at(last) + std::size_t{kPairs} * group_channels(last) * 2;
  }
  [[gnu::always_inline]] constexpr std::size_t bytes() const {
    return value_scales_at() + std::size_t{value_groups()} * kAttentionBlock * sizeof(float);
  }
};

// Stored rows of bytes (quant/kv_dtype.h), one per position.
struct StoredBytes {
  const std::int8_t* codes = nullptr;
  const float* scales = nullptr;
  std::uint64_t stride = 0;  // in floats, of codes and scales
};

// Memory that is read soon and is not in the caches.
struct MemoryRange {
  const std::byte* begin = nullptr;
  std::size_t size = 0;
};

// Words of a quantized query: codes, four per word; a scale per group; kKeyZero times the sum of its codes
// per group, as int32.
[[gnu::always_inline]] constexpr std::uint32_t byte_query_words(std::uint32_t key_dim) {
  return (key_dim + 3) / 4 + 2 * ((key_dim + kKvGroup - 1) / kKvGroup);
}

struct ByteAttendArgs {
  ByteBlockShape shape;
  const std::byte* block = nullptr;  // opened with at least `visible` positions
  const float* queries = nullptr;    // [count][byte_query_words]
  std::uint64_t query_stride = 0;    // in floats
  std::uint32_t count = 0;
  std::uint32_t visible = 0;  // 1..256 leading positions
  float scale = 0;
  MemoryRange next[2] = {};  // prefetched meanwhile: keys and values of the block that is opened next

  float* max = nullptr;  // [count]
  float* sum = nullptr;  // [count]
  float* out = nullptr;  // [count][value_dim]
  std::uint64_t out_stride = 0;
};

struct ByteAttentionKernels {
  void (*narrow_query)(const float* x, std::uint32_t key_dim, float* query) noexcept;
  // Arranges the first `rows` positions, 1..256, in `block`.
  void (*open)(const ByteBlockShape& shape, const StoredBytes& keys, const StoredBytes& values,
               std::uint32_t rows, std::byte* block) noexcept;
  void (*attend)(const ByteAttendArgs&) noexcept;
};

}  // namespace moeflux
