#pragma once
// A view of one encoded matrix, and its reference decode.
//
// The decode is the definition of what encoded bytes mean: plain loops, one number after another, used by
// tests, by `pack` and by `inspect --check`. Kernels are tested against it; it is never in the token loop.
// A view owns nothing and may be unaligned. Pure functions: any thread.

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

// The numbers of row `row`, as float32. out: [cols]. The view's spans have the sizes of encoded_bytes().
//   plain: the float itself.  affine: float(code) * scale + bias, each operation rounded to float32
//   (the product is exact for BF16 and F16 scales).  fp8: float(e4m3) * inverse scale.
void decode_row(const MatrixView& matrix, std::uint64_t row, std::span<float> out);

// The code of one number of an affine matrix: bits [col*bits, col*bits + bits) of the row's stream.
std::uint32_t affine_code(const MatrixView& matrix, std::uint64_t row, std::uint64_t col);

// What is not a finite number in row `row`, in words ("the scale of group 3 is nan", "the weight of column 17
// is inf"); nothing when every scale, bias and weight is finite. decoded: [cols], the row from decode_row().
// `first_row` is the place of a view that is a slice: blocks are named by their place in the whole matrix.
std::optional<std::string> find_not_finite(const MatrixView& matrix, std::uint64_t row,
                                           std::span<const float> decoded, std::uint64_t first_row = 0);

// Whether every scale, bias, plain number and fp8 code is finite. Fast: it looks at exponents and decodes
// nothing. A product can still overflow; find_not_finite() on decoded rows sees that too.
bool is_finite(const MatrixView& matrix);

}  // namespace moeflux
