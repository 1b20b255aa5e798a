#pragma once
// How the numbers of a matrix are stored.
//
//   PlainFormat     one float a number: BF16, F16, F32.
//   AffineFormat    MLX's quantization: w = scale * code + bias. A row is a little-endian stream of
//                   `bits`-bit codes in 32-bit words; every `group` consecutive numbers of a row share a
//                   scale and a bias.
//   Fp8BlockFormat  one e4m3 byte a number, times one inverse scale a 128 x 128 block of the matrix; the
//                   blocks at the right and bottom edges are partial.
//
// A format travels whole: bits and group are never two loose integers. Plain values.

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
  static constexpr std::uint32_t kBlock = 128;
  Dtype scale_dtype;  // f32 or bf16
  friend bool operator==(const Fp8BlockFormat&, const Fp8BlockFormat&) = default;
};

using Encoding = std::variant<PlainFormat, AffineFormat, Fp8BlockFormat>;

constexpr bool is_affine_bits(std::uint64_t bits) {
  return bits == 2 || bits == 3 || bits == 4 || bits == 5 || bits == 6 || bits == 8;
}
constexpr bool is_affine_group(std::uint64_t group) { return group == 32 || group == 64 || group == 128; }

// The bytes of each part of a matrix so encoded. `scales` and `biases` are 0 where the encoding has none.
// The caller has checked that the sizes fit in 64 bits (shapes of tensors that exist in a file do).
struct EncodedBytes {
  std::uint64_t codes, scales, biases;
  std::uint64_t total() const { return codes + scales + biases; }
  friend bool operator==(const EncodedBytes&, const EncodedBytes&) = default;
};
EncodedBytes encoded_bytes(const Encoding& encoding, std::uint64_t rows, std::uint64_t cols);

// As people read it: "bf16", "affine 4-bit group 64", "fp8 e4m3 128x128".
std::string describe(const Encoding& encoding);

}  // namespace moeflux
