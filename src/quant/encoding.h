#pragma once
// The encodings of a matrix.
//
//   PlainFormat     one float per weight: BF16, F16, F32.
//   AffineFormat    MLX's quantization: w = scale * code + bias. A row is a little-endian stream of
//                   `bits`-bit codes in 32-bit words; every `group` consecutive weights of a row share a
//                   scale and a bias.
//   Fp8BlockFormat  one e4m3 byte per weight, times one inverse scale per 128 x 128 block of the matrix; the
//                   blocks at the right and bottom edges may be partial.
//
// Bits and group are always passed together, as an AffineFormat. Plain values: any thread.

#include <cstdint>
#include <string>
#include <variant>

#include "quant/dtype.h"

namespace moeflux {

struct PlainFormat {
  Dtype dtype;
  friend bool operator==(const PlainFormat&, const PlainFormat&) = default;
};

struct AffineFormat {
  std::uint32_t bits;   // 2, 3, 4, 5, 6 or 8
  std::uint32_t group;  // 32, 64 or 128; divides the number of columns
  Dtype scale_dtype;    // of scales and biases: bf16, f16 or f32
  friend bool operator==(const AffineFormat&, const AffineFormat&) = default;
};

struct Fp8BlockFormat {
  static constexpr std::uint32_t kBlock = 128;  // rows and columns of a block
  Dtype scale_dtype;                            // f32 or bf16
  friend bool operator==(const Fp8BlockFormat&, const Fp8BlockFormat&) = default;
};

using Encoding = std::variant<PlainFormat, AffineFormat, Fp8BlockFormat>;

constexpr bool is_affine_bits(std::uint64_t bits) {
  return bits == 2 || bits == 3 || bits == 4 || bits == 5 || bits == 6 || bits == 8;
}
constexpr bool is_affine_group(std::uint64_t group) { return group == 32 || group == 64 || group == 128; }

// The bytes of the codes of one row.
constexpr std::uint64_t affine_row_bytes(const AffineFormat& format, std::uint64_t cols) {
  return cols * format.bits / 8;
}

// The sizes of the parts of an encoded matrix. `scales` and `biases` are 0 if the encoding has none.
// Requires: the sizes fit 64 bits, which is true for the shape of any tensor that exists in a file.
struct EncodedBytes {
  std::uint64_t codes, scales, biases;
  std::uint64_t total() const { return codes + scales + biases; }
  friend bool operator==(const EncodedBytes&, const EncodedBytes&) = default;
};
EncodedBytes encoded_bytes(const Encoding& encoding, std::uint64_t rows, std::uint64_t cols);

// Human-readable, for example "bf16", "affine 4-bit group 64", "fp8 e4m3 128x128 (F32 scales)".
std::string describe(const Encoding& encoding);

}  // namespace moeflux
