#pragma once
// How the vector kernels decode a block of a matrix in tile16: a column at a time, sixteen rows in the lanes.

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

// The encodings. Each defines:
//   group_cols     columns per group; the last group may have fewer
//   kHasBias       whether the weight of a code has a bias
//   has_nan()      fills Group::has_nan
//   feed()         decodes the columns of a group: calls sink.take<i>(k, w) with column k + i, for i = 0 to 3
//                  and k = 0, 4, ...; decoding that a sink does not use is optimized away
//   scales()       the scales of a group
//   add_group()    adds the sum s of a group to acc, for products; `sums` holds the sums of a row of x
//   group_bytes()  bytes of a group of `cols` columns
template <class Isa>
struct Encodings {
  using Lanes = LanesOf<Isa>;
  using Ints = IntsOf<Isa>;

  template <unsigned Bits>
  struct Affine {
    static constexpr bool kHasBias = true;
    std::uint32_t group_cols;
    std::uint32_t scales_bytes;

    template <class Args>
    [[gnu::always_inline]] explicit Affine(const Args& args)
        : group_cols(args.group), scales_bytes(args.f32_scales ? 2 * kUnitBytes : kUnitBytes) {}

    [[gnu::always_inline]] bool has_nan(const std::byte* /*units*/, std::uint32_t /*cols*/) const {
      return false;
    }

    template <class Sink>
    [[gnu::always_inline]] void feed(const Group& group, Sink& sink) const {
      const std::byte* low = group.units;
      const std::byte* high = group.units + std::size_t{group.cols} * 2 * Planes<Bits>::kLow;
      for (std::size_t k = 0; k < group.cols; k += kStep) {
        feed_quads<0>(low, high, k, sink);
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
    template <unsigned Index, class Sink>
    [[gnu::always_inline]] static void feed_quads(const std::byte* low, const std::byte* high, std::size_t k,
                                                  Sink& sink) {
      constexpr unsigned kLow = Planes<Bits>::kLow, kHigh = Planes<Bits>::kHigh;
      constexpr unsigned kLowQuads = 8 / kLow;  // per unit
      constexpr unsigned kLowAt = Index % kLowQuads * kLow;
      const std::byte* const unit = low + Index / kLowQuads * kUnitBytes;
      if constexpr (kLowAt == 0) prefetch_ahead(unit);
      if constexpr (kHigh == 0) {
        feed_quad<kLowAt, Bits>(Isa::load_unit(unit), k + 4 * Index, sink);
      } else {
        feed_quad<0, 8>(quad_codes<Isa, Bits, Index>(low, high), k + 4 * Index, sink);
      }
      if constexpr (4 * (Index + 1) < kStep) feed_quads<Index + 1>(low, high, k, sink);
    }

    // Bytes 0 to 3 of a lane are columns k to k + 3.
    template <unsigned At, unsigned FieldBits, class Sink>
    [[gnu::always_inline]] static void feed_quad(Ints unit, std::size_t k, Sink& sink) {
      sink.template take<0>(k, field<At, FieldBits>(unit));
      sink.template take<1>(k, field<At + 8, FieldBits>(unit));
      sink.template take<2>(k, field<At + 16, FieldBits>(unit));
      sink.template take<3>(k, field<At + 24, FieldBits>(unit));
    }
  };

  // How both plain encodings add a group's sum.
  struct Plain {
    static constexpr bool kHasBias = false;
    static constexpr std::uint32_t group_cols = kPlainGroup;

    template <class Args>
    [[gnu::always_inline]] explicit Plain(const Args& /*args*/) {}

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

    template <class Sink>
    [[gnu::always_inline]] void feed(const Group& group, Sink& sink) const {
      const std::byte* units = group.units;
      std::size_t k = 0;
      for (; k + 4 <= group.cols; k += 4, units += 2 * kUnitBytes) {
        const Ints first = Isa::load_unit(units), second = Isa::load_unit(units + kUnitBytes);
        sink.template take<0>(k, lower_bf16(first));
        sink.template take<1>(k, upper_bf16<Isa>(first));
        sink.template take<2>(k, lower_bf16(second));
        sink.template take<3>(k, upper_bf16<Isa>(second));
      }
      if (k < group.cols) sink.template take<0>(k, lower_bf16(Isa::load_unit(units)));
      if (k + 1 < group.cols) sink.template take<1>(k, upper_bf16<Isa>(Isa::load_unit(units)));
      if (k + 2 < group.cols) sink.template take<2>(k, lower_bf16(Isa::load_unit(units + kUnitBytes)));
    }
    [[gnu::always_inline]] std::uint64_t group_bytes(std::uint32_t cols) const {
      return (std::uint64_t{cols} + 1) / 2 * kUnitBytes;
    }
  };

  struct F32 : Plain {
    using Plain::Plain;

    template <class Sink>
    [[gnu::always_inline]] void feed(const Group& group, Sink& sink) const {
      const std::byte* units = group.units;
      std::size_t k = 0;
      for (; k + 4 <= group.cols; k += 4, units += 4 * kUnitBytes) {
        sink.template take<0>(k, as_float(Isa::load_unit(units)));
        sink.template take<1>(k, as_float(Isa::load_unit(units + kUnitBytes)));
        sink.template take<2>(k, as_float(Isa::load_unit(units + 2 * kUnitBytes)));
        sink.template take<3>(k, as_float(Isa::load_unit(units + 3 * kUnitBytes)));
      }
      if (k < group.cols) sink.template take<0>(k, as_float(Isa::load_unit(units)));
      if (k + 1 < group.cols) sink.template take<1>(k, as_float(Isa::load_unit(units + kUnitBytes)));
      if (k + 2 < group.cols) sink.template take<2>(k, as_float(Isa::load_unit(units + 2 * kUnitBytes)));
    }
    [[gnu::always_inline]] std::uint64_t group_bytes(std::uint32_t cols) const {
      return std::uint64_t{cols} * kUnitBytes;
    }
  };

  struct Fp8 {
    static constexpr bool kHasBias = false;
    static constexpr std::uint32_t group_cols = 128;

    template <class Args>
    [[gnu::always_inline]] explicit Fp8(const Args& /*args*/) {}

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

    template <class Sink>
    [[gnu::always_inline]] void feed(const Group& group, Sink& sink) const {
      if (group.has_nan)
        feed_codes<true>(group, sink);
      else
        feed_codes<false>(group, sink);
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
    template <bool HasNan, class Sink>
    [[gnu::always_inline]] static void feed_codes(const Group& group, Sink& sink) {
      const std::byte* units = group.units;
      std::size_t k = 0;
      for (; k + 4 <= group.cols; k += 4, units += kUnitBytes) {
        const Ints unit = Isa::load_unit(units);
        sink.template take<0>(k, e4m3<HasNan>(shift_left<24>(unit)));
        sink.template take<1>(k, e4m3<HasNan>(shift_left<16>(unit)));
        sink.template take<2>(k, e4m3<HasNan>(shift_left<8>(unit)));
        sink.template take<3>(k, e4m3<HasNan>(unit));
      }
      if (k < group.cols) sink.template take<0>(k, e4m3<HasNan>(shift_left<24>(Isa::load_unit(units))));
      if (k + 1 < group.cols) sink.template take<1>(k, e4m3<HasNan>(shift_left<16>(Isa::load_unit(units))));
      if (k + 2 < group.cols) sink.template take<2>(k, e4m3<HasNan>(shift_left<8>(Isa::load_unit(units))));
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
};

}  // namespace
}  // namespace moeflux::vector
