#pragma once
// The matrix products, sixteen output rows at a time; scalar/matmul.cpp is the specification.
//
// A unit of tile16 is 16 lanes, and lane r is row r: a column of a block is one Lanes, and nothing is ever
// added across lanes. Each column of the matrix is decoded in registers and feeds the chains of several rows
// of x.
//
// Tried and dropped (bench/kernels_bench, processor time, Zen 4, AVX-512, g++ -O2): decoding a group into
// memory for 32 rows of x, 47 instead of 54 GFMA/s for a batch of 256, because storing a column costs more
// than decoding it again; two or four blocks side by side for one row of x, 9 to 14 instead of 17 GB/s except
// for 4096 columns, because the processor prefetches one stream well, but not several.

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"
#include "kernels/vector/codes.h"
#include "kernels/vector/lanes.h"

namespace moeflux::vector {
namespace {

// Prefetches past `unit`; the address need not exist. The 4096 columns of x take half of the L1 cache, and
// the matrix evicts them again and again: 17.3 instead of 14.7 GB/s, and no loss elsewhere.
MF_INLINE void prefetch_ahead(const std::byte* unit) { __builtin_prefetch(unit + 2048); }

// Columns of a block that share scales.
struct Group {
  const std::byte* units;
  std::uint32_t first, cols;
  bool has_nan;  // fp8: one of the codes is not a number
};

template <class Isa>
struct Matmul {
  using Lanes = LanesOf<Isa>;
  using Ints = IntsOf<Isa>;

  // Chains [First, First + Count) of the four of a group, for `Rows` rows of x. Column k belongs to chain k
  // mod 4.
  template <unsigned Rows, unsigned First, unsigned Count>
  struct Chains {
    const float* x[Rows];  // at the first column of the group
    Lanes c[Count][Rows];

    [[gnu::always_inline]] Chains(const float* const (&rows)[Rows], std::uint32_t first_col) {
#pragma GCC unroll 8
      for (unsigned row = 0; row < Rows; ++row) {
        x[row] = rows[row] + first_col;
#pragma GCC unroll 4
        for (unsigned chain = 0; chain < Count; ++chain) c[chain][row] = Isa::broadcast(0.0f);
      }
    }

    // w is column k + Chain, where k is a multiple of 4. Columns of other chains are ignored, so the compiler
    // never decodes them.
    template <unsigned Chain>
    [[gnu::always_inline]] void take(std::size_t k, Lanes w) {
      if constexpr (Chain >= First && Chain < First + Count) {
#pragma GCC unroll 8
        for (unsigned row = 0; row < Rows; ++row)
          c[Chain - First][row] = fma(w, Isa::broadcast(x[row][k + Chain]), c[Chain - First][row]);
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

  // ---- Encodings -----------------------------------------------------------------------------------------
  //   group_cols     columns per group; the last group may have fewer
  //   has_nan()      fills Group::has_nan
  //   feed()         decodes the columns of a group into chains
  //   scales()       the scales of a group
  //   add_group()    adds the sum s of a group to acc; `sums` holds the sums of a row of x
  //   group_bytes()  bytes of a group of `cols` columns

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

    using Scales = GroupScales<Isa>;
    [[gnu::always_inline]] Scales scales(const Group& group) const {
      return group_scales<Isa>(group.units + std::size_t{group.cols} * 2 * Bits, scales_bytes != kUnitBytes);
    }
    [[gnu::always_inline]] Lanes add_group(Lanes acc, Lanes s, const Group& group, const Scales& scales,
                                           const float* sums) const {
      sums += group.first / kSumCols;
      float sum_of_x = sums[0];
      for (std::uint32_t part = 1; part < group_cols / kSumCols; ++part) sum_of_x = sum_of_x + sums[part];
      return fma(scales.bias, Isa::broadcast(sum_of_x), fma(scales.scale, s, acc));
    }
    [[gnu::always_inline]] std::uint64_t group_bytes(std::uint32_t cols) const {
      return std::uint64_t{cols} * 2 * Bits + scales_bytes;
    }

   private:
    // Quads of columns from quad Index to the end of the step.
    template <unsigned Index, class Chains>
    [[gnu::always_inline]] static void feed_quads(const std::byte* low, const std::byte* high, std::size_t k,
                                                  Chains& chains) {
      constexpr unsigned kLow = Planes<Bits>::kLow, kHigh = Planes<Bits>::kHigh;
      constexpr unsigned kLowQuads = 8 / kLow;  // per unit
      constexpr unsigned kLowAt = Index % kLowQuads * kLow;
      const std::byte* const unit = low + Index / kLowQuads * kUnitBytes;
      if constexpr (kLowAt == 0) prefetch_ahead(unit);
      if constexpr (kHigh == 0) {
        feed_quad<kLowAt, Bits>(Isa::load_unit(unit), k + 4 * Index, chains);
      } else {
        feed_quad<0, 8>(quad_codes<Isa, Bits, Index>(low, high), k + 4 * Index, chains);
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

  // How both plain encodings add a group's sum.
  struct Plain {
    static constexpr std::uint32_t group_cols = kPlainGroup;

    [[gnu::always_inline]] explicit Plain(const MatmulArgs& /*args*/) {}

    [[gnu::always_inline]] bool has_nan(const std::byte* /*units*/, std::uint32_t /*cols*/) const {
      return false;
    }

    struct Scales {};
    [[gnu::always_inline]] Scales scales(const Group& /*group*/) const { return {}; }
    [[gnu::always_inline]] Lanes add_group(Lanes acc, Lanes s, const Group& /*group*/,
                                           const Scales& /*scales*/, const float* /*sums*/) const {
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
        const Ints first = Isa::load_unit(units), second = Isa::load_unit(units + kUnitBytes);
        chains.template take<0>(k, lower_bf16(first));
        chains.template take<1>(k, upper_bf16<Isa>(first));
        chains.template take<2>(k, lower_bf16(second));
        chains.template take<3>(k, upper_bf16<Isa>(second));
      }
      if (k < group.cols) chains.template take<0>(k, lower_bf16(Isa::load_unit(units)));
      if (k + 1 < group.cols) chains.template take<1>(k, upper_bf16<Isa>(Isa::load_unit(units)));
      if (k + 2 < group.cols) chains.template take<2>(k, lower_bf16(Isa::load_unit(units + kUnitBytes)));
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
        chains.template take<0>(k, as_float(Isa::load_unit(units)));
        chains.template take<1>(k, as_float(Isa::load_unit(units + kUnitBytes)));
        chains.template take<2>(k, as_float(Isa::load_unit(units + 2 * kUnitBytes)));
        chains.template take<3>(k, as_float(Isa::load_unit(units + 3 * kUnitBytes)));
      }
      if (k < group.cols) chains.template take<0>(k, as_float(Isa::load_unit(units)));
      if (k + 1 < group.cols) chains.template take<1>(k, as_float(Isa::load_unit(units + kUnitBytes)));
      if (k + 2 < group.cols) chains.template take<2>(k, as_float(Isa::load_unit(units + 2 * kUnitBytes)));
    }
    [[gnu::always_inline]] std::uint64_t group_bytes(std::uint32_t cols) const {
      return std::uint64_t{cols} * kUnitBytes;
    }
  };

  struct Fp8 {
    static constexpr std::uint32_t group_cols = 128;

    [[gnu::always_inline]] explicit Fp8(const MatmulArgs& /*args*/) {}

    // One test per group instead of one per column: in what `pack` writes there are no NaNs.
    [[gnu::always_inline]] bool has_nan(const std::byte* units, std::uint32_t cols) const {
      Ints found = Isa::broadcast(std::int32_t{0});
      for (std::uint32_t k = 0; k < cols; k += 4, units += kUnitBytes) {
        prefetch_ahead(units);
        // If the lower seven bits of a byte are all set, the sum sets its highest bit.
        const Ints magnitudes = Isa::load_unit(units) & Isa::broadcast(std::int32_t{0x7f7f7f7f});
        found = found | (magnitudes + Isa::broadcast(std::int32_t{0x01010101}));
      }
      return any_bit(found & Isa::broadcast(static_cast<std::int32_t>(0x80808080)));
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
      return {as_float(Isa::load_unit(group.units + group_bytes(group.cols) - kUnitBytes))};
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
        const Ints unit = Isa::load_unit(units);
        chains.template take<0>(k, e4m3<HasNan>(shift_left<24>(unit)));
        chains.template take<1>(k, e4m3<HasNan>(shift_left<16>(unit)));
        chains.template take<2>(k, e4m3<HasNan>(shift_left<8>(unit)));
        chains.template take<3>(k, e4m3<HasNan>(unit));
      }
      if (k < group.cols) chains.template take<0>(k, e4m3<HasNan>(shift_left<24>(Isa::load_unit(units))));
      if (k + 1 < group.cols) chains.template take<1>(k, e4m3<HasNan>(shift_left<16>(Isa::load_unit(units))));
      if (k + 2 < group.cols) chains.template take<2>(k, e4m3<HasNan>(shift_left<8>(Isa::load_unit(units))));
    }

    // Decodes the uppermost byte of each lane. With exponent and fraction moved to their places in a float,
    // the number is 2^120 times too small, subnormal or not.
    template <bool HasNan>
    [[gnu::always_inline]] static Lanes e4m3(Ints upper) {
      const Ints bits = shift_right_signed<4>(upper) & Isa::broadcast(static_cast<std::int32_t>(0x87f00000));
      const Lanes number = as_float(bits) * Isa::broadcast(0x1p120f);
      if constexpr (HasNan) {
        const Ints ones = Isa::broadcast(std::int32_t{0x07f00000});
        const Lanes nan = as_float(Isa::broadcast(std::int32_t{0x7fc00000}));
        return select(equal(bits & ones, ones), nan, number);
      } else {
        return number;
      }
    }
  };

  // ---- Products ------------------------------------------------------------------------------------------

  // sum[row] = the sum of chains [First, First + Count) of a group, added in pairs as the law says.
  template <unsigned First, unsigned Count, unsigned Rows, class Format>
  MF_INLINE void add_chains(const Format& format, const Group& group, const float* const (&x)[Rows],
                            Lanes (&sum)[Rows]) {
    if constexpr (Count > 1 && Count * Rows > Isa::kMatmulSums) {
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

  // Multiplies rows [first_row, first_row + Rows) of the batch with one block.
  template <unsigned Rows, class Format>
  MF_INLINE void multiply_rows(const Format& format, const MatmulArgs& args, std::uint32_t first_row,
                               std::uint32_t block) {
    const float* x[Rows];
    const float* sums[Rows];
    Lanes acc[Rows];
#pragma GCC unroll 8
    for (unsigned row = 0; row < Rows; ++row) {
      const std::uint64_t x_row = args.x_rows != nullptr ? args.x_rows[first_row + row] : first_row + row;
      x[row] = args.x + x_row * args.x_stride;
      sums[row] = args.sums != nullptr ? args.sums + x_row * args.sums_stride : nullptr;
      acc[row] = Isa::broadcast(0.0f);
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

  // The same for a number of rows known at run time, 1..Most.
  template <unsigned Most, class Format>
  MF_INLINE void multiply_some(const Format& format, const MatmulArgs& args, std::uint32_t first_row,
                               std::uint32_t rows, std::uint32_t block) {
    if (rows == Most) return multiply_rows<Most>(format, args, first_row, block);
    if constexpr (Most > 1) multiply_some<Most - 1>(format, args, first_row, rows, block);
  }

  // Rows of x that visit a block before the next is read: the block and the rows stay in the L2 cache.
  static constexpr std::uint32_t kChunkRows = 24;

  template <class Format>
  static void multiply(const MatmulArgs& args) noexcept {
    const Format format(args);
    for (std::uint32_t chunk = 0; chunk < args.batch; chunk += kChunkRows) {
      const std::uint32_t end = args.batch - chunk < kChunkRows ? args.batch : chunk + kChunkRows;
      for (std::uint32_t block = 0; block < args.block_count; ++block) {
        // Split evenly: every share decodes the block, small shares too.
        std::uint32_t shares = (end - chunk + Isa::kMatmulRows - 1) / Isa::kMatmulRows;
        for (std::uint32_t row = chunk; shares > 0; --shares) {
          const std::uint32_t rows = (end - row + shares - 1) / shares;
          multiply_some<Isa::kMatmulRows>(format, args, row, rows, block);
          row += rows;
        }
      }
    }
  }

  static void sums_of_32(const float* x, std::uint32_t n, float* sums) noexcept {
    for (std::uint64_t first = 0; first < n; first += kSumCols)
      sums[first / kSumCols] =
          fold_add(Isa::broadcast(0.0f) + Isa::load(x + first) + Isa::load(x + first + kSumCols / 2));
  }

  static constexpr MatmulKernels kTable = {
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
};

}  // namespace
}  // namespace moeflux::vector
