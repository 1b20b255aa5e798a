#pragma once
// A view of an encoded matrix, and its reference decode.
//
// The decode defines the meaning of encoded bytes. It consists of plain loops, one weight at a time, and is
// used by tests, `pack` and `inspect --check`, but never in the token loop; kernels are tested against it. A
// view owns nothing and may be unaligned. Pure functions: any thread.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "quant/encoding.h"

namespace moeflux {

struct MatrixView {
  std::uint64_t rows = 0;
  std::uint64_t cols = 0;
  Encoding encoding;
  std::span<const std::byte> codes;   // plain: [rows][cols] floats; affine: [rows][cols * bits / 32] words;
                                      // fp8: [rows][cols] bytes
  std::span<const std::byte> scales;  // affine: [rows][cols / group]; fp8: [ceil(rows/128)][ceil(cols/128)]
  std::span<const std::byte> biases;  // affine: [rows][cols / group]
};

// Decodes row `row` to float32. out: [cols]. Requires: the spans of the view have the sizes of
// encoded_bytes().
//   plain: the float itself.  affine: float(code) * scale + bias, each operation rounded to float32
//   (the product is exact for BF16 and F16 scales).  fp8: float(e4m3) * inverse scale.
void decode_row(const MatrixView& matrix, std::uint64_t row, std::span<float> out);

// The code of one weight of an affine matrix: bits [col*bits, col*bits + bits) of the stream of its row.
std::uint32_t affine_code(const MatrixView& matrix, std::uint64_t row, std::uint64_t col);

// Describes the first value in row `row` that is not finite ("the scale of group 3 is nan", "the weight of
// column 17 is inf"), or returns nullopt if every scale, bias and weight is finite. decoded: [cols], from
// decode_row(). If the view is a slice of rows, `first_row` is its first row in the whole matrix, so that
// blocks are named by their index there.
std::optional<std::string> find_not_finite(const MatrixView& matrix, std::uint64_t row,
                                           std::span<const float> decoded, std::uint64_t first_row = 0);

// Whether every scale, bias, plain weight and fp8 code is finite. Fast: it checks exponents and decodes
// nothing. A product can still overflow; find_not_finite() on decoded rows detects that too.
bool is_finite(const MatrixView& matrix);

}  // namespace moeflux
