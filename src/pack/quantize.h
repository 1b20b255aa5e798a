#pragma once
// Floats → MLX affine codes, by MLX's own rule, bit for bit.
//
// A group's scale spans its largest and smallest number, with the one of larger magnitude hit exactly;
// scale and bias are rounded to BF16 first, and the codes follow from the rounded values, so that a decode
// gives the nearest representable numbers. Pure functions: any thread.

#include <cstdint>
#include <span>
#include <vector>

#include "quant/matrix.h"

namespace moeflux {

// Rounds to nearest, ties to even. NaN stays NaN.
std::uint16_t bf16_from_float(float value);

// Rows of numbers, quantized: owns the bytes of the view that it gives.
class QuantizedRows {
 public:
  // cols is a multiple of group. Capacity for `max_rows`; bits 4 or 8 (any that divides 32).
  QuantizedRows(std::uint64_t max_rows, std::uint64_t cols, AffineFormat format);

  // Replaces row `row`. numbers: [cols], all finite.
  void set_row(std::uint64_t row, std::span<const float> numbers);

  MatrixView view(std::uint64_t rows) const;

 private:
  std::uint64_t cols_;
  AffineFormat format_;
  std::vector<std::byte> codes_, scales_, biases_;
};

}  // namespace moeflux
