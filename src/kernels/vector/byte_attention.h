#pragma once
// Attention over bytes, a tile of queries at a time; scalar/byte_attention.cpp is the specification.
//
// Sums are exact integers, so tiles are chosen for speed alone.

#include <cstddef>
#include <cstdint>

#include "kernels/byte_attention.h"
#include "kernels/law.h"
#include "kernels/vector/codes.h"
#include "kernels/vector/lanes.h"
#include "kernels/vector/lanes_math.h"
#include "kernels/vector/softmax.h"

namespace moeflux::vector {
namespace {
template <class Isa>
struct ByteAttention {
  using Lanes = LanesOf<Isa>;
  using Ints = IntsOf<Isa>;

  static constexpr unsigned kTileQueries = 4;

  // ---- A query -------------------------------------------------------------------------------------------

  static void narrow_query(const float* x, std::uint32_t key_dim, float* query) noexcept {
    const ByteBlockShape shape{key_dim, 0};
    auto* const codes = reinterpret_cast<std::int8_t*>(query);
    float* const scales = query + shape.quads();
    float* const zeros = scales + shape.key_groups();
    query[shape.quads() - 1] = 0;  // padding channels
    for (std::uint32_t group = 0; group < shape.key_groups(); ++group) {
      const std::size_t first = std::size_t{group} * kKvGroup;
      const std::size_t count = key_dim - first < kKvGroup ? key_dim - first : kKvGroup;
      Ints sum = Isa::broadcast(std::int32_t{0});
      scales[group] = lanes_to_bytes<Isa>(x + first, count, codes + first, sum);
      const auto zero = static_cast<std::int32_t>(fold_add(to_float(sum))) *
                        static_cast<std::int32_t>(ByteBlockShape::kKeyZero);
      __builtin_memcpy(zeros + group, &zero, sizeof zero);
    }
  }

  // ---- A block -------------------------------------------------------------------------------------------

  // Loads sixteen positions of 64 channels. Only `count` positions and `channels` channels exist. The others
  // become zero and are not read.
  MF_INLINE void load_positions(const StoredBytes& keys, std::size_t first, std::size_t channel,
                                std::size_t count, std::size_t channels, Ints (&unit)[kWidth]) {
    const std::size_t row_bytes = keys.stride * sizeof(float);
    const std::int8_t* rows = keys.codes + first * row_bytes + channel;
    if (count == kWidth && channels >= kUnitBytes) {
#pragma GCC unroll 16
      for (std::size_t r = 0; r < kWidth; ++r, rows += row_bytes)
        unit[r] = Isa::load_unit(reinterpret_cast<const std::byte*>(rows));
      return;
    }
    for (std::size_t r = 0; r < kWidth; ++r, rows += row_bytes) {
      std::byte some[kUnitBytes] = {};
      if (r < count) __builtin_memcpy(some, rows, channels < kUnitBytes ? channels : kUnitBytes);
      unit[r] = Isa::load_unit(some);
    }
  }

  static void open_keys(const ByteBlockShape& shape, const StoredBytes& keys, std::uint32_t rows,
                        std::byte* block) {
    constexpr std::uint32_t kQuadsOfUnit = kUnitBytes / 4;
    auto* const scales = reinterpret_cast<float*>(block + shape.key_scales_at());
    for (std::uint32_t j = 0; j < rows; j += kWidth) {
      const std::uint32_t count = rows - j < kWidth ? rows - j : kWidth;
      for (std::uint32_t quad = 0; quad < shape.quads(); quad += kQuadsOfUnit) {
        Ints unit[kWidth];
        load_positions(keys, j, quad * std::size_t{4}, count, shape.key_dim - quad * 4, unit);
        transpose(unit);
        const std::uint32_t quads = shape.quads() - quad;
        std::byte* const to =
            block + shape.keys_at(j, quad) + std::size_t{j % ByteBlockShape::kTilePositions} * 4;
#pragma GCC unroll 16
        for (std::uint32_t q = 0; q < kQuadsOfUnit; ++q)
          if (q < quads)
            store_unit(to + std::size_t{q} * ByteBlockShape::kTilePositions * 4,
                       unit[q] ^ every_byte<Isa, ByteBlockShape::kKeyZero>());
      }
      for (std::uint32_t group = 0; group < shape.key_groups(); ++group)
        for (std::uint32_t r = 0; r < kWidth; ++r)
          scales[group * kAttentionBlock + j + r] =
              r < count ? keys.scales[(j + r) * keys.stride + group] : 0.0f;
    }
  }

  static void open_values(const ByteBlockShape& shape, const StoredBytes& values, std::uint32_t rows,
                          std::byte* block) {
    const std::size_t row_bytes = values.stride * sizeof(float);
    for (std::uint32_t j = 0; j < rows; j += 2)
      for (std::uint32_t group = 0; group < shape.value_groups(); ++group) {
        const std::uint32_t channels = shape.group_channels(group);
        std::byte* const to = block + shape.values_at(group) + std::size_t{j / 2} * channels * 2;
        const std::size_t c = std::size_t{group} * kKvGroup;
        const std::size_t count = shape.value_dim - c < kKvGroup ? shape.value_dim - c : kKvGroup;
        const std::int8_t* const row = values.codes + j * row_bytes + c;
        if (count == kKvGroup && j + 1 < rows) {
          interleave(Isa::load_unit(reinterpret_cast<const std::byte*>(row)),
                     Isa::load_unit(reinterpret_cast<const std::byte*>(row + row_bytes)), to);
        } else {
          std::byte some[2][kKvGroup] = {}, both[2 * kKvGroup];
          __builtin_memcpy(some[0], row, count);
          if (j + 1 < rows) __builtin_memcpy(some[1], row + row_bytes, count);
          interleave(Isa::load_unit(some[0]), Isa::load_unit(some[1]), both);
          __builtin_memcpy(to, both, std::size_t{channels} * 2);
        }
      }
    auto* const scales = reinterpret_cast<float*>(block + shape.value_scales_at());
    for (std::uint32_t j = 0; j < (rows + kWidth - 1) / kWidth * kWidth; ++j)
      for (std::uint32_t group = 0; group < shape.value_groups(); ++group)
        scales[group * kAttentionBlock + j] = j < rows ? values.scales[j * values.stride + group] : 0.0f;
  }

  static void open(const ByteBlockShape& shape, const StoredBytes& keys, const StoredBytes& values,
                   std::uint32_t rows, std::byte* block) noexcept {
    open_keys(shape, keys, rows, block);
    open_values(shape, values, rows, block);
  }

  // ---- Attention -----------------------------------------------------------------------------------------

  // Prefetches the lines of the block that is opened next, spread over the work on this one.
  class Prefetcher {
   public:
    // Spreads the lines over `times` calls of step().
    [[gnu::always_inline]] Prefetcher(const MemoryRange (&next)[2], std::size_t times)
        : at_(next[0].begin),
          end_(next[0].begin + next[0].size),
          next_(next[1]),
          lines_(((next[0].size + next[1].size) / kUnitBytes + times) / times) {}

    [[gnu::always_inline]] void step() {
      for (std::size_t line = 0; line < lines_ && at_ != end_; ++line) {
        Isa::prefetch_l2(at_);
        at_ += kUnitBytes;
        if (at_ < end_) continue;
        at_ = next_.begin;
        end_ = next_.begin + next_.size;
        next_ = {};
      }
    }

   private:
    const std::byte *at_, *end_;
    MemoryRange next_;
    std::size_t lines_;  // per step
  };

  // The scores of 16 * Units positions from `first` on.
  template <unsigned Queries, unsigned Units>
  MF_INLINE void score_units(const ByteAttendArgs& args, const float* const (&query)[Queries],
                             std::uint32_t first, float (*p)[kAttentionBlock], Prefetcher& prefetcher) {
    const ByteBlockShape& shape = args.shape;
    const std::uint32_t quads = shape.quads(), groups = shape.key_groups();
    constexpr std::size_t kQuadBytes = std::size_t{ByteBlockShape::kTilePositions} * 4;
    const std::byte* keys =
        args.block + shape.keys_at(first, 0) + std::size_t{first % ByteBlockShape::kTilePositions} * 4;
    const auto* key_scales = reinterpret_cast<const float*>(args.block + shape.key_scales_at()) + first;
    for (std::uint32_t group = 0; group < groups; ++group, key_scales += kAttentionBlock) {
      Ints sum[Queries][Units];
#pragma GCC unroll 4
      for (unsigned q = 0; q < Queries; ++q)
#pragma GCC unroll 4
        for (unsigned u = 0; u < Units; ++u) sum[q][u] = Isa::broadcast(std::int32_t{0});
      const auto add_quad = [&](std::uint32_t at) __attribute__((always_inline)) {
        Ints key[Units];
#pragma GCC unroll 4
        for (unsigned u = 0; u < Units; ++u) key[u] = Isa::load_unit(keys + u * kUnitBytes);
        keys += kQuadBytes;
        prefetcher.step();
#pragma GCC unroll 4
        for (unsigned q = 0; q < Queries; ++q) {
          const Ints four = broadcast_four<Isa>(query[q] + at);
#pragma GCC unroll 4
          for (unsigned u = 0; u < Units; ++u) sum[q][u] = Isa::template dot4<8>(sum[q][u], key[u], four);
        }
      };
      constexpr std::uint32_t kGroupQuads = kKvGroup / 4;
      const std::uint32_t quad = group * kGroupQuads;
      if (quads - quad >= kGroupQuads) {
        // Unrolled: in a loop the compiler copies every sum twice per iteration.
#pragma GCC unroll 16
        for (std::uint32_t i = 0; i < kGroupQuads; ++i) add_quad(quad + i);
      } else {
        for (std::uint32_t at = quad; at < quads; ++at) add_quad(at);
      }
#pragma GCC unroll 4
      for (unsigned u = 0; u < Units; ++u) {
        const Lanes scales = Isa::load(key_scales + u * kWidth);
#pragma GCC unroll 4
        for (unsigned q = 0; q < Queries; ++q) {
          float* const to = p[q] + first + u * kWidth;
          const Lanes both = Isa::broadcast(query[q][quads + group]) * scales;
          const Lanes dot = to_float(sum[q][u] - broadcast_four<Isa>(query[q] + quads + groups + group));
          const Lanes acc = fma(both, dot, group == 0 ? Isa::broadcast(0.0f) : Isa::load(to));
          store(to, group + 1 == groups ? acc * Isa::broadcast(args.scale) : acc);
        }
      }
    }
  }

  // Quantizes p * scales of `visible` positions to words; returns the scale of a word.
  MF_INLINE float to_words(const float* p, const float* scales, std::uint32_t visible, std::int16_t* words) {
    alignas(64) float w[kAttentionBlock];
    Ints largest = Isa::broadcast(std::int32_t{0});
    for (std::size_t j = 0; j < visible; j += kWidth) {
      const Lanes some = load_up_to<Isa>(p + j, visible - j) * load_up_to<Isa>(scales + j, visible - j);
      store(w + j, some);
      // The bits of nonnegative floats are ordered like the floats, and those of infinity and NaN are the
      // largest.
      largest = larger(as_int(magnitude(some)), largest);
    }
    const std::int32_t bits = fold_largest(largest);
    float number;
    __builtin_memcpy(&number, &bits, sizeof number);
    const law::CodeScale by = law::code_scale_of(number, bits < 0x7f800000, law::kMaxWordCode);
    const Lanes inverse = Isa::broadcast(by.inverse);
    for (std::size_t j = 0; j < visible; j += kWidth)
      store_words(words + j, by.inverse != 0 ? round_to_int(Isa::load(w + j) * inverse)
                                             : Isa::broadcast(std::int32_t{0}));
    return by.scale;
  }

  // The values of sixteen channels at two positions.
  static constexpr std::size_t kPairBytes = 2 * kWidth;

  // 16 * Units channels. `values`: those of the first pair of positions, `stride` bytes from pair to pair.
  template <unsigned Queries, unsigned Units>
  MF_INLINE void mix_units(const std::byte* values, std::size_t stride, std::uint32_t pairs,
                           const std::int16_t (*words)[kAttentionBlock], Prefetcher& prefetcher,
                           Ints (&sum)[Queries][Units]) {
#pragma GCC unroll 4
    for (unsigned q = 0; q < Queries; ++q)
#pragma GCC unroll 4
      for (unsigned u = 0; u < Units; ++u) sum[q][u] = Isa::broadcast(std::int32_t{0});
#pragma GCC unroll 8
    for (std::uint32_t pair = 0; pair < pairs; ++pair, values += stride) {
      Ints value[Units];
#pragma GCC unroll 4
      for (unsigned u = 0; u < Units; ++u) value[u] = Isa::load_words(values + u * kPairBytes);
      prefetcher.step();
#pragma GCC unroll 4
      for (unsigned q = 0; q < Queries; ++q) {
        const Ints two = broadcast_four<Isa>(words[q] + std::size_t{2} * pair);
#pragma GCC unroll 4
        for (unsigned u = 0; u < Units; ++u) sum[q][u] = Isa::dot2(sum[q][u], value[u], two);
      }
    }
  }

  template <unsigned Queries>
  [[gnu::noinline]] static void attend_tile(const ByteAttendArgs& args, std::uint32_t first,
                                            Prefetcher& prefetcher) {
    const ByteBlockShape& shape = args.shape;
    const std::uint32_t visible = args.visible;
    const float* query[Queries];
    alignas(64) float p[Queries][kAttentionBlock];
    alignas(64) std::int16_t words[Queries][kAttentionBlock];
#pragma GCC unroll 4
    for (unsigned q = 0; q < Queries; ++q) query[q] = args.queries + (first + q) * args.query_stride;

    std::uint32_t j = 0;
    for (; j < visible && visible - j > (Isa::kAttentionUnits - 1) * kWidth;
         j += Isa::kAttentionUnits * kWidth)
      score_units<Queries, Isa::kAttentionUnits>(args, query, j, p, prefetcher);
    for (; j < visible; j += kWidth) score_units<Queries, 1>(args, query, j, p, prefetcher);
    for (unsigned q = 0; q < Queries; ++q)
      softmax_block<Isa>(p[q], visible, args.max + first + q, args.sum + first + q);

    const auto* scales = reinterpret_cast<const float*>(args.block + shape.value_scales_at());
    for (std::uint32_t group = 0; group < shape.value_groups(); ++group, scales += kAttentionBlock) {
      float step[Queries];
      for (unsigned q = 0; q < Queries; ++q) step[q] = to_words(p[q], scales, visible, words[q]);
      const std::size_t units = shape.group_channels(group) / kWidth;
      const std::size_t stride = units * kPairBytes;
      const auto mix = [&]<unsigned Units>(std::size_t unit) __attribute__((always_inline)) {
        Ints sum[Queries][Units];
        mix_units<Queries, Units>(args.block + shape.values_at(group) + unit * kPairBytes, stride,
                                  (visible + 1) / 2, words, prefetcher, sum);
#pragma GCC unroll 4
        for (unsigned u = 0; u < Units; ++u) {
          const std::size_t c = std::size_t{group} * kKvGroup + (unit + u) * kWidth;
#pragma GCC unroll 4
          for (unsigned q = 0; q < Queries; ++q)
            store_up_to(args.out + (first + q) * args.out_stride + c,
                        Isa::broadcast(step[q]) * to_float(sum[q][u]), shape.value_dim - c);
        }
      };
      std::size_t unit = 0;
      for (; unit + Isa::kAttentionUnits <= units; unit += Isa::kAttentionUnits)
        mix.template operator()<Isa::kAttentionUnits>(unit);
      if constexpr (Isa::kAttentionUnits > 1)
        for (; unit < units; ++unit) mix.template operator()<1>(unit);
    }
  }

  static void attend(const ByteAttendArgs& args) noexcept {
    if (args.count == 0) return;
    const std::size_t tiles = (args.count + kTileQueries - 1) / kTileQueries;
    const std::size_t turns = args.shape.quads() * ((args.visible + Isa::kAttentionUnits * kWidth - 1) /
                                                    (Isa::kAttentionUnits * kWidth)) +
                              args.shape.value_groups() * std::size_t{(args.visible + 1) / 2};
    Prefetcher prefetcher(args.next, tiles * turns);
    std::uint32_t first = 0;
    for (; first + kTileQueries <= args.count; first += kTileQueries)
      attend_tile<kTileQueries>(args, first, prefetcher);
    switch (args.count - first) {
      case 1: return attend_tile<1>(args, first, prefetcher);
      case 2: return attend_tile<2>(args, first, prefetcher);
      case 3: return attend_tile<3>(args, first, prefetcher);
      default: return;
    }
  }

  static constexpr ByteAttentionKernels kTable = {
      .narrow_query = narrow_query, .open = open, .attend = attend};
};

}  // namespace
}  // namespace moeflux::vector
