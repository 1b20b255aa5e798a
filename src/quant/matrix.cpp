#include "quant/matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/arithmetic.h"
#include "base/check.h"
#include "base/overloaded.h"

namespace moeflux {
namespace {

// Codes of 3, 5 and 6 bits cross byte and word boundaries. The stream is little-endian, so bytes in file
// order are bits in ascending order, and the 16 bits from a code's first byte always contain a code of up to
// 8 bits.
std::uint32_t code_at(const std::byte* row, std::uint64_t row_size, std::uint32_t bits, std::uint64_t col) {
  const std::uint64_t bit = col * bits;
  const std::uint64_t byte = bit / 8;
  std::uint32_t window = std::to_integer<std::uint32_t>(row[byte]);
  if (byte + 1 < row_size) window |= std::to_integer<std::uint32_t>(row[byte + 1]) << 8;
  return (window >> (bit % 8)) & ((1u << bits) - 1);
}

void decode_plain(const MatrixView& m, const PlainFormat& format, std::uint64_t row, std::span<float> out) {
  for (std::uint64_t col = 0; col < m.cols; ++col)
    out[col] = load_float(m.codes.data(), row * m.cols + col, format.dtype);
}

void decode_affine(const MatrixView& m, const AffineFormat& format, std::uint64_t row, std::span<float> out) {
  const std::uint64_t size = affine_row_bytes(format, m.cols);
  const std::byte* codes = m.codes.data() + row * size;
  const std::uint64_t groups = m.cols / format.group;
  for (std::uint64_t group = 0; group < groups; ++group) {
    const float scale = load_float(m.scales.data(), row * groups + group, format.scale_dtype);
    const float bias = load_float(m.biases.data(), row * groups + group, format.scale_dtype);
    for (std::uint64_t col = group * format.group; col < (group + 1) * format.group; ++col) {
      const float product = static_cast<float>(code_at(codes, size, format.bits, col)) * scale;
      out[col] = product + bias;
    }
  }
}

void decode_fp8(const MatrixView& m, const Fp8BlockFormat& format, std::uint64_t row, std::span<float> out) {
  const std::uint64_t block = Fp8BlockFormat::kBlock;
  const std::uint64_t blocks_across = divide_up(m.cols, block);
  for (std::uint64_t col = 0; col < m.cols; ++col) {
    const float scale =
        load_float(m.scales.data(), row / block * blocks_across + col / block, format.scale_dtype);
    out[col] = float_from_e4m3(std::to_integer<std::uint8_t>(m.codes[row * m.cols + col])) * scale;
  }
}

std::optional<std::string> not_finite_scale(const MatrixView& m, const AffineFormat& format,
                                            std::uint64_t row, std::uint64_t) {
  const std::uint64_t groups = m.cols / format.group;
  for (std::uint64_t group = 0; group < groups; ++group) {
    const float scale = load_float(m.scales.data(), row * groups + group, format.scale_dtype);
    if (!std::isfinite(scale)) return fmt::format("the scale of group {} is {}", group, scale);
    const float bias = load_float(m.biases.data(), row * groups + group, format.scale_dtype);
    if (!std::isfinite(bias)) return fmt::format("the bias of group {} is {}", group, bias);
  }
  return std::nullopt;
}

std::optional<std::string> not_finite_scale(const MatrixView& m, const Fp8BlockFormat& format,
                                            std::uint64_t row, std::uint64_t first_row) {
  const std::uint64_t block = Fp8BlockFormat::kBlock;
  const std::uint64_t blocks_across = divide_up(m.cols, block);
  for (std::uint64_t across = 0; across < blocks_across; ++across) {
    const float scale = load_float(m.scales.data(), row / block * blocks_across + across, format.scale_dtype);
    if (!std::isfinite(scale))
      return fmt::format("the inverse scale of block ({}, {}) is {}", (first_row + row) / block, across,
                         scale);
  }
  return std::nullopt;
}

// Whether no exponent is all ones. Each number is compared: an OR over all of them could combine two
// exponents to all ones.
template <class Word, Word kExponent>
bool exponents_are_finite(std::span<const std::byte> bytes) {
  bool finite = true;
  for (std::size_t i = 0; i < bytes.size() / sizeof(Word); ++i) {
    const Word exponent = static_cast<Word>(load<Word>(bytes.data() + i * sizeof(Word)) & kExponent);
    finite &= exponent != kExponent;
  }
  return finite;
}

bool floats_are_finite(std::span<const std::byte> bytes, Dtype dtype) {
  switch (dtype) {
    case Dtype::bf16: return exponents_are_finite<std::uint16_t, 0x7f80>(bytes);
    case Dtype::f16: return exponents_are_finite<std::uint16_t, 0x7c00>(bytes);
    default: return exponents_are_finite<std::uint32_t, 0x7f800000>(bytes);
  }
}

}  // namespace

bool is_finite(const MatrixView& matrix) {
  return std::visit(
      overloaded{[&](const PlainFormat& format) { return floats_are_finite(matrix.codes, format.dtype); },
                 [&](const AffineFormat& format) {
                   return floats_are_finite(matrix.scales, format.scale_dtype) &&
                          floats_are_finite(matrix.biases, format.scale_dtype);
                 },
                 [&](const Fp8BlockFormat& format) {
                   return floats_are_finite(matrix.scales, format.scale_dtype) &&
                          exponents_are_finite<std::uint8_t, 0x7f>(matrix.codes);
                 }},
      matrix.encoding);
}

void decode_row(const MatrixView& matrix, std::uint64_t row, std::span<float> out) {
  MF_REQUIRE(row < matrix.rows, "the row is one of the matrix");
  MF_REQUIRE(out.size() == matrix.cols, "out has one element per column");
  const EncodedBytes sizes = encoded_bytes(matrix.encoding, matrix.rows, matrix.cols);
  MF_REQUIRE((EncodedBytes{matrix.codes.size(), matrix.scales.size(), matrix.biases.size()} == sizes),
             "the view's spans have the sizes of its encoding");
  std::visit(overloaded{[&](const PlainFormat& format) { decode_plain(matrix, format, row, out); },
                        [&](const AffineFormat& format) { decode_affine(matrix, format, row, out); },
                        [&](const Fp8BlockFormat& format) { decode_fp8(matrix, format, row, out); }},
             matrix.encoding);
}

std::uint32_t affine_code(const MatrixView& matrix, std::uint64_t row, std::uint64_t col) {
  const auto* format = std::get_if<AffineFormat>(&matrix.encoding);
  MF_REQUIRE(format != nullptr, "the matrix is affine");
  MF_REQUIRE(row < matrix.rows && col < matrix.cols, "row and column are in the matrix");
  const std::uint64_t size = affine_row_bytes(*format, matrix.cols);
  return code_at(matrix.codes.data() + row * size, size, format->bits, col);
}

std::optional<std::string> find_not_finite(const MatrixView& matrix, std::uint64_t row,
                                           std::span<const float> decoded, std::uint64_t first_row) {
  MF_REQUIRE(decoded.size() == matrix.cols, "decoded has one element per column");
  if (std::all_of(decoded.begin(), decoded.end(), [](float value) { return std::isfinite(value); }))
    return std::nullopt;  // a scale that is not finite makes every product inf or NaN, even with a code of 0
  // Scales first, because a bad scale is the cause of bad weights.
  std::optional<std::string> scale = std::visit(
      overloaded{[](const PlainFormat&) -> std::optional<std::string> { return std::nullopt; },
                 [&](const auto& format) { return not_finite_scale(matrix, format, row, first_row); }},
      matrix.encoding);
  if (scale) return scale;
  for (std::uint64_t col = 0; col < matrix.cols; ++col)
    if (!std::isfinite(decoded[col])) return fmt::format("the weight of column {} is {}", col, decoded[col]);
  return std::nullopt;
}

}  // namespace moeflux
