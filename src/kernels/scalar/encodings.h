#pragma once
// How the scalar kernels read a row of a matrix in tile16, one number at a time. Plain values.

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"
#include "quant/tile16_layout.h"

namespace moeflux::scalar {

using tile16::kUnitBytes;

// Columns of a row that share a scale.
struct Group {
  const std::byte* lane;  // the row's lane of the group's first unit
  std::uint32_t first, cols;
};

// What an encoding defines:
//   group_cols     columns per group; the last group may have fewer
//   number()       the factor of column `first + k`
//   group_bytes()  from this group to the next
// and, for affine matrices, scales(): the scale and bias of the row in the group; for fp8, scale().

template <std::uint32_t Bits>
struct Affine {
  template <class Args>
  explicit Affine(const Args& args)
      : group_cols(args.group), scale_dtype(args.f32_scales ? Dtype::f32 : Dtype::bf16) {}

  AffineFormat format() const { return {Bits, group_cols, scale_dtype}; }
  float number(const Group& group, std::uint32_t k) const {
    return static_cast<float>(tile16::code_at(group.lane, format(), k));
  }
  tile16::ScaleAndBias scales(const Group& group) const {
    return tile16::scale_and_bias(group.lane + tile16::codes_bytes(format()), format());
  }
  std::uint64_t group_bytes(const Group& /*group*/) const { return tile16::group_bytes(format()); }

  std::uint32_t group_cols;
  Dtype scale_dtype;
};

struct Bf16 {
  template <class Args>
  explicit Bf16(const Args& /*args*/) {}

  float number(const Group& group, std::uint32_t k) const {
    return load_float(group.lane + k / 2 * kUnitBytes, k % 2, Dtype::bf16);
  }
  std::uint64_t group_bytes(const Group& group) const { return (group.cols + 1) / 2 * kUnitBytes; }

  std::uint32_t group_cols = kPlainGroup;
};

struct F32 {
  template <class Args>
  explicit F32(const Args& /*args*/) {}

  float number(const Group& group, std::uint32_t k) const { return load<float>(group.lane + k * kUnitBytes); }
  std::uint64_t group_bytes(const Group& group) const { return group.cols * kUnitBytes; }

  std::uint32_t group_cols = kPlainGroup;
};

struct Fp8 {
  template <class Args>
  explicit Fp8(const Args& /*args*/) {}

  float number(const Group& group, std::uint32_t k) const {
    return float_from_e4m3(std::to_integer<std::uint8_t>(group.lane[k / 4 * kUnitBytes + k % 4]));
  }
  float scale(const Group& group) const { return load<float>(group.lane + group_bytes(group) - kUnitBytes); }
  std::uint64_t group_bytes(const Group& group) const { return tile16::fp8_group_bytes(group.cols); }

  std::uint32_t group_cols = Fp8BlockFormat::kBlock;
};

}  // namespace moeflux::scalar
