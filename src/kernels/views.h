#pragma once
// Views of activations: rows of float32 in the memory of the Ops that computes on them.
//
// A view has a shape and a pointer and owns nothing. Layers pass views to Ops and never dereference the
// pointer, which may point into the memory of another device. Plain values.

#include <cstdint>

#include "base/check.h"

namespace moeflux {

// [count][cols], with `stride` floats from row to row.
struct Rows {
  float* data = nullptr;
  std::uint32_t count = 0;
  std::uint32_t cols = 0;
  std::uint64_t stride = 0;

  float* row(std::uint64_t index) const { return data + index * stride; }
  Rows some(std::uint32_t first, std::uint32_t some_count) const {
    MF_REQUIRE(first <= count && some_count <= count - first, "the rows are among those of the view");
    return {row(first), some_count, cols, stride};
  }
  Rows columns(std::uint32_t first, std::uint32_t some_cols) const {
    MF_REQUIRE(first <= cols && some_cols <= cols - first, "the columns are among those of the view");
    return {data + first, count, some_cols, stride};
  }
};

// [count][heads][dim]: rows split into heads.
struct Heads {
  float* data = nullptr;
  std::uint32_t count = 0;
  std::uint32_t heads = 0;
  std::uint32_t dim = 0;
  std::uint64_t stride = 0;       // in floats, from row to row
  std::uint64_t head_stride = 0;  // in floats, from head to head

  float* head(std::uint64_t row, std::uint64_t index) const {
    return data + row * stride + index * head_stride;
  }
  // Channels [first, first + channels) of every head.
  Heads part(std::uint32_t first, std::uint32_t channels) const {
    MF_REQUIRE(first <= dim && channels <= dim - first, "the channels are among those of a head");
    return {data + first, count, heads, channels, stride, head_stride};
  }
};

// `rows` as consecutive heads of `dim` channels.
inline Heads as_heads(const Rows& rows, std::uint32_t heads, std::uint32_t dim) {
  MF_REQUIRE(std::uint64_t{heads} * dim == rows.cols, "the heads fill the row");
  return {rows.data, rows.count, heads, dim, rows.stride, dim};
}

// Rows quantized to bytes, for integer products (kernel_table.h).
struct ByteRows {
  std::int8_t* codes = nullptr;  // [count][cols]; null: none
  std::uint64_t stride = 0;      // in bytes
  Rows scales;                   // [count][cols / 64, rounded up]
  Rows sums;                     // [count][cols / 32]: sums of the codes
  std::int8_t* fine = nullptr;   // as codes; null: none
  Rows fine_sums;                // as sums

  ByteRows some(std::uint32_t first, std::uint32_t count) const {
    return {codes + first * stride,
            stride,
            scales.some(first, count),
            sums.some(first, count),
            fine == nullptr ? nullptr : fine + first * stride,
            fine == nullptr ? Rows{} : fine_sums.some(first, count)};
  }
};

// Rows prepared once, to be multiplied by any number of matrices. `sums` and `bytes` are empty if cols is not
// a multiple of 32.
struct Input {
  Rows x;
  Rows sums = {};       // for `exact`: [count][cols / 32], sums of 32 columns (kernel_table.h)
  ByteRows bytes = {};  // for `fast`

  Input some(std::uint32_t first, std::uint32_t count) const {
    return {x.some(first, count), sums.data == nullptr ? Rows{} : sums.some(first, count),
            bytes.codes == nullptr ? ByteRows{} : bytes.some(first, count)};
  }
};

}  // namespace moeflux
