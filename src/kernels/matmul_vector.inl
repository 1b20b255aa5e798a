// The matrix products, sixteen output rows at a time. Included by the kernels of each ISA after lanes_*.h and
// codes_vector.inl; matmul_scalar.cpp says what they compute. The including file has defined
//
//   kMatmulRows            rows of x that are multiplied together
//   kMatmulSums            chains that are computed together: registers hold them beside what is multiplied
//   field<At, Bits>(unit)  bits [At, At + Bits) of every lane as a float; a field lies within a byte
//   any_bit(ints)          whether any bit is set in any lane
//
// A unit of tile16 is 16 lanes, and lane r is row r: a column of a block is one Lanes, and nothing is ever
// added across lanes. Columns go from the matrix through registers into the chains of several rows of x.
//
// Tried and dropped (the program of bench/kernels_bench.cpp in processor time, Zen 4, AVX-512, g++ -O2):
// decoding a group into memory for 32 rows of x, 47 instead of 54 GFMA/s for a batch of 256, because storing
// a column costs more than decoding it again; two or four blocks side by side for one row of x, 9 to 14
// instead of 17 GB/s but for 4096 columns, because the processor prefetches one stream well, and not several.

namespace moeflux {
namespace {

// Asks for what is read a little later, which need not exist. 4096 columns of x are half of the first-level
// cache and are pushed out by the matrix again and again: 17.3 instead of 14.7 GB/s, nothing lost elsewhere.
MF_LANES void prefetch_ahead(const std::byte* unit) { __builtin_prefetch(unit + 2048); }

// Some columns of a block that share scales.
struct Group {
  const std::byte* units;
  std::uint32_t first, cols;
  bool has_nan;  // fp8: one of the codes is not a number
};

// Chains [First, First + Count) of the four of a group, for some rows of x. Column k is chain k mod 4's.
template <unsigned Rows, unsigned First, unsigned Count>
struct Chains {
  const float* x[Rows];  // of the group
  Lanes c[Count][Rows];

  [[gnu::always_inline]] Chains(const float* const (&rows)[Rows], std::uint32_t first_col) {
#pragma GCC unroll 8
    for (unsigned row = 0; row < Rows; ++row) {
      x[row] = rows[row] + first_col;
#pragma GCC unroll 4
      for (unsigned chain = 0; chain < Count; ++chain) c[chain][row] = broadcast(0.0f);
    }
  }

  // w is column k + Chain; k is a multiple of 4. Columns of other chains are not taken, and so never decoded.
  template <unsigned Chain>
  [[gnu::always_inline]] void take(std::size_t k, Lanes w) {
    if constexpr (Chain >= First && Chain < First + Count) {
#pragma GCC unroll 8
      for (unsigned row = 0; row < Rows; ++row)
        c[Chain - First][row] = fma(w, broadcast(x[row][k + Chain]), c[Chain - First][row]);
    }
  }

  [[gnu::always_inline]] Lanes sum(unsigned row) const {
    if constexpr (Count == 4) {
      return (c[0][row] + c[1][row]) + (c[2][row] + c[3][row]);
    } else if constexpr (Count == 2) {
      return c[0][row] + c[1][row];
    } else {
      return c[0][row];
    }
  }
};

// ---- Encodings --------------------------------------------------------------------------------------------
//   group_cols     columns of a group, but for the last one
//   has_nan()      what Group wants to know
//   feed()         decodes the columns of a group into chains
//   scales()       those of a group
//   add_group()    acc with the group's sum s put in; `sums` are those of a row of x
//   group_bytes()  of a group of so many columns

template <unsigned Bits>
struct Affine {
  std::uint32_t group_cols;
  std::uint32_t scales_bytes;

  [[gnu::always_inline]] explicit Affine(const MatmulArgs& args)
      : group_cols(args.group), scales_bytes(args.f32_scales ? 2 * kUnitBytes : kUnitBytes) {}

  [[gnu::always_inline]] bool has_nan(const std::byte* /*units*/, std::uint32_t /*cols*/) const {
    return false;
  }

  template <class Chains>
  [[gnu::always_inline]] void feed(const Group& group, Chains& chains) const {
    const std::byte* low = group.units;
    const std::byte* high = group.units + std::size_t{group.cols} * 2 * Planes<Bits>::kLow;
    for (std::size_t k = 0; k < group.cols; k += kStep) {
      feed_quads<0>(low, high, k, chains);
      low += Planes<Bits>::kLow * kUnitBytes;
      high += Planes<Bits>::kHigh * kUnitBytes;
    }
  }

  using Scales = GroupScales;
  [[gnu::always_inline]] Scales scales(const Group& group) const {
    return group_scales(group.units + std::size_t{group.cols} * 2 * Bits, scales_bytes != kUnitBytes);
  }
  [[gnu::always_inline]] Lanes add_group(Lanes acc, Lanes s, const Group& group, const Scales& scales,
                                         const float* sums) const {
    sums += group.first / kSumCols;
    float sum_of_x = sums[0];
    for (std::uint32_t part = 1; part < group_cols / kSumCols; ++part) sum_of_x = sum_of_x + sums[part];
    return fma(scales.bias, broadcast(sum_of_x), fma(scales.scale, s, acc));
  }
  [[gnu::always_inline]] std::uint64_t group_bytes(std::uint32_t cols) const {
    return std::uint64_t{cols} * 2 * Bits + scales_bytes;
  }

 private:
  // Quads of columns, from number Index on to the end of the step.
  template <unsigned Index, class Chains>
  [[gnu::always_inline]] static void feed_quads(const std::byte* low, const std::byte* high, std::size_t k,
                                                Chains& chains) {
    constexpr unsigned kLow = Planes<Bits>::kLow, kHigh = Planes<Bits>::kHigh;
    constexpr unsigned kLowQuads = 8 / kLow;  // of a unit
    constexpr unsigned kLowAt = Index % kLowQuads * kLow;
    const std::byte* const unit = low + Index / kLowQuads * kUnitBytes;
    if constexpr (kLowAt == 0) prefetch_ahead(unit);
    if constexpr (kHigh == 0) {
      feed_quad<kLowAt, Bits>(load_unit(unit), k + 4 * Index, chains);
    } else {
      feed_quad<0, 8>(quad_codes<Bits, Index>(low, high), k + 4 * Index, chains);
    }
    if constexpr (4 * (Index + 1) < kStep) feed_quads<Index + 1>(low, high, k, chains);
  }

  // Bytes 0 to 3 of a lane are the columns of chains 0 to 3.
  template <unsigned At, unsigned FieldBits, class Chains>
  [[gnu::always_inline]] static void feed_quad(Ints unit, std::size_t k, Chains& chains) {
    chains.template take<0>(k, field<At, FieldBits>(unit));
    chains.template take<1>(k, field<At + 8, FieldBits>(unit));
    chains.template take<2>(k, field<At + 16, FieldBits>(unit));
    chains.template take<3>(k, field<At + 24, FieldBits>(unit));
  }
};

// What both plain encodings do with a group's sum.
struct Plain {
  static constexpr std::uint32_t group_cols = kPlainGroup;

  [[gnu::always_inline]] explicit Plain(const MatmulArgs& /*args*/) {}

  [[gnu::always_inline]] bool has_nan(const std::byte* /*units*/, std::uint32_t /*cols*/) const {
    return false;
  }

  struct Scales {};
  [[gnu::always_inline]] Scales scales(const Group& /*group*/) const { return {}; }
  [[gnu::always_inline]] Lanes add_group(Lanes acc, Lanes s, const Group& /*group*/, const Scales& /*scales*/,
                                         const float* /*sums*/) const {
    return acc + s;
  }
};

struct Bf16 : Plain {
  using Plain::Plain;

  template <class Chains>
  [[gnu::always_inline]] void feed(const Group& group, Chains& chains) const {
    const std::byte* units = group.units;
    std::size_t k = 0;
    for (; k + 4 <= group.cols; k += 4, units += 2 * kUnitBytes) {
      const Ints first = load_unit(units), second = load_unit(units + kUnitBytes);
      chains.template take<0>(k, lower_bf16(first));
      chains.template take<1>(k, upper_bf16(first));
      chains.template take<2>(k, lower_bf16(second));
      chains.template take<3>(k, upper_bf16(second));
    }
    if (k < group.cols) chains.template take<0>(k, lower_bf16(load_unit(units)));
    if (k + 1 < group.cols) chains.template take<1>(k, upper_bf16(load_unit(units)));
    if (k + 2 < group.cols) chains.template take<2>(k, lower_bf16(load_unit(units + kUnitBytes)));
  }
  [[gnu::always_inline]] std::uint64_t group_bytes(std::uint32_t cols) const {
    return (std::uint64_t{cols} + 1) / 2 * kUnitBytes;
  }
};

struct F32 : Plain {
  using Plain::Plain;

  template <class Chains>
  [[gnu::always_inline]] void feed(const Group& group, Chains& chains) const {
    const std::byte* units = group.units;
    std::size_t k = 0;
    for (; k + 4 <= group.cols; k += 4, units += 4 * kUnitBytes) {
      chains.template take<0>(k, as_float(load_unit(units)));
      chains.template take<1>(k, as_float(load_unit(units + kUnitBytes)));
      chains.template take<2>(k, as_float(load_unit(units + 2 * kUnitBytes)));
      chains.template take<3>(k, as_float(load_unit(units + 3 * kUnitBytes)));
    }
    if (k < group.cols) chains.template take<0>(k, as_float(load_unit(units)));
    if (k + 1 < group.cols) chains.template take<1>(k, as_float(load_unit(units + kUnitBytes)));
    if (k + 2 < group.cols) chains.template take<2>(k, as_float(load_unit(units + 2 * kUnitBytes)));
  }
  [[gnu::always_inline]] std::uint64_t group_bytes(std::uint32_t cols) const {
    return std::uint64_t{cols} * kUnitBytes;
  }
};

struct Fp8 {
  static constexpr std::uint32_t group_cols = 128;

  [[gnu::always_inline]] explicit Fp8(const MatmulArgs& /*args*/) {}

  // One question for a group instead of one for each column: in what `pack` writes, the answer is no.
  [[gnu::always_inline]] bool has_nan(const std::byte* units, std::uint32_t cols) const {
    Ints found = broadcast(std::int32_t{0});
    for (std::uint32_t k = 0; k < cols; k += 4, units += kUnitBytes) {
      prefetch_ahead(units);
      // A byte whose lower seven bits are all set gets its highest bit.
      const Ints magnitudes = load_unit(units) & broadcast(std::int32_t{0x7f7f7f7f});
      found = found | (magnitudes + broadcast(std::int32_t{0x01010101}));
    }
    return any_bit(found & broadcast(static_cast<std::int32_t>(0x80808080)));
  }

  template <class Chains>
  [[gnu::always_inline]] void feed(const Group& group, Chains& chains) const {
    if (group.has_nan)
      feed_codes<true>(group, chains);
    else
      feed_codes<false>(group, chains);
  }

  struct Scales {
    Lanes scale;
  };
  [[gnu::always_inline]] Scales scales(const Group& group) const {
    return {as_float(load_unit(group.units + group_bytes(group.cols) - kUnitBytes))};
  }
  [[gnu::always_inline]] Lanes add_group(Lanes acc, Lanes s, const Group& /*group*/, const Scales& scales,
                                         const float* /*sums*/) const {
    return fma(scales.scale, s, acc);
  }
  [[gnu::always_inline]] std::uint64_t group_bytes(std::uint32_t cols) const {
    return (std::uint64_t{cols} + 3) / 4 * kUnitBytes + kUnitBytes;
  }

 private:
  template <bool HasNan, class Chains>
  [[gnu::always_inline]] static void feed_codes(const Group& group, Chains& chains) {
    const std::byte* units = group.units;
    std::size_t k = 0;
    for (; k + 4 <= group.cols; k += 4, units += kUnitBytes) {
      const Ints unit = load_unit(units);
      chains.template take<0>(k, e4m3<HasNan>(shift_left<24>(unit)));
      chains.template take<1>(k, e4m3<HasNan>(shift_left<16>(unit)));
      chains.template take<2>(k, e4m3<HasNan>(shift_left<8>(unit)));
      chains.template take<3>(k, e4m3<HasNan>(unit));
    }
    if (k < group.cols) chains.template take<0>(k, e4m3<HasNan>(shift_left<24>(load_unit(units))));
    if (k + 1 < group.cols) chains.template take<1>(k, e4m3<HasNan>(shift_left<16>(load_unit(units))));
    if (k + 2 < group.cols) chains.template take<2>(k, e4m3<HasNan>(shift_left<8>(load_unit(units))));
  }

  // The uppermost byte of each lane. Its exponent and fraction, moved to where a float has them, are the
  // number 2^120 times too small, subnormal or not.
  template <bool HasNan>
  [[gnu::always_inline]] static Lanes e4m3(Ints upper) {
    const Ints bits = shift_right_signed<4>(upper) & broadcast(static_cast<std::int32_t>(0x87f00000));
    const Lanes number = as_float(bits) * broadcast(0x1p120f);
    if constexpr (HasNan) {
      const Ints ones = broadcast(std::int32_t{0x07f00000});
      const Lanes nan = as_float(broadcast(std::int32_t{0x7fc00000}));
      return select(equal(bits & ones, ones), nan, number);
    } else {
      return number;
    }
  }
};

// ---- Products ---------------------------------------------------------------------------------------------

// sum[row] = what chains [First, First + Count) of a group add up to, two by two as the law says.
template <unsigned First, unsigned Count, unsigned Rows, class Format>
MF_LANES void add_chains(const Format& format, const Group& group, const float* const (&x)[Rows],
                         Lanes (&sum)[Rows]) {
  if constexpr (Count > 1 && Count * Rows > kMatmulSums) {
    // Too many for the registers: one half after the other, each with the columns that it takes.
    Lanes second[Rows];
    add_chains<First, Count / 2>(format, group, x, sum);
    add_chains<First + Count / 2, Count / 2>(format, group, x, second);
#pragma GCC unroll 8
    for (unsigned row = 0; row < Rows; ++row) sum[row] = sum[row] + second[row];
  } else {
    Chains<Rows, First, Count> chains(x, group.first);
    format.feed(group, chains);
#pragma GCC unroll 8
    for (unsigned row = 0; row < Rows; ++row) sum[row] = chains.sum(row);
  }
}

// Rows [first_row, first_row + Rows) of the batch with one block.
template <unsigned Rows, class Format>
MF_LANES void multiply_rows(const Format& format, const MatmulArgs& args, std::uint32_t first_row,
                            std::uint32_t block) {
  const float* x[Rows];
  const float* sums[Rows];
  Lanes acc[Rows];
#pragma GCC unroll 8
  for (unsigned row = 0; row < Rows; ++row) {
    const std::uint64_t x_row = args.x_rows != nullptr ? args.x_rows[first_row + row] : first_row + row;
    x[row] = args.x + x_row * args.x_stride;
    sums[row] = args.sums != nullptr ? args.sums + x_row * args.sums_stride : nullptr;
    acc[row] = broadcast(0.0f);
  }
  const std::byte* units = args.blocks + block * args.block_stride;
  for (std::uint32_t first = 0; first < args.cols; first += format.group_cols) {
    const std::uint32_t left = args.cols - first;
    const std::uint32_t cols = left < format.group_cols ? left : format.group_cols;
    const Group group{units, first, cols, format.has_nan(units, cols)};
    Lanes s[Rows];
    add_chains<0, 4>(format, group, x, s);
    const auto scales = format.scales(group);
#pragma GCC unroll 8
    for (unsigned row = 0; row < Rows; ++row)
      acc[row] = format.add_group(acc[row], s[row], group, scales, sums[row]);
    units += format.group_bytes(cols);
  }
  const std::uint32_t rows_of_block = block + 1 == args.block_count ? args.last_block_rows : kBlockRows;
  float* y = args.y + first_row * args.y_stride + std::uint64_t{block} * args.y_block_stride;
#pragma GCC unroll 8
  for (unsigned row = 0; row < Rows; ++row) store_block(y + row * args.y_stride, acc[row], rows_of_block);
}

// The same for a number of rows that is known when it runs, 1..Most.
template <unsigned Most, class Format>
MF_LANES void multiply_some(const Format& format, const MatmulArgs& args, std::uint32_t first_row,
                            std::uint32_t rows, std::uint32_t block) {
  if (rows == Most) return multiply_rows<Most>(format, args, first_row, block);
  if constexpr (Most > 1) multiply_some<Most - 1>(format, args, first_row, rows, block);
}

// Rows of x that visit a block before the next is read: it and their x stay in the second-level cache.
constexpr std::uint32_t kChunkRows = 24;

template <class Format>
void multiply(const MatmulArgs& args) noexcept {
  const Format format(args);
  for (std::uint32_t chunk = 0; chunk < args.batch; chunk += kChunkRows) {
    const std::uint32_t end = args.batch - chunk < kChunkRows ? args.batch : chunk + kChunkRows;
    for (std::uint32_t block = 0; block < args.block_count; ++block) {
      // In shares of nearly one size: every share decodes the block, the small ones too.
      std::uint32_t shares = (end - chunk + kMatmulRows - 1) / kMatmulRows;
      for (std::uint32_t row = chunk; shares > 0; --shares) {
        const std::uint32_t rows = (end - row + shares - 1) / shares;
        multiply_some<kMatmulRows>(format, args, row, rows, block);
        row += rows;
      }
    }
  }
}

void sums_of_32(const float* x, std::uint32_t n, float* sums) noexcept {
  for (std::uint64_t first = 0; first < n; first += kSumCols)
    sums[first / kSumCols] = fold_add(broadcast(0.0f) + load(x + first) + load(x + first + kSumCols / 2));
}

constexpr MatmulKernels kMatmul = {
    .affine2 = multiply<Affine<2>>,
    .affine3 = multiply<Affine<3>>,
    .affine4 = multiply<Affine<4>>,
    .affine5 = multiply<Affine<5>>,
    .affine6 = multiply<Affine<6>>,
    .affine8 = multiply<Affine<8>>,
    .bf16 = multiply<Bf16>,
    .f32 = multiply<F32>,
    .fp8 = multiply<Fp8>,
    .sums = sums_of_32,
};

}  // namespace
}  // namespace moeflux
