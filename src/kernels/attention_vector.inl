// Attention, a tile of queries at a time. Included by the kernels of each ISA after lanes_*.h and
// lanes_math.inl; attention_scalar.cpp says what it computes.
//
// A row of keys or values that is loaded serves all queries of a tile. A tile with too few queries, or with
// too few keys, repeats its last one: the same bits are computed again, by the same code.

namespace moeflux {
namespace {

constexpr std::size_t kWidth = law::kLanes;
constexpr unsigned kQueries = kTileCols;
// Groups of channels whose sums stay in registers over all positions, for each query of a tile.
constexpr unsigned kValueGroups = kChainSets;

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

// Asks for neighbouring lines of memory, some at a time: what is asked for while too much is on its way is forgotten by the
// processor. Into the second-level cache, which can wait for more lines than the first.
//
// Eight queries over 32,768 positions (bench/kernels_bench, memory at 31 GB/s, blocks that are cached at 24): 8.4 GB/s
// without, 10.2 into the first-level cache, 13.5 into the second, and 15.0 when every tile of queries asks again for what
// may have been forgotten. Reading the lines before instead, one after another, is 13.4.
struct Ahead {
  const float* at = nullptr;
  const float* end = nullptr;
  unsigned lines = 0;  // at a time

  // All of [256][dim], in `times` times.
  [[gnu::always_inline]] static Ahead of(const float* rows, std::size_t dim, std::size_t times) {
    if (rows == nullptr) return {};
    const std::size_t all = kAttentionBlock * dim / kWidth + 1;
    return {rows, rows + kAttentionBlock * dim, static_cast<unsigned>((all + times - 1) / times)};
  }
  [[gnu::always_inline]] void ask() {
    for (unsigned line = 0; line < lines && at < end; ++line, at += kWidth) __builtin_prefetch(at, 0, 1);
  }
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

// Scores up to the last position that any query of the tile sees. A query's own scores end earlier; what lies
// beyond them is overwritten by soften().
void score(const AttendArgs& args, Tile& tile, Ahead& ahead) {
  for (std::uint32_t j = 0; j < tile.most; j += kTileRows) {
    const float* key[kTileRows];
    for (unsigned r = 0; r < kTileRows; ++r) {
      const std::size_t at = j + r < tile.most ? j + r : tile.most - 1;
      key[r] = args.keys + at * args.key_stride;
    }
    score_keys(tile, key, args.key_dim, args.scale, &tile.p[0][j], ahead);
  }
}

// p = exp(p - max), for one query.
MF_LANES void soften(float* p, std::uint32_t visible, float* max_out, float* sum_out) {
  // The last group is filled up with what becomes zero.
  for (std::uint32_t j = visible; j % kWidth != 0; ++j) p[j] = -__builtin_inff();

  Lanes largest = broadcast(-__builtin_inff());
  for (std::size_t j = 0; j < visible; j += kWidth) largest = lanes_larger(load(p + j), largest);
  float lanes[kWidth];
  store(lanes, largest);
  float max = lanes[0];
  for (std::size_t lane = 1; lane < kWidth; ++lane) max = lanes[lane] > max ? lanes[lane] : max;
  max = max + 0.0f;

  const Lanes shift = broadcast(max);
  Lanes sum = broadcast(0.0f);
  for (std::size_t j = 0; j < visible; j += kWidth) {
    const Lanes group = lanes_exp(load(p + j) - shift);
    store(p + j, group);
    sum = sum + group;
  }
  *max_out = max;
  *sum_out = fold_add(sum);
}

// Adds positions [from, to) to channels [at, at + count) of `Queries` queries from `first` on. `count` is
// 16 * Groups, or less in a single group.
template <unsigned Queries, unsigned Groups>
MF_LANES void add_values(const AttendArgs& args, const Tile& tile, unsigned first, std::uint32_t from,
                         std::uint32_t to, std::size_t at, std::size_t count, Ahead& ahead) {
  const bool whole = count == Groups * kWidth;
  Lanes sum[Queries][Groups];
#pragma GCC unroll 4
  for (unsigned q = 0; q < Queries; ++q)
#pragma GCC unroll 4
    for (unsigned g = 0; g < Groups; ++g) {
      const float* const out = tile.out[first + q] + at + g * kWidth;
      sum[q][g] = from == 0 ? broadcast(0.0f) : whole ? load(out) : load_first(out, count);
    }

  const float* value = args.values + from * args.value_stride + at;
  for (std::uint32_t j = from; j < to; ++j, value += args.value_stride) {
    Lanes channels[Groups];
    ahead.ask();
#pragma GCC unroll 4
    for (unsigned g = 0; g < Groups; ++g)
      channels[g] = whole ? load(value + g * kWidth) : load_first(value, count);
#pragma GCC unroll 4
    for (unsigned q = 0; q < Queries; ++q) {
      const Lanes p = broadcast(tile.p[first + q][j]);
#pragma GCC unroll 4
      for (unsigned g = 0; g < Groups; ++g) sum[q][g] = fma(p, channels[g], sum[q][g]);
    }
  }

#pragma GCC unroll 4
  for (unsigned q = 0; q < Queries; ++q)
#pragma GCC unroll 4
    for (unsigned g = 0; g < Groups; ++g) {
      float* const out = tile.out[first + q] + at + g * kWidth;
      if (whole) {
        store(out, sum[q][g]);
      } else {
        store_first(out, sum[q][g], count);
      }
    }
}

template <unsigned Queries>
void add_all_values(const AttendArgs& args, const Tile& tile, unsigned first, std::uint32_t from,
                    std::uint32_t to, Ahead& ahead) {
  constexpr std::size_t kStrip = kValueGroups * kWidth;
  const std::size_t dim = args.value_dim;
  std::size_t at = 0;
  for (; at + kStrip <= dim; at += kStrip)
    add_values<Queries, kValueGroups>(args, tile, first, from, to, at, kStrip, ahead);
  for (; at + kWidth <= dim; at += kWidth)
    add_values<Queries, 1>(args, tile, first, from, to, at, kWidth, ahead);
  if (at < dim) add_values<Queries, 1>(args, tile, first, from, to, at, dim - at, ahead);
}

void attend(const AttendArgs& args) noexcept {
  constexpr std::size_t kSteps = kAttentionBlock / kTileRows, kStrip = kValueGroups * kWidth;
  for (std::uint32_t first = 0; first < args.count; first += kQueries) {
    Ahead values = Ahead::of(args.values_are_far ? args.values : nullptr, args.value_dim,
                             kSteps * (args.key_dim / kWidth + 1));
    Ahead next_keys =
        Ahead::of(args.next_keys, args.key_dim, kAttentionBlock * (args.value_dim / kStrip + 1));
    Tile tile;
    begin_tile(args, first, tile);
    score(args, tile, values);
    for (unsigned q = 0; q < kQueries; ++q) {
      const std::size_t at = first + (q < tile.count ? q : tile.count - 1);
      soften(tile.p[q], tile.visible[q], args.max + at, args.sum + at);
    }
    add_all_values<kQueries>(args, tile, 0, 0, tile.least, next_keys);
    for (unsigned q = 0; q < tile.count; ++q)
      if (tile.visible[q] > tile.least)
        add_all_values<1>(args, tile, q, tile.least, tile.visible[q], next_keys);
  }
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
  const Lanes round = broadcast(0x1.8p+23f);
  for (std::size_t first = 0; first < n; first += kKvGroup) {
    const std::size_t end = n - first < kKvGroup ? n : first + kKvGroup;
    Lanes largest = broadcast(0.0f), nothing = broadcast(0.0f);
    for (std::size_t i = first; i < end; i += kWidth) {
      const Lanes size = magnitude(load_up_to(x + i, end - i < kWidth ? end - i : kWidth));
      largest = select(greater(size, largest), size, largest);
      nothing = nothing + (size - size);  // zeros, or not a number
    }
    const float m = fold_largest(largest);
    const bool is_finite = fold_add(nothing) == 0;
    const bool counts = is_finite && m >= kInt8Least;
    scales[first / kKvGroup] = !is_finite ? __builtin_nanf("") : counts ? m / 127.0f : 0.0f;
    const Lanes inverse = broadcast(counts ? 127.0f / m : 0.0f);
    for (std::size_t i = first; i < end; i += kWidth) {
      const std::size_t count = end - i < kWidth ? end - i : kWidth;
      const Lanes steps = counts ? load_up_to(x + i, count) * inverse : broadcast(0.0f);
      std::int8_t some[kWidth];
      store_bytes(some, to_int(steps + round - round));
      __builtin_memcpy(codes + i, some, count);
    }
  }
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
