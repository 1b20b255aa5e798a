#pragma once
// Attention, a tile of queries at a time; scalar/attention.cpp is the specification.
//
// A row of keys or values, once loaded, serves all queries of a tile, and then the other tiles. A tile with
// fewer queries or keys repeats its last one in scores: the same code computes the same bits again.

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"
#include "kernels/vector/lanes.h"
#include "kernels/vector/lanes_math.h"
#include "kernels/vector/softmax.h"
#include "quant/kv_dtype.h"

namespace moeflux::vector {
namespace {
template <class Isa>
struct Attention {
  using Lanes = LanesOf<Isa>;
  using Ints = IntsOf<Isa>;

  static constexpr unsigned kQueries = Isa::kFoldCols;
  // Tiles that use the same rows of keys or values while these are in the L1 cache.
  static constexpr unsigned kTiles = 4;
  // Positions whose values are added together, and positions that one tile adds before the next tile takes
  // its turn.
  static constexpr std::uint32_t kPositions = Isa::kFoldRows == 1 ? 2 : 4, kTurn = 8;

  struct Tile {
    const float* query[kQueries];
    float* out[kQueries];
    std::uint32_t visible[kQueries];
    unsigned count;  // of distinct queries
    std::uint32_t max_visible, min_visible;
    float p[kQueries][kAttentionBlock];  // scores, then their exponentials
  };

  static void begin_tile(const AttendArgs& args, std::uint32_t first, Tile& tile) {
    tile.count = args.count - first < kQueries ? args.count - first : kQueries;
    tile.max_visible = tile.min_visible = args.visible[first];
    for (unsigned q = 0; q < kQueries; ++q) {
      const std::size_t at = first + (q < tile.count ? q : tile.count - 1);
      tile.query[q] = args.queries + at * args.query_stride;
      tile.out[q] = args.out + at * args.out_stride;
      tile.visible[q] = args.visible[at];
      if (tile.visible[q] > tile.max_visible) tile.max_visible = tile.visible[q];
      if (tile.visible[q] < tile.min_visible) tile.min_visible = tile.visible[q];
    }
  }

  // Prefetches lines a fixed distance ahead of the rows in use, as many as are consumed meanwhile. Into the
  // L2 cache, which tracks more outstanding misses than the L1 cache; not further ahead and not faster,
  // because the processor drops prefetches when too many are in flight.
  //
  // Eight queries over 32,768 positions (bench/kernels_bench; memory at 33 GB/s, 25 when everything is
  // cached): 22 GB/s. Without prefetching it is 8, because lines so far apart are not recognized as a stream.
  // A whole block ahead: 14. Into the L1 cache: 10.
  class Prefetcher {
   public:
    // Prefetches nothing.
    Prefetcher() = default;

    // Rows [rows, end) are used next, and `next` after them (null: nothing); each is used by `tiles` tiles.
    [[gnu::always_inline]] Prefetcher(const float* rows, const float* end, const float* next, unsigned tiles)
        : at_(end - rows > kDistance ? rows + kDistance : next),
          end_(end - rows > kDistance ? end : nullptr),
          next_(next),
          lines_((Isa::kFoldRows + tiles - 1) / tiles) {}

    // The kernel now uses `floats` more floats.
    [[gnu::always_inline]] void advance(std::size_t floats) {
      left_ = at_ == nullptr ? 0 : left_ + static_cast<unsigned>(floats / kWidth);
    }
    [[gnu::always_inline]] void step() {
      for (unsigned line = 0; line < lines_ && left_ > 0; ++line, --left_) {
        Isa::prefetch_l2(at_);
        at_ += kWidth;
        if (at_ == end_) at_ = next_;
      }
    }

   private:
    static constexpr std::ptrdiff_t kDistance = 144 * kWidth;
    const float* at_ = nullptr;
    const float* end_ = nullptr;
    const float* next_ = nullptr;
    unsigned lines_ = 0;  // per step
    unsigned left_ = 0;
  };

  // The products of all queries of a tile with Isa::kFoldRows keys.
  MF_INLINE void score_keys(const Tile& tile, const float* const (&key)[Isa::kFoldRows], std::uint32_t dim,
                            float scale, float* scores, Prefetcher& prefetcher) {
    Lanes sum[Isa::kFoldRows][kQueries];
#pragma GCC unroll 4
    for (unsigned r = 0; r < Isa::kFoldRows; ++r)
#pragma GCC unroll 4
      for (unsigned q = 0; q < kQueries; ++q) sum[r][q] = Isa::broadcast(0.0f);

    std::size_t i = 0;
    for (; i + kWidth <= dim; i += kWidth) {
      Lanes query[kQueries];
#pragma GCC unroll 4
      for (unsigned q = 0; q < kQueries; ++q) query[q] = Isa::load(tile.query[q] + i);
      prefetcher.step();
#pragma GCC unroll 4
      for (unsigned r = 0; r < Isa::kFoldRows; ++r) {
        const Lanes group = Isa::load(key[r] + i);
#pragma GCC unroll 4
        for (unsigned q = 0; q < kQueries; ++q) sum[r][q] = fma(query[q], group, sum[r][q]);
      }
    }
    if (i < dim) {
#pragma GCC unroll 4
      for (unsigned r = 0; r < Isa::kFoldRows; ++r) {
        const Lanes group = Isa::load_first(key[r] + i, dim - i);
#pragma GCC unroll 4
        for (unsigned q = 0; q < kQueries; ++q)
          sum[r][q] = fma(Isa::load_first(tile.query[q] + i, dim - i), group, sum[r][q]);
      }
    }
    fold_add_tile(sum, scale, scores, kAttentionBlock);
  }

  // Scores up to the last position that any query sees. A query's own scores may end earlier; softmax_block()
  // overwrites what follows them.
  static void score(const AttendArgs& args, Tile* tiles, unsigned count, std::uint32_t most,
                    Prefetcher prefetcher) {
    for (std::uint32_t j = 0; j < most; j += Isa::kFoldRows) {
      const float* key[Isa::kFoldRows];
      for (unsigned r = 0; r < Isa::kFoldRows; ++r) {
        const std::size_t at = j + r < most ? j + r : most - 1;
        key[r] = args.keys + at * args.key_stride;
      }
      prefetcher.advance(Isa::kFoldRows * args.key_stride);
      for (unsigned t = 0; t < count; ++t)
        score_keys(tiles[t], key, args.key_dim, args.scale, &tiles[t].p[0][j], prefetcher);
    }
  }

  // Adds `Positions` positions from j on to `Queries` queries of the tile, from `first` on.
  //
  // Sums are read from the cache and written back, so that values are read sequentially and the exponentials
  // stay in registers. Keeping the sums in registers over all positions, for a few channels at a time, is as
  // fast when everything is cached (26 GB/s), and 17 GB/s from memory.
  template <unsigned Queries, unsigned Positions>
  MF_INLINE void add_values(const AttendArgs& args, const Tile& tile, unsigned first, std::uint32_t j,
                            Prefetcher& prefetcher) {
    Lanes p[Queries][Positions];
#pragma GCC unroll 4
    for (unsigned q = 0; q < Queries; ++q)
#pragma GCC unroll 4
      for (unsigned i = 0; i < Positions; ++i) p[q][i] = Isa::broadcast(tile.p[first + q][j + i]);
    const float* const values = args.values + j * args.value_stride;
    const auto add = [&](std::size_t at, auto load_some, auto store_some) __attribute__((always_inline)) {
      Lanes value[Positions];
#pragma GCC unroll 4
      for (unsigned i = 0; i < Positions; ++i) value[i] = load_some(values + i * args.value_stride + at);
#pragma GCC unroll 4
      for (unsigned q = 0; q < Queries; ++q) {
        float* const out = tile.out[first + q] + at;
        Lanes sum = load_some(out);
#pragma GCC unroll 4
        for (unsigned i = 0; i < Positions; ++i) sum = fma(p[q][i], value[i], sum);
        store_some(out, sum);
      }
    };
    std::size_t at = 0;
    for (; at + kWidth <= args.value_dim; at += kWidth) {
      prefetcher.step();
      add(
          at, [](const float* from) __attribute__((always_inline)) { return Isa::load(from); },
          [](float* to, Lanes sum) __attribute__((always_inline)) { store(to, sum); });
    }
    if (const std::size_t count = args.value_dim - at; count != 0)
      add(
          at, [&](const float* from) __attribute__((always_inline)) { return Isa::load_first(from, count); },
          [&](float* to, Lanes sum) __attribute__((always_inline)) { store_first(to, sum, count); });
  }

  // Adds positions [from, to).
  template <unsigned Queries>
  static void add_positions(const AttendArgs& args, const Tile& tile, unsigned first, std::uint32_t from,
                            std::uint32_t to, Prefetcher& prefetcher) {
    std::uint32_t j = from;
    for (; j + kPositions <= to; j += kPositions)
      add_values<Queries, kPositions>(args, tile, first, j, prefetcher);
    for (; j < to; ++j) add_values<Queries, 1>(args, tile, first, j, prefetcher);
  }

  static void add_positions(const AttendArgs& args, const Tile& tile, std::uint32_t from, std::uint32_t to,
                            Prefetcher& prefetcher) {
    const std::uint32_t end = to < tile.min_visible ? to : tile.min_visible;
    if (from >= end) return;
    switch (tile.count) {
      case 1: return add_positions<1>(args, tile, 0, from, end, prefetcher);
      case 2: return add_positions<2>(args, tile, 0, from, end, prefetcher);
      case 3: return add_positions<3>(args, tile, 0, from, end, prefetcher);
      default: return add_positions<4>(args, tile, 0, from, end, prefetcher);
    }
  }

  static void add_all_values(const AttendArgs& args, const Tile* tiles, unsigned count, std::uint32_t most,
                             Prefetcher prefetcher) {
    for (unsigned t = 0; t < count; ++t)
      for (unsigned q = 0; q < tiles[t].count; ++q)
        __builtin_memset(tiles[t].out[q], 0, args.value_dim * sizeof(float));
    for (std::uint32_t j = 0; j < most; j += kTurn) {
      prefetcher.advance(kTurn * args.value_stride);
      for (unsigned t = 0; t < count; ++t) add_positions(args, tiles[t], j, j + kTurn, prefetcher);
    }
    // Positions that only some queries of a tile see.
    Prefetcher nothing;
    for (unsigned t = 0; t < count; ++t)
      for (unsigned q = 0; q < tiles[t].count; ++q)
        add_positions<1>(args, tiles[t], q, tiles[t].min_visible, tiles[t].visible[q], nothing);
  }

  // At most kTiles tiles.
  static void attend_tiles(const AttendArgs& args, std::uint32_t first, std::uint32_t end) {
    Tile tiles[kTiles];
    unsigned count = 0;
    std::uint32_t most = 0;
    for (std::uint32_t at = first; at < end; at += kQueries) {
      Tile& tile = tiles[count++];
      begin_tile(args, at, tile);
      if (tile.max_visible > most) most = tile.max_visible;
    }
    Prefetcher keys, values;
    if (args.is_cold) {
      const bool are_one = args.values == args.keys;
      const float* const end_keys = args.keys + most * args.key_stride;
      keys = Prefetcher(args.keys, end_keys, are_one ? args.next_keys : args.values, count);
      if (!are_one)
        values = Prefetcher(args.values, args.values + most * args.value_stride, args.next_keys, count);
    }
    score(args, tiles, count, most, keys);
    for (unsigned t = 0; t < count; ++t)
      for (unsigned q = 0; q < tiles[t].count; ++q) {
        const std::size_t at = first + t * kQueries + q;
        softmax_block<Isa>(tiles[t].p[q], tiles[t].visible[q], args.max + at, args.sum + at);
      }
    add_all_values(args, tiles, count, most, values);
  }

  static void attend(const AttendArgs& args) noexcept {
    constexpr std::uint32_t kAtOnce = kTiles * kQueries;
    for (std::uint32_t first = 0; first < args.count; first += kAtOnce)
      attend_tiles(args, first, args.count - first < kAtOnce ? args.count : first + kAtOnce);
  }

  static void merge(float* running_max, float* running_sum, float* running_out, float block_max,
                    float block_sum, const float* block_out, std::uint32_t value_dim) noexcept {
    const float max = *running_max > block_max ? *running_max : block_max;
    const Lanes a = lanes_exp<Isa>(Isa::broadcast(*running_max - max));
    const Lanes b = lanes_exp<Isa>(Isa::broadcast(block_max - max));
    *running_max = max;
    store_first(running_sum, fma(Isa::broadcast(*running_sum), a, Isa::broadcast(block_sum) * b), 1);
    for (std::size_t c = 0; c < value_dim; c += kWidth) {
      const std::size_t count = value_dim - c < kWidth ? value_dim - c : kWidth;
      store_up_to(running_out + c,
                  fma(load_up_to<Isa>(running_out + c, count), a, load_up_to<Isa>(block_out + c, count) * b),
                  count);
    }
  }

  static void finish(const float* out, float sum, std::uint32_t value_dim, float* y) noexcept {
    const Lanes sums = Isa::broadcast(sum);
    for (std::size_t c = 0; c < value_dim; c += kWidth) {
      const std::size_t count = value_dim - c < kWidth ? value_dim - c : kWidth;
      store_up_to(y + c, load_up_to<Isa>(out + c, count) / sums, count);
    }
  }

  static void narrow_bf16(const float* x, std::uint32_t n, float* row) noexcept {
    auto* const to = reinterpret_cast<std::byte*>(row);
    std::size_t i = 0;
    const auto halves = [](Lanes lanes) {
      const Ints bits = as_int(lanes), one = Isa::broadcast(std::int32_t{1});
      const Ints rounded = bits + Isa::broadcast(std::int32_t{0x7fff}) + (shift_right<16>(bits) & one);
      const Ints quiet = bits | Isa::broadcast(std::int32_t{0x00400000});
      return shift_right<16>(as_int(select(not_a_number(lanes), as_float(quiet), as_float(rounded))));
    };
    for (; i + kWidth <= n; i += kWidth) store_halves(to + 2 * i, halves(Isa::load(x + i)));
    if (i == n) return;
    std::byte last[2 * kWidth];
    store_halves(last, halves(Isa::load_first(x + i, n - i)));
    __builtin_memcpy(to + 2 * i, last, 2 * (n - i));
  }

  static void widen_bf16(const float* row, std::uint32_t n, float* y) noexcept {
    const auto* const from = reinterpret_cast<const std::byte*>(row);
    std::size_t i = 0;
    for (; i + kWidth <= n; i += kWidth)
      store(y + i, as_float(shift_left<16>(Isa::load_halves(from + 2 * i))));
    if (i == n) return;
    std::byte last[2 * kWidth] = {};
    __builtin_memcpy(last, from + 2 * i, 2 * (n - i));
    store_first(y + i, as_float(shift_left<16>(Isa::load_halves(last))), n - i);
  }

  static void narrow_int8(const float* x, std::uint32_t n, float* row) noexcept {
    auto* const codes = reinterpret_cast<std::int8_t*>(row);
    float* const scales = row + kv_code_words(n);
    Ints sum = Isa::broadcast(std::int32_t{0});  // unused
    for (std::size_t first = 0; first < n; first += kKvGroup)
      scales[first / kKvGroup] =
          lanes_to_bytes<Isa>(x + first, n - first < kKvGroup ? n - first : kKvGroup, codes + first, sum);
  }

  static void widen_int8(const float* row, std::uint32_t n, float* y) noexcept {
    const auto* const codes = reinterpret_cast<const std::int8_t*>(row);
    const float* const scales = row + kv_code_words(n);
    std::size_t i = 0;
    for (; i + kWidth <= n; i += kWidth)
      store(y + i, Isa::broadcast(scales[i / kKvGroup]) * to_float(Isa::load_bytes(codes + i)));
    if (i == n) return;
    std::int8_t last[kWidth] = {};
    __builtin_memcpy(last, codes + i, n - i);
    store_first(y + i, Isa::broadcast(scales[i / kKvGroup]) * to_float(Isa::load_bytes(last)), n - i);
  }

  static constexpr AttentionKernels kTable = {.attend = attend,
                                              .merge = merge,
                                              .finish = finish,
                                              .narrow_bf16 = narrow_bf16,
                                              .widen_bf16 = widen_bf16,
                                              .narrow_int8 = narrow_int8,
                                              .widen_int8 = widen_int8};
};

}  // namespace
}  // namespace moeflux::vector
