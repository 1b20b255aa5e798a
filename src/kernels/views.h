#pragma once
// Views of activations: rows of float32 in the memory of whoever runs the operations.
//
// A view carries shape and place and owns nothing. Layers pass views to Ops and never look through the pointer:
// on another device it would not be theirs to read. Plain values.

#include <cstdint>

#include "base/check.h"

namespace moeflux {

// [count][cols], `stride` floats from one row to the next.
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

// [count][heads][dim]: rows cut into heads.
struct Heads {
  float* data = nullptr;
  std::uint32_t count = 0;
  std::uint32_t heads = 0;
  std::uint32_t dim = 0;
  std::uint64_t stride = 0;       // from row to row, in floats
  std::uint64_t head_stride = 0;  // from head to head

  float* head(std::uint64_t row, std::uint64_t index) const {
    return data + row * stride + index * head_stride;
  }
  // Of every head, channels [first, first + channels).
  Heads part(std::uint32_t first, std::uint32_t channels) const {
    MF_REQUIRE(first <= dim && channels <= dim - first, "the channels are among those of a head");
    return {data + first, count, heads, channels, stride, head_stride};
  }
};

// `rows` as heads of `dim` that follow each other.
inline Heads as_heads(const Rows& rows, std::uint32_t heads, std::uint32_t dim) {
  MF_REQUIRE(std::uint64_t{heads} * dim == rows.cols, "the heads fill the row");
  return {rows.data, rows.count, heads, dim, rows.stride, dim};
}

// Rows rounded to bytes, for integer products (kernel_table.h).
struct ByteRows {
  std::int8_t* codes = nullptr;  // [count][cols]; null: there are none
  std::uint64_t stride = 0;      // in bytes
  Rows scales;                   // [count][cols / 64, rounded up]
  Rows sums;                     // [count][cols / 32]: of the codes
  std::int8_t* fine = nullptr;   // as codes; null: there are none
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

// Rows prepared, once, to be multiplied by any number of matrices. Both are empty where cols is no multiple of 32.
struct Input {
  Rows x;
  Rows sums = {};       // exact: [count][cols / 32], of 32 columns each (kernel_table.h)
  ByteRows bytes = {};  // fast

  Input some(std::uint32_t first, std::uint32_t count) const {
    return {x.some(first, count), sums.data == nullptr ? Rows{} : sums.some(first, count),
            bytes.codes == nullptr ? ByteRows{} : bytes.some(first, count)};
  }
};

}  // namespace moeflux
