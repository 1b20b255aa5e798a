#include "pack/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace moeflux {
namespace {

struct GroupScale {
  float scale, bias;  // rounded to BF16
  std::uint16_t scale_bits, bias_bits;
};

// MLX's rule in float32, with one rounding per operation. std::nearbyint rounds ties to even in the default
// mode.
GroupScale scale_of(std::span<const float> group, float bins) {
  float lowest = group[0], highest = group[0];
  for (const float value : group) {
    lowest = std::min(lowest, value);
    highest = std::max(highest, value);
  }
  const bool lowest_is_edge = std::fabs(lowest) > std::fabs(highest);
  float scale = std::max((highest - lowest) / bins, 1e-7f);
  if (!lowest_is_edge) scale = -scale;
  const float edge = lowest_is_edge ? lowest : highest;
  const float steps = std::nearbyint(edge / scale);
  float bias = 0;
  if (steps != 0) {
    scale = edge / steps;
    bias = edge;
  }
  const std::uint16_t scale_bits = bf16_from_float(scale), bias_bits = bf16_from_float(bias);
  return {float_from_bf16(scale_bits), float_from_bf16(bias_bits), scale_bits, bias_bits};
}

}  // namespace

std::uint16_t bf16_from_float(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

QuantizedRows::QuantizedRows(std::uint64_t max_rows, std::uint64_t cols, AffineFormat format)
    : cols_(cols), format_(format) {
  MF_REQUIRE(32 % format.bits == 0, "codes do not cross words");
  MF_REQUIRE(cols % format.group == 0, "a row is whole groups");
  MF_REQUIRE(format.scale_dtype == Dtype::bf16, "scales are BF16");
  const EncodedBytes bytes = encoded_bytes(format, max_rows, cols);
  codes_.resize(bytes.codes);
  scales_.resize(bytes.scales);
  biases_.resize(bytes.biases);
}

void QuantizedRows::set_row(std::uint64_t row, std::span<const float> numbers) {
  MF_REQUIRE(numbers.size() == cols_, "numbers has one element per column");
  const float bins = static_cast<float>((1u << format_.bits) - 1);
  const std::uint64_t groups = cols_ / format_.group;
  const std::uint32_t codes_per_word = 32 / format_.bits;
  std::byte* words = codes_.data() + row * (cols_ * format_.bits / 8);
  for (std::uint64_t g = 0; g < groups; ++g) {
    const std::span<const float> group = numbers.subspan(g * format_.group, format_.group);
    const GroupScale found = scale_of(group, bins);
    std::memcpy(scales_.data() + (row * groups + g) * 2, &found.scale_bits, 2);
    std::memcpy(biases_.data() + (row * groups + g) * 2, &found.bias_bits, 2);
    for (std::uint64_t first = 0; first < format_.group; first += codes_per_word) {
      std::uint32_t word = 0;
      for (std::uint32_t k = 0; k < codes_per_word; ++k) {
        // In this order, NaN becomes code 0: a group of one constant above 3.4e31 has scale 0 and divides
        // 0/0.
        const float steps = std::nearbyint((group[first + k] - found.bias) / found.scale);
        const float code = std::min(std::max(0.0f, steps), bins);
        word |= static_cast<std::uint32_t>(code) << (k * format_.bits);
      }
      std::memcpy(words, &word, 4);
      words += 4;
    }
  }
}

MatrixView QuantizedRows::view(std::uint64_t rows) const {
  const EncodedBytes bytes = encoded_bytes(format_, rows, cols_);
  MF_REQUIRE(bytes.codes <= codes_.size(), "as many rows as there is room for");
  return {rows,
          cols_,
          format_,
          std::span(codes_).first(bytes.codes),
          std::span(scales_).first(bytes.scales),
          std::span(biases_).first(bytes.biases)};
}

}  // namespace moeflux
