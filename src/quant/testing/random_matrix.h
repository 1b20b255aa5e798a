#pragma once
// A matrix of random weights, encoded and as tiles, for tests of code that multiplies or copies matrices.
//
// The mean square of the weights is about 1 / cols, so that a product has about the same magnitude as its
// input. Owns its bytes and must outlive its views. Test code only.

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "base/arithmetic.h"
#include "base/check.h"
#include "base/memory/aligned_buffer.h"
#include "base/overloaded.h"
#include "quant/matrix.h"
#include "quant/tile16.h"

namespace moeflux {

// Uniform in [-1, 1).
inline float random_number(std::mt19937& random) { return static_cast<float>(random()) * 0x1p-31f - 1.0f; }

class RandomMatrix {
 public:
  // Requires: `encoding` is one that tile16 stores.
  RandomMatrix(std::uint64_t rows, std::uint64_t cols, const Encoding& encoding, std::mt19937& random)
      : rows_(rows), cols_(cols), encoding_(encoding) {
    MF_REQUIRE(tile16::stored_encoding(encoding) == encoding, "tile16 stores this encoding");
    const EncodedBytes bytes = encoded_bytes(encoding, rows, cols);
    codes_.resize(bytes.codes);
    scales_.resize(bytes.scales);
    biases_.resize(bytes.biases);
    std::visit([&](const auto& format) { fill(format, random); }, encoding);

    Result<AlignedBuffer> tiles = AlignedBuffer::create(tile16::matrix_bytes(encoding, rows, cols));
    MF_REQUIRE(tiles, "there is memory for the tiles");
    tiles_ = *std::move(tiles);
    write_tiles(tiles_.data(), block_bytes());
  }

  MatrixView view() const { return {rows_, cols_, encoding_, codes_, scales_, biases_}; }
  tile16::TiledMatrix tiled() const { return {rows_, cols_, encoding_, tiles_.data(), block_bytes()}; }
  std::span<const std::byte> tiles() const { return tiles_.bytes(); }

  // Writes the blocks, `stride` bytes apart.
  void write_tiles(std::byte* to, std::uint64_t stride) const {
    for (std::uint64_t block = 0; block < divide_up(rows_, tile16::kBlockRows); ++block)
      tile16::encode_block(view(), block * tile16::kBlockRows, {to + block * stride, block_bytes()});
  }

  // The decoded weights, row-major.
  std::vector<float> numbers() const {
    std::vector<float> all(rows_ * cols_);
    for (std::uint64_t row = 0; row < rows_; ++row)
      decode_row(view(), row, std::span(all).subspan(row * cols_, cols_));
    return all;
  }

 private:
  std::uint64_t block_bytes() const { return tile16::block_bytes(encoding_, cols_); }
  // Uniform weights in [-max, max] with max = sqrt(3 / cols) have a mean square of 1 / cols.
  float max_weight() const { return std::sqrt(3.0f / static_cast<float>(cols_)); }

  static void put(std::vector<std::byte>& bytes, std::size_t index, float number, Dtype dtype) {
    const auto bits = std::bit_cast<std::uint32_t>(number);
    if (dtype == Dtype::f32) {
      std::memcpy(bytes.data() + 4 * index, &bits, 4);
    } else {
      const auto upper = static_cast<std::uint16_t>(bits >> 16);
      std::memcpy(bytes.data() + 2 * index, &upper, 2);
    }
  }

  void fill(const PlainFormat& format, std::mt19937& random) {
    for (std::size_t i = 0; i < rows_ * cols_; ++i)
      put(codes_, i, max_weight() * random_number(random), format.dtype);
  }

  void fill(const AffineFormat& format, std::mt19937& random) {
    for (std::byte& code : codes_) code = static_cast<std::byte>(random());
    const auto largest_code = static_cast<float>((1u << format.bits) - 1);
    for (std::size_t i = 0; i < rows_ * (cols_ / format.group); ++i) {
      const float reach = max_weight() * (1 + 0.25f * random_number(random));
      put(scales_, i, 2 * reach / largest_code, format.scale_dtype);
      put(biases_, i, -reach, format.scale_dtype);
    }
  }

  // The mean square of random e4m3 numbers is 112^2.
  void fill(const Fp8BlockFormat& format, std::mt19937& random) {
    for (std::byte& code : codes_) {
      code = static_cast<std::byte>(random());
      if ((code & std::byte{0x7f}) == std::byte{0x7f}) code ^= std::byte{1};  // not a NaN
    }
    for (std::size_t i = 0; i < scales_.size() / (bits_of(format.scale_dtype) / 8); ++i)
      put(scales_, i, max_weight() / 194 * (1 + 0.25f * random_number(random)), format.scale_dtype);
  }

  std::uint64_t rows_, cols_;
  Encoding encoding_;
  std::vector<std::byte> codes_, scales_, biases_;
  AlignedBuffer tiles_;
};

}  // namespace moeflux
