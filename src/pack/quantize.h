#pragma once
// Quantizes floats to affine codes by MLX's own rule, bit for bit.
//
// A group's scale spans its largest and smallest number, and the one of larger magnitude is represented
// exactly. Scale and bias are rounded to BF16 first; the codes are computed from the rounded values, so
// decoding gives the nearest representable numbers.

#include <cstdint>
#include <span>
#include <vector>

#include "quant/matrix.h"

namespace moeflux {

// Rounds to nearest, ties to even. NaN stays NaN. Pure function: any thread.
std::uint16_t bf16_from_float(float value);

// Quantized rows. Owns the bytes of its views. One thread at a time.
class QuantizedRows {
 public:
  // Has room for `max_rows` rows. Requires: `cols` is a multiple of the group, the bits divide 32, scales are
  // BF16.
  QuantizedRows(std::uint64_t max_rows, std::uint64_t cols, AffineFormat format);

  // Quantizes `numbers` ([cols], all finite) into row `row`.
  void set_row(std::uint64_t row, std::span<const float> numbers);

  // The first `rows` rows; valid until the next set_row().
  MatrixView view(std::uint64_t rows) const;

 private:
  std::uint64_t cols_;
  AffineFormat format_;
  std::vector<std::byte> codes_, scales_, biases_;
};

}  // namespace moeflux
