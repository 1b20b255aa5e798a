// Attention over bytes, a tile of queries at a time. Included by the kernels of each ISA after dots_*.h, codes_vector.inl,
// lanes_math.inl and softmax_vector.inl; byte_attention_scalar.cpp says what it computes. The including file has defined
//
//   kUnits   registers of sixteen positions or channels that a tile of queries is multiplied with at once
//
// Sums are integers and exact, so tiles are whatever is fast.

namespace moeflux {
namespace {

constexpr unsigned kMostQueries = 4;  // of a tile

// ---- A query ------------------------------------------------------------------------------------------------

void narrow_query(const float* x, std::uint32_t key_dim, float* query) noexcept {
  const ByteBlockShape shape{key_dim, 0};
  auto* const codes = reinterpret_cast<std::int8_t*>(query);
  float* const scales = query + shape.quads();
  float* const zeros = scales + shape.key_groups();
  query[shape.quads() - 1] = 0;  // channels that fill it up
  for (std::uint32_t group = 0; group < shape.key_groups(); ++group) {
    const std::size_t first = std::size_t{group} * kKvGroup;
    const std::size_t count = key_dim - first < kKvGroup ? key_dim - first : kKvGroup;
    Ints sum = broadcast(std::int32_t{0});
    scales[group] = lanes_to_bytes(x + first, count, codes + first, sum);
    const auto zero = static_cast<std::int32_t>(fold_add(to_float(sum))) *
                      static_cast<std::int32_t>(ByteBlockShape::kKeyZero);
    __builtin_memcpy(zeros + group, &zero, sizeof zero);
  }
}

// ---- A block ------------------------------------------------------------------------------------------------

// Sixteen positions of 64 channels; `count` of the positions exist, and `channels` of the channels, if that is less. What does
// not exist is zero, and not read.
MF_LANES void load_positions(const KeptBytes& keys, std::size_t first, std::size_t channel, std::size_t count,
                             std::size_t channels, Ints (&unit)[kWidth]) {
  const std::size_t row_bytes = keys.stride * sizeof(float);
  const std::int8_t* rows = keys.codes + first * row_bytes + channel;
  if (count == kWidth && channels >= kUnitBytes) {
#pragma GCC unroll 16
    for (std::size_t r = 0; r < kWidth; ++r, rows += row_bytes)
      unit[r] = load_unit(reinterpret_cast<const std::byte*>(rows));
    return;
  }
  for (std::size_t r = 0; r < kWidth; ++r, rows += row_bytes) {
    std::byte some[kUnitBytes] = {};
    if (r < count) __builtin_memcpy(some, rows, channels < kUnitBytes ? channels : kUnitBytes);
    unit[r] = load_unit(some);
  }
}

void open_keys(const ByteBlockShape& shape, const KeptBytes& keys, std::uint32_t rows, std::byte* block) {
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
                     unit[q] ^ every_byte<ByteBlockShape::kKeyZero>());
    }
    for (std::uint32_t group = 0; group < shape.key_groups(); ++group)
      for (std::uint32_t r = 0; r < kWidth; ++r)
        scales[group * kAttentionBlock + j + r] =
            r < count ? keys.scales[(j + r) * keys.stride + group] : 0.0f;
  }
}

void open_values(const ByteBlockShape& shape, const KeptBytes& values, std::uint32_t rows, std::byte* block) {
  const std::size_t row_bytes = values.stride * sizeof(float);
  for (std::uint32_t j = 0; j < rows; j += 2)
    for (std::uint32_t group = 0; group < shape.value_groups(); ++group) {
      const std::uint32_t channels = shape.group_channels(group);
      std::byte* const to = block + shape.values_at(group) + std::size_t{j / 2} * channels * 2;
      const std::size_t c = std::size_t{group} * kKvGroup;
      const std::size_t count = shape.value_dim - c < kKvGroup ? shape.value_dim - c : kKvGroup;
      const std::int8_t* const row = values.codes + j * row_bytes + c;
      if (count == kKvGroup && j + 1 < rows) {
        interleave(load_unit(reinterpret_cast<const std::byte*>(row)),
                   load_unit(reinterpret_cast<const std::byte*>(row + row_bytes)), to);
      } else {
        std::byte some[2][kKvGroup] = {}, both[2 * kKvGroup];
        __builtin_memcpy(some[0], row, count);
        if (j + 1 < rows) __builtin_memcpy(some[1], row + row_bytes, count);
        interleave(load_unit(some[0]), load_unit(some[1]), both);
        __builtin_memcpy(to, both, std::size_t{channels} * 2);
      }
    }
  auto* const scales = reinterpret_cast<float*>(block + shape.value_scales_at());
  for (std::uint32_t j = 0; j < (rows + kWidth - 1) / kWidth * kWidth; ++j)
    for (std::uint32_t group = 0; group < shape.value_groups(); ++group)
      scales[group * kAttentionBlock + j] = j < rows ? values.scales[j * values.stride + group] : 0.0f;
}

void open(const ByteBlockShape& shape, const KeptBytes& keys, const KeptBytes& values, std::uint32_t rows,
          std::byte* block) noexcept {
  open_keys(shape, keys, rows, block);
  open_values(shape, values, rows, block);
}

// ---- Attention ----------------------------------------------------------------------------------------------

// Asks for the lines of what is opened next, some at a time.
class Ahead {
 public:
  // As many at a time as it takes to have all of them after so many times.
  [[gnu::always_inline]] Ahead(const Stretch (&next)[2], std::size_t times)
      : at_(next[0].begin),
        end_(next[0].begin + next[0].size),
        next_(next[1]),
        lines_(((next[0].size + next[1].size) / kUnitBytes + times) / times) {}

  [[gnu::always_inline]] void ask() {
    for (std::size_t line = 0; line < lines_ && at_ != end_; ++line) {
      ask_for(at_);
      at_ += kUnitBytes;
      if (at_ < end_) continue;
      at_ = next_.begin;
      end_ = next_.begin + next_.size;
      next_ = {};
    }
  }

 private:
  const std::byte *at_, *end_;
  Stretch next_;
  std::size_t lines_;  // at a time
};

// The scores of 16 Units positions from `first` on.
template <unsigned Queries, unsigned Units>
MF_LANES void score_units(const ByteAttendArgs& args, const float* const (&query)[Queries],
                          std::uint32_t first, float (*p)[kAttentionBlock], Ahead& ahead) {
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
      for (unsigned u = 0; u < Units; ++u) sum[q][u] = broadcast(std::int32_t{0});
    const auto add_quad = [&](std::uint32_t at) __attribute__((always_inline)) {
      Ints key[Units];
#pragma GCC unroll 4
      for (unsigned u = 0; u < Units; ++u) key[u] = load_unit(keys + u * kUnitBytes);
      keys += kQuadBytes;
      ahead.ask();
#pragma GCC unroll 4
      for (unsigned q = 0; q < Queries; ++q) {
        const Ints four = broadcast_four(query[q] + at);
#pragma GCC unroll 4
        for (unsigned u = 0; u < Units; ++u) sum[q][u] = dot4<8>(sum[q][u], key[u], four);
      }
    };
    constexpr std::uint32_t kGroupQuads = kKvGroup / 4;
    const std::uint32_t quad = group * kGroupQuads;
    if (quads - quad >= kGroupQuads) {
      // Unrolled: in a loop the compiler copies every sum twice a turn.
#pragma GCC unroll 16
      for (std::uint32_t i = 0; i < kGroupQuads; ++i) add_quad(quad + i);
    } else {
      for (std::uint32_t at = quad; at < quads; ++at) add_quad(at);
    }
#pragma GCC unroll 4
    for (unsigned u = 0; u < Units; ++u) {
      const Lanes scales = load(key_scales + u * kWidth);
#pragma GCC unroll 4
      for (unsigned q = 0; q < Queries; ++q) {
        float* const to = p[q] + first + u * kWidth;
        const Lanes both = broadcast(query[q][quads + group]) * scales;
        const Lanes dot = to_float(sum[q][u] - broadcast_four(query[q] + quads + groups + group));
        const Lanes acc = fma(both, dot, group == 0 ? broadcast(0.0f) : load(to));
        store(to, group + 1 == groups ? acc * broadcast(args.scale) : acc);
      }
    }
  }
}

// p * scales of so many positions as words; returns what one step of these is.
MF_LANES float to_words(const float* p, const float* scales, std::uint32_t visible, std::int16_t* words) {
  alignas(64) float w[kAttentionBlock];
  Ints largest = broadcast(std::int32_t{0});
  for (std::size_t j = 0; j < visible; j += kWidth) {
    const Lanes some = load_up_to(p + j, visible - j) * load_up_to(scales + j, visible - j);
    store(w + j, some);
    // Bits have the order of the numbers, and what is not finite is the largest.
    largest = lanes_larger(as_int(magnitude(some)), largest);
  }
  const std::int32_t bits = fold_largest(largest);
  float number;
  __builtin_memcpy(&number, &bits, sizeof number);
  const law::CodeScale by = law::code_scale_of(number, bits < 0x7f800000, law::kWordSteps);
  const Lanes inverse = broadcast(by.inverse);
  for (std::size_t j = 0; j < visible; j += kWidth)
    store_words(words + j,
                by.inverse != 0 ? round_to_int(load(w + j) * inverse) : broadcast(std::int32_t{0}));
  return by.scale;
}

// Of two positions of sixteen channels.
constexpr std::size_t kPairBytes = 2 * kWidth;

// Sixteen times Units channels; `values`: the first pair's, `stride` bytes from pair to pair.
template <unsigned Queries, unsigned Units>
MF_LANES void mix_units(const std::byte* values, std::size_t stride, std::uint32_t pairs,
                        const std::int16_t (*words)[kAttentionBlock], Ahead& ahead,
                        Ints (&sum)[Queries][Units]) {
#pragma GCC unroll 4
  for (unsigned q = 0; q < Queries; ++q)
#pragma GCC unroll 4
    for (unsigned u = 0; u < Units; ++u) sum[q][u] = broadcast(std::int32_t{0});
#pragma GCC unroll 8
  for (std::uint32_t pair = 0; pair < pairs; ++pair, values += stride) {
    Ints value[Units];
#pragma GCC unroll 4
    for (unsigned u = 0; u < Units; ++u) value[u] = load_words(values + u * kPairBytes);
    ahead.ask();
#pragma GCC unroll 4
    for (unsigned q = 0; q < Queries; ++q) {
      const Ints two = broadcast_four(words[q] + std::size_t{2} * pair);
#pragma GCC unroll 4
      for (unsigned u = 0; u < Units; ++u) sum[q][u] = dot2(sum[q][u], value[u], two);
    }
  }
}

template <unsigned Queries>
[[gnu::noinline]] void attend_tile(const ByteAttendArgs& args, std::uint32_t first, Ahead& ahead) {
  const ByteBlockShape& shape = args.shape;
  const std::uint32_t visible = args.visible;
  const float* query[Queries];
  alignas(64) float p[Queries][kAttentionBlock];
  alignas(64) std::int16_t words[Queries][kAttentionBlock];
#pragma GCC unroll 4
  for (unsigned q = 0; q < Queries; ++q) query[q] = args.queries + (first + q) * args.query_stride;

  std::uint32_t j = 0;
  for (; j < visible && visible - j > (kUnits - 1) * kWidth; j += kUnits * kWidth)
    score_units<Queries, kUnits>(args, query, j, p, ahead);
  for (; j < visible; j += kWidth) score_units<Queries, 1>(args, query, j, p, ahead);
  for (unsigned q = 0; q < Queries; ++q) soften(p[q], visible, args.max + first + q, args.sum + first + q);

  const auto* scales = reinterpret_cast<const float*>(args.block + shape.value_scales_at());
  for (std::uint32_t group = 0; group < shape.value_groups(); ++group, scales += kAttentionBlock) {
    float step[Queries];
    for (unsigned q = 0; q < Queries; ++q) step[q] = to_words(p[q], scales, visible, words[q]);
    const std::size_t units = shape.group_channels(group) / kWidth;
    const std::size_t stride = units * kPairBytes;
    const auto mix = [&]<unsigned Units>(std::size_t unit) __attribute__((always_inline)) {
      Ints sum[Queries][Units];
      mix_units<Queries, Units>(args.block + shape.values_at(group) + unit * kPairBytes, stride,
                                (visible + 1) / 2, words, ahead, sum);
#pragma GCC unroll 4
      for (unsigned u = 0; u < Units; ++u) {
        const std::size_t c = std::size_t{group} * kKvGroup + (unit + u) * kWidth;
#pragma GCC unroll 4
        for (unsigned q = 0; q < Queries; ++q)
          store_up_to(args.out + (first + q) * args.out_stride + c, broadcast(step[q]) * to_float(sum[q][u]),
                      shape.value_dim - c);
      }
    };
    std::size_t unit = 0;
    for (; unit + kUnits <= units; unit += kUnits) mix.template operator()<kUnits>(unit);
    if constexpr (kUnits > 1)
      for (; unit < units; ++unit) mix.template operator()<1>(unit);
  }
}

void attend(const ByteAttendArgs& args) noexcept {
  if (args.count == 0) return;
  const std::size_t tiles = (args.count + kMostQueries - 1) / kMostQueries;
  const std::size_t turns = args.shape.quads() * ((args.visible + kUnits * kWidth - 1) / (kUnits * kWidth)) +
                            args.shape.value_groups() * std::size_t{(args.visible + 1) / 2};
  Ahead ahead(args.next, tiles * turns);
  std::uint32_t first = 0;
  for (; first + kMostQueries <= args.count; first += kMostQueries)
    attend_tile<kMostQueries>(args, first, ahead);
  switch (args.count - first) {
    case 1: return attend_tile<1>(args, first, ahead);
    case 2: return attend_tile<2>(args, first, ahead);
    case 3: return attend_tile<3>(args, first, ahead);
    default: return;
  }
}

constexpr ByteAttentionKernels kByteAttention = {
    .narrow_query = narrow_query, .open = open, .attend = attend};

}  // namespace
}  // namespace moeflux
