#pragma once
// Attention over keys and values that are kept as bytes (KvNumbers::int8), where the precision is `fast`: products of integers.
//
// By the law, for one query and a block of 256 positions, of which it sees the first n:
//   the query is bytes in groups of 64 channels, as x of Int8Kernels::quantize; keys and values are such bytes as they are
//   D[j][g]  = the sum of query[c] key[j][c] over the channels of group g, an exact integer
//   s[j]     = acc * scale, where acc = fma(query scale[g] * key scale[j][g], D[j][g], acc), g ascending from zero
//   max, p, sum: as in AttendArgs
//   w[j]     = p[j] * value scale[j][g], for each group g of 64 value channels; as words: m is the largest of them,
//              code = w * (32767 / m), rounded to the nearest integer, ties to even; zeros where m < law::kLeastCoded; where
//              a w is not finite, out of the group is NaN
//   out[c]   = (m / 32767) * the sum of code[j] value[j][c], an exact integer below 2^31
//
// A byte for w would not do: beside one position that counts much, all that count less than 1 / 254 of it would vanish, and
// they can be many.
//
// Keys are multiplied four channels at a time with sixteen positions side by side, values two positions at a time with
// sixteen channels side by side. So a block is opened, which is to lay it out that way, once for all queries that see it.
// Plain values and functions of them, always inline: kernels of every instruction set use them. Any thread.

#include <cstddef>
#include <cstdint>

#include "base/kv_numbers.h"
#include "kernels/kernel_table.h"

namespace moeflux {

// An opened block, in bytes from its beginning, which is at a multiple of 64:
//   keys          [256 / 64][quads][64 positions][4 channels]: key + 128, unsigned; channels that do not exist are 128
//   key scales    [groups][256] float32
//   values        [groups][256 / 2 pairs][channels of the group, a multiple of 16][2 positions]
//   value scales  [groups][256] float32
// Of keys and of all scales positions up to a multiple of 16 are there, and of values up to one of 2: what does not exist is
// zero (a key: 128). What lies beyond is indeterminate.
struct ByteBlockShape {
  std::uint32_t key_dim = 0, value_dim = 0;

  static constexpr std::uint32_t kTilePositions = 64;
  static constexpr std::uint32_t kPairs = kAttentionBlock / 2;
  static constexpr std::uint32_t kKeyZero = 128;  // what is added to a key

  [[gnu::always_inline]] constexpr std::uint32_t quads() const { return (key_dim + 3) / 4; }
  [[gnu::always_inline]] constexpr std::uint32_t key_groups() const {
    return (key_dim + kKvGroup - 1) / kKvGroup;
  }
  [[gnu::always_inline]] constexpr std::uint32_t value_groups() const {
    return (value_dim + kKvGroup - 1) / kKvGroup;
  }
  // Channels of a group of values that have a place.
  [[gnu::always_inline]] constexpr std::uint32_t group_channels(std::uint32_t group) const {
    const std::uint32_t left = value_dim - group * kKvGroup;
    return left < kKvGroup ? (left + 15) / 16 * 16 : kKvGroup;
  }

  // The quad `quad` of the 64 positions among which `position` is.
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

// Rows of bytes as they are kept (base/kv_numbers.h), one a position.
struct KeptBytes {
  const std::int8_t* codes = nullptr;
  const float* scales = nullptr;
  std::uint64_t stride = 0;  // in floats, of both
};

// Memory that is read soon, and is not in the caches.
struct Stretch {
  const std::byte* begin = nullptr;
  std::size_t size = 0;
};

// A query as bytes: codes, four a word; then a scale a group; then kKeyZero times the sum of its codes a group, as int32.
[[gnu::always_inline]] constexpr std::uint32_t byte_query_words(std::uint32_t key_dim) {
  return (key_dim + 3) / 4 + 2 * ((key_dim + kKvGroup - 1) / kKvGroup);
}

struct ByteAttendArgs {
  ByteBlockShape shape;
  const std::byte* block = nullptr;  // opened, with `visible` positions at least
  const float* queries = nullptr;    // [count][byte_query_words]
  std::uint64_t query_stride = 0;    // in floats
  std::uint32_t count = 0;
  std::uint32_t visible = 0;  // 1..256: the first so many positions
  float scale = 0;
  Stretch next[2] = {};  // asked for meanwhile: keys and values of the block that is opened next

  float* max = nullptr;  // [count]
  float* sum = nullptr;  // [count]
  float* out = nullptr;  // [count][value_dim]
  std::uint64_t out_stride = 0;
};

struct ByteAttentionKernels {
  void (*narrow_query)(const float* x, std::uint32_t key_dim, float* query) noexcept;
  // The first `rows` positions, 1..256.
  void (*open)(const ByteBlockShape& shape, const KeptBytes& keys, const KeptBytes& values,
               std::uint32_t rows, std::byte* block) noexcept;
  void (*attend)(const ByteAttendArgs&) noexcept;
};

}  // namespace moeflux
