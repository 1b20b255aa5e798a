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

// The products of all queries of a tile with `kTileRows` keys.
MF_LANES void score_keys(const Tile& tile, const float* const (&key)[kTileRows], std::uint32_t dim,
                         float scale, float* scores) {
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
void score(const AttendArgs& args, Tile& tile) {
  for (std::uint32_t j = 0; j < tile.most; j += kTileRows) {
    const float* key[kTileRows];
    for (unsigned r = 0; r < kTileRows; ++r) {
      const std::size_t at = j + r < tile.most ? j + r : tile.most - 1;
      key[r] = args.keys + at * args.key_stride;
    }
    score_keys(tile, key, args.key_dim, args.scale, &tile.p[0][j]);
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
                         std::uint32_t to, std::size_t at, std::size_t count) {
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
                    std::uint32_t to) {
  constexpr std::size_t kStrip = kValueGroups * kWidth;
  const std::size_t dim = args.value_dim;
  std::size_t at = 0;
  for (; at + kStrip <= dim; at += kStrip)
    add_values<Queries, kValueGroups>(args, tile, first, from, to, at, kStrip);
  for (; at + kWidth <= dim; at += kWidth) add_values<Queries, 1>(args, tile, first, from, to, at, kWidth);
  if (at < dim) add_values<Queries, 1>(args, tile, first, from, to, at, dim - at);
}

void attend(const AttendArgs& args) noexcept {
  for (std::uint32_t first = 0; first < args.count; first += kQueries) {
    Tile tile;
    begin_tile(args, first, tile);
    score(args, tile);
    for (unsigned q = 0; q < kQueries; ++q) {
      const std::size_t at = first + (q < tile.count ? q : tile.count - 1);
      soften(tile.p[q], tile.visible[q], args.max + at, args.sum + at);
    }
    add_all_values<kQueries>(args, tile, 0, 0, tile.least);
    for (unsigned q = 0; q < tile.count; ++q)
      if (tile.visible[q] > tile.least) add_all_values<1>(args, tile, q, tile.least, tile.visible[q]);
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

constexpr AttentionKernels kAttention = {.attend = attend, .merge = merge, .finish = finish};

}  // namespace
}  // namespace moeflux
