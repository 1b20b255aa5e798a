// Attention, a tile of queries at a time. Included by the kernels of each ISA after lanes_*.h and
// lanes_math.inl and softmax_vector.inl; attention_scalar.cpp says what it computes.
//
// A row of keys or values that is loaded serves all queries of a tile, and of some tiles in turn. A tile with too few queries,
// or with too few keys, repeats its last one in scores: the same bits are computed again, by the same code.

namespace moeflux {
namespace {

constexpr unsigned kQueries = kTileCols;
// Tiles that use some rows of keys or values while these are in the first-level cache.
constexpr unsigned kTiles = 4;
// Positions whose values are added together, and positions that one tile adds before the next tile does.
constexpr std::uint32_t kPositions = kTileRows == 1 ? 2 : 4, kTurn = 8;

struct Tile {
  const float* query[kQueries];
  float* out[kQueries];
  std::uint32_t visible[kQueries];
  unsigned count;                      // of different queries
  std::uint32_t most, least;           // of visible
  float p[kQueries][kAttentionBlock];  // scores, then their exponentials
};

void begin_tile(const AttendArgs& args, std::uint32_t first, Tile& tile) {
  tile.count = args.count - first < kQueries ? args.count - first : kQueries;
  tile.most = tile.least = args.visible[first];
  for (unsigned q = 0; q < kQueries; ++q) {
    const std::size_t at = first + (q < tile.count ? q : tile.count - 1);
    tile.query[q] = args.queries + at * args.query_stride;
    tile.out[q] = args.out + at * args.out_stride;
    tile.visible[q] = args.visible[at];
    if (tile.visible[q] > tile.most) tile.most = tile.visible[q];
    if (tile.visible[q] < tile.least) tile.least = tile.visible[q];
  }
}

// Asks for the lines of memory that lie some way ahead of the rows in use, as many as are used meanwhile. Into the
// second-level cache, which can wait for more lines than the first; not further ahead, and not faster, because what is
// asked for while too much is on its way is forgotten by the processor.
//
// Eight queries over 32,768 positions (bench/kernels_bench; memory at 33 GB/s, 25 when all is cached): 22 GB/s. Without
// asking it is 8: so far apart, lines are not taken for a stream. A whole block ahead: 14. Into the first-level cache: 10.
class Ahead {
 public:
  // Asks for nothing.
  Ahead() = default;

  // Rows [rows, end) are used from now on, and `next` after them (null: nothing); `tiles` tiles use each.
  [[gnu::always_inline]] Ahead(const float* rows, const float* end, const float* next, unsigned tiles)
      : at_(end - rows > kDistance ? rows + kDistance : next),
        end_(end - rows > kDistance ? end : nullptr),
        next_(next),
        lines_((kTileRows + tiles - 1) / tiles) {}

  // So many floats more are in use.
  [[gnu::always_inline]] void use(std::size_t floats) {
    left_ = at_ == nullptr ? 0 : left_ + static_cast<unsigned>(floats / kWidth);
  }
  [[gnu::always_inline]] void ask() {
    for (unsigned line = 0; line < lines_ && left_ > 0; ++line, --left_) {
      ask_for(at_);
      at_ += kWidth;
      if (at_ == end_) at_ = next_;
    }
  }

 private:
  static constexpr std::ptrdiff_t kDistance = 144 * kWidth;
  const float* at_ = nullptr;
  const float* end_ = nullptr;
  const float* next_ = nullptr;
  unsigned lines_ = 0;  // at a time
  unsigned left_ = 0;
};

// The products of all queries of a tile with `kTileRows` keys.
MF_LANES void score_keys(const Tile& tile, const float* const (&key)[kTileRows], std::uint32_t dim,
                         float scale, float* scores, Ahead& ahead) {
  Lanes sum[kTileRows][kQueries];
#pragma GCC unroll 4
  for (unsigned r = 0; r < kTileRows; ++r)
#pragma GCC unroll 4
    for (unsigned q = 0; q < kQueries; ++q) sum[r][q] = broadcast(0.0f);

  std::size_t i = 0;
  for (; i + kWidth <= dim; i += kWidth) {
    Lanes query[kQueries];
#pragma GCC unroll 4
    for (unsigned q = 0; q < kQueries; ++q) query[q] = load(tile.query[q] + i);
    ahead.ask();
#pragma GCC unroll 4
    for (unsigned r = 0; r < kTileRows; ++r) {
      const Lanes group = load(key[r] + i);
#pragma GCC unroll 4
      for (unsigned q = 0; q < kQueries; ++q) sum[r][q] = fma(query[q], group, sum[r][q]);
    }
  }
  if (i < dim) {
#pragma GCC unroll 4
    for (unsigned r = 0; r < kTileRows; ++r) {
      const Lanes group = load_first(key[r] + i, dim - i);
#pragma GCC unroll 4
      for (unsigned q = 0; q < kQueries; ++q)
        sum[r][q] = fma(load_first(tile.query[q] + i, dim - i), group, sum[r][q]);
    }
  }
  fold_add_tile(sum, scale, scores, kAttentionBlock);
}

// Scores up to the last position that any query sees. A query's own scores end earlier; what lies beyond them is
// overwritten by soften().
void score(const AttendArgs& args, Tile* tiles, unsigned count, std::uint32_t most, Ahead ahead) {
  for (std::uint32_t j = 0; j < most; j += kTileRows) {
    const float* key[kTileRows];
    for (unsigned r = 0; r < kTileRows; ++r) {
      const std::size_t at = j + r < most ? j + r : most - 1;
      key[r] = args.keys + at * args.key_stride;
    }
    ahead.use(kTileRows * args.key_stride);
    for (unsigned t = 0; t < count; ++t)
      score_keys(tiles[t], key, args.key_dim, args.scale, &tiles[t].p[0][j], ahead);
  }
}

// Adds `Positions` positions from j on to `Queries` queries of the tile, from `first` on.
//
// Sums come from the cache and go there: so values are read as they lie, and the exponentials are in registers. Sums
// that stay in registers over all positions, for some channels at a time, are as fast when all is cached (26 GB/s), and
// 17 from memory.
template <unsigned Queries, unsigned Positions>
MF_LANES void add_values(const AttendArgs& args, const Tile& tile, unsigned first, std::uint32_t j,
                         Ahead& ahead) {
  Lanes p[Queries][Positions];
#pragma GCC unroll 4
  for (unsigned q = 0; q < Queries; ++q)
#pragma GCC unroll 4
    for (unsigned i = 0; i < Positions; ++i) p[q][i] = broadcast(tile.p[first + q][j + i]);
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
    ahead.ask();
    add(
        at, [](const float* from) __attribute__((always_inline)) { return load(from); },
        [](float* to, Lanes sum) __attribute__((always_inline)) { store(to, sum); });
  }
  if (const std::size_t count = args.value_dim - at; count != 0)
    add(
        at, [&](const float* from) __attribute__((always_inline)) { return load_first(from, count); },
        [&](float* to, Lanes sum) __attribute__((always_inline)) { store_first(to, sum, count); });
}

// Adds positions [from, to).
template <unsigned Queries>
void add_positions(const AttendArgs& args, const Tile& tile, unsigned first, std::uint32_t from,
                   std::uint32_t to, Ahead& ahead) {
  std::uint32_t j = from;
  for (; j + kPositions <= to; j += kPositions) add_values<Queries, kPositions>(args, tile, first, j, ahead);
  for (; j < to; ++j) add_values<Queries, 1>(args, tile, first, j, ahead);
}

void add_positions(const AttendArgs& args, const Tile& tile, std::uint32_t from, std::uint32_t to,
                   Ahead& ahead) {
  const std::uint32_t end = to < tile.least ? to : tile.least;
  if (from >= end) return;
  switch (tile.count) {
    case 1: return add_positions<1>(args, tile, 0, from, end, ahead);
    case 2: return add_positions<2>(args, tile, 0, from, end, ahead);
    case 3: return add_positions<3>(args, tile, 0, from, end, ahead);
    default: return add_positions<4>(args, tile, 0, from, end, ahead);
  }
}

void add_all_values(const AttendArgs& args, const Tile* tiles, unsigned count, std::uint32_t most,
                    Ahead ahead) {
  for (unsigned t = 0; t < count; ++t)
    for (unsigned q = 0; q < tiles[t].count; ++q)
      __builtin_memset(tiles[t].out[q], 0, args.value_dim * sizeof(float));
  for (std::uint32_t j = 0; j < most; j += kTurn) {
    ahead.use(kTurn * args.value_stride);
    for (unsigned t = 0; t < count; ++t) add_positions(args, tiles[t], j, j + kTurn, ahead);
  }
  // What only some queries of a tile see.
  Ahead nothing;
  for (unsigned t = 0; t < count; ++t)
    for (unsigned q = 0; q < tiles[t].count; ++q)
      add_positions<1>(args, tiles[t], q, tiles[t].least, tiles[t].visible[q], nothing);
}

// At most kTiles tiles.
void attend_tiles(const AttendArgs& args, std::uint32_t first, std::uint32_t end) {
  Tile tiles[kTiles];
  unsigned count = 0;
  std::uint32_t most = 0;
  for (std::uint32_t at = first; at < end; at += kQueries) {
    Tile& tile = tiles[count++];
    begin_tile(args, at, tile);
    if (tile.most > most) most = tile.most;
  }
  Ahead keys, values;
  if (args.is_far) {
    const bool are_one = args.values == args.keys;
    const float* const end_keys = args.keys + most * args.key_stride;
    keys = Ahead(args.keys, end_keys, are_one ? args.next_keys : args.values, count);
    if (!are_one) values = Ahead(args.values, args.values + most * args.value_stride, args.next_keys, count);
  }
  score(args, tiles, count, most, keys);
  for (unsigned t = 0; t < count; ++t)
    for (unsigned q = 0; q < tiles[t].count; ++q) {
      const std::size_t at = first + t * kQueries + q;
      soften(tiles[t].p[q], tiles[t].visible[q], args.max + at, args.sum + at);
    }
  add_all_values(args, tiles, count, most, values);
}

void attend(const AttendArgs& args) noexcept {
  constexpr std::uint32_t kAtOnce = kTiles * kQueries;
  for (std::uint32_t first = 0; first < args.count; first += kAtOnce)
    attend_tiles(args, first, args.count - first < kAtOnce ? args.count : first + kAtOnce);
}

void merge(float* running_max, float* running_sum, float* running_out, float block_max, float block_sum,
           const float* block_out, std::uint32_t value_dim) noexcept {
  const float max = *running_max > block_max ? *running_max : block_max;
  const Lanes a = lanes_exp(broadcast(*running_max - max));
  const Lanes b = lanes_exp(broadcast(block_max - max));
  *running_max = max;
  store_first(running_sum, fma(broadcast(*running_sum), a, broadcast(block_sum) * b), 1);
  for (std::size_t c = 0; c < value_dim; c += kWidth) {
    const std::size_t count = value_dim - c < kWidth ? value_dim - c : kWidth;
    store_up_to(running_out + c,
                fma(load_up_to(running_out + c, count), a, load_up_to(block_out + c, count) * b), count);
  }
}

void finish(const float* out, float sum, std::uint32_t value_dim, float* y) noexcept {
  const Lanes sums = broadcast(sum);
  for (std::size_t c = 0; c < value_dim; c += kWidth) {
    const std::size_t count = value_dim - c < kWidth ? value_dim - c : kWidth;
    store_up_to(y + c, load_up_to(out + c, count) / sums, count);
  }
}

void narrow_bf16(const float* x, std::uint32_t n, float* row) noexcept {
  auto* const to = reinterpret_cast<std::byte*>(row);
  std::size_t i = 0;
  const auto halves = [](Lanes lanes) {
    const Ints bits = as_int(lanes), one = broadcast(std::int32_t{1});
    const Ints rounded = bits + broadcast(std::int32_t{0x7fff}) + (shift_right<16>(bits) & one);
    const Ints quiet = bits | broadcast(std::int32_t{0x00400000});
    return shift_right<16>(as_int(select(not_a_number(lanes), as_float(quiet), as_float(rounded))));
  };
  for (; i + kWidth <= n; i += kWidth) store_halves(to + 2 * i, halves(load(x + i)));
  if (i == n) return;
  std::byte last[2 * kWidth];
  store_halves(last, halves(load_first(x + i, n - i)));
  __builtin_memcpy(to + 2 * i, last, 2 * (n - i));
}

void widen_bf16(const float* row, std::uint32_t n, float* y) noexcept {
  const auto* const from = reinterpret_cast<const std::byte*>(row);
  std::size_t i = 0;
  for (; i + kWidth <= n; i += kWidth) store(y + i, as_float(shift_left<16>(load_halves(from + 2 * i))));
  if (i == n) return;
  std::byte last[2 * kWidth] = {};
  __builtin_memcpy(last, from + 2 * i, 2 * (n - i));
  store_first(y + i, as_float(shift_left<16>(load_halves(last))), n - i);
}

void narrow_int8(const float* x, std::uint32_t n, float* row) noexcept {
  auto* const codes = reinterpret_cast<std::int8_t*>(row);
  float* const scales = row + kv_code_words(n);
  Ints sum = broadcast(std::int32_t{0});  // nobody asks for it
  for (std::size_t first = 0; first < n; first += kKvGroup)
    scales[first / kKvGroup] =
        lanes_to_bytes(x + first, n - first < kKvGroup ? n - first : kKvGroup, codes + first, sum);
}

void widen_int8(const float* row, std::uint32_t n, float* y) noexcept {
  const auto* const codes = reinterpret_cast<const std::int8_t*>(row);
  const float* const scales = row + kv_code_words(n);
  std::size_t i = 0;
  for (; i + kWidth <= n; i += kWidth)
    store(y + i, broadcast(scales[i / kKvGroup]) * to_float(load_bytes(codes + i)));
  if (i == n) return;
  std::int8_t last[kWidth] = {};
  __builtin_memcpy(last, codes + i, n - i);
  store_first(y + i, broadcast(scales[i / kKvGroup]) * to_float(load_bytes(last)), n - i);
}

constexpr AttentionKernels kAttention = {.attend = attend,
                                         .merge = merge,
                                         .finish = finish,
                                         .narrow_bf16 = narrow_bf16,
                                         .widen_bf16 = widen_bf16,
                                         .narrow_int8 = narrow_int8,
                                         .widen_int8 = widen_int8};

}  // namespace
}  // namespace moeflux
