#include "quant/tile16.h"

#include <algorithm>
#include <cstring>

#include "base/arithmetic.h"
#include "base/check.h"
#include "base/overloaded.h"
#include "quant/tile16_layout.h"

namespace moeflux::tile16 {
namespace {

constexpr std::uint64_t kFp8Group = Fp8BlockFormat::kBlock;

bool has_bf16_scales(const AffineFormat& format) { return format.scale_dtype == Dtype::bf16; }

// How many columns of plain floats are in one lane of a unit.
std::uint64_t plain_lane_cols(const PlainFormat& format) { return format.dtype == Dtype::bf16 ? 2 : 1; }

template <class T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

// Converts columns 8i to 8i+7 of a row from MLX's order (nibble j is column j) to that of a lane (byte b has
// column b in its low nibble and column 4 + b in its high nibble).
std::uint32_t interleave_nibbles(std::uint32_t word) {
  std::uint32_t low = word & 0xffff;
  std::uint32_t high = word >> 16;
  low = (low | low << 8) & 0x00ff00ff;
  low = (low | low << 4) & 0x0f0f0f0f;
  high = (high | high << 8) & 0x00ff00ff;
  high = (high | high << 4) & 0x0f0f0f0f;
  return low | high << 4;
}

// Writes the codes of one row and group to its lane, for the two widths that nearly all models have.
void put_codes4(const std::byte* codes, std::uint64_t group, std::byte* lane) {
  for (std::uint64_t unit = 0; unit < group / 8; ++unit)
    store(lane + unit * kUnitBytes, interleave_nibbles(load<std::uint32_t>(codes + unit * 4)));
}
void put_codes8(const std::byte* codes, std::uint64_t group, std::byte* lane) {
  for (std::uint64_t unit = 0; unit < group / 4; ++unit)
    std::memcpy(lane + unit * kUnitBytes, codes + unit * 4, 4);
}

// The same for any width, one code at a time. Requires: `lane` is zero.
void put_codes(const MatrixView& rows, std::uint64_t row, std::uint64_t first_col, const AffineFormat& format,
               std::byte* lane) {
  const Planes planes = planes_of(format.bits);
  for (std::uint64_t k = 0; k < format.group; ++k) {
    std::uint32_t code = affine_code(rows, row, first_col + k);
    std::byte* plane = lane;
    for (std::size_t p = 0; p < planes.count; ++p) {
      const std::uint32_t bits = planes.bits[p];
      const std::uint64_t unit_cols = 32 / bits;
      const std::uint64_t within = k % unit_cols;
      std::byte& byte = plane[k / unit_cols * kUnitBytes + within % 4];
      byte |= static_cast<std::byte>((code & ((1u << bits) - 1)) << (bits * (within / 4)));
      code >>= bits;
      plane += plane_bytes(bits, format.group);
    }
  }
}

void put_scales(const MatrixView& rows, const AffineFormat& source, std::uint64_t index, std::byte* scales,
                std::uint64_t lane) {
  if (has_bf16_scales(source)) {
    std::memcpy(scales + lane * kLaneBytes, rows.biases.data() + 2 * index, 2);
    std::memcpy(scales + lane * kLaneBytes + 2, rows.scales.data() + 2 * index, 2);
    return;
  }
  store(scales + lane * kLaneBytes, load_float(rows.scales.data(), index, source.scale_dtype));
  store(scales + kUnitBytes + lane * kLaneBytes, load_float(rows.biases.data(), index, source.scale_dtype));
}

void encode_affine(const MatrixView& rows, const AffineFormat& format, std::uint64_t first_row,
                   std::uint64_t count, std::byte* block) {
  const auto stored = std::get<AffineFormat>(stored_encoding(format));
  const std::uint64_t groups = rows.cols / format.group;
  const std::uint64_t row_bytes = affine_row_bytes(format, rows.cols);
  for (std::uint64_t group = 0; group < groups; ++group) {
    std::byte* codes = block + group * group_bytes(stored);
    std::byte* scales = codes + codes_bytes(stored);
    for (std::uint64_t lane = 0; lane < count; ++lane) {
      const std::uint64_t row = first_row + lane;
      std::byte* out = codes + lane * kLaneBytes;
      const std::byte* in = rows.codes.data() + row * row_bytes + group * format.group * format.bits / 8;
      if (format.bits == 4)
        put_codes4(in, format.group, out);
      else if (format.bits == 8)
        put_codes8(in, format.group, out);
      else
        put_codes(rows, row, group * format.group, format, out);
      put_scales(rows, format, row * groups + group, scales, lane);
    }
  }
}

void encode_plain(const MatrixView& rows, const PlainFormat& format, std::uint64_t first_row,
                  std::uint64_t count, std::byte* block) {
  for (std::uint64_t lane = 0; lane < count; ++lane) {
    const std::uint64_t first = (first_row + lane) * rows.cols;
    std::byte* out = block + lane * kLaneBytes;
    for (std::uint64_t col = 0; col < rows.cols; ++col) {
      if (format.dtype == Dtype::bf16)
        std::memcpy(out + col / 2 * kUnitBytes + col % 2 * 2, rows.codes.data() + (first + col) * 2, 2);
      else
        store(out + col * kUnitBytes, load_float(rows.codes.data(), first + col, format.dtype));
    }
  }
}

void encode_fp8(const MatrixView& rows, const Fp8BlockFormat& format, std::uint64_t first_row,
                std::uint64_t count, std::byte* block) {
  const std::uint64_t scale_row = first_row / kFp8Group * divide_up(rows.cols, kFp8Group);
  std::byte* group = block;
  for (std::uint64_t first = 0; first < rows.cols; first += kFp8Group) {
    const std::uint64_t cols = std::min(kFp8Group, rows.cols - first);
    const float scale = load_float(rows.scales.data(), scale_row + first / kFp8Group, format.scale_dtype);
    std::byte* scales = group + fp8_group_bytes(cols) - kUnitBytes;
    for (std::uint64_t lane = 0; lane < count; ++lane) {
      const std::byte* in = rows.codes.data() + (first_row + lane) * rows.cols + first;
      for (std::uint64_t col = 0; col < cols; ++col)
        group[col / 4 * kUnitBytes + lane * kLaneBytes + col % 4] = in[col];
      store(scales + lane * kLaneBytes, scale);
    }
    group += fp8_group_bytes(cols);
  }
}

void decode_affine(const AffineFormat& format, const std::byte* block, std::uint64_t lane, std::uint64_t cols,
                   std::span<float> out) {
  const std::byte* codes = block + lane * kLaneBytes;
  for (std::uint64_t first = 0; first < cols; first += format.group) {
    const auto [scale, bias] = scale_and_bias(codes + codes_bytes(format), format);
    for (std::uint64_t k = 0; k < format.group; ++k) {
      const float product = static_cast<float>(code_at(codes, format, k)) * scale;
      out[first + k] = product + bias;
    }
    codes += group_bytes(format);
  }
}

void decode_plain(const PlainFormat& format, const std::byte* block, std::uint64_t lane, std::uint64_t cols,
                  std::span<float> out) {
  const std::uint64_t lane_cols = plain_lane_cols(format);
  for (std::uint64_t col = 0; col < cols; ++col)
    out[col] =
        load_float(block + col / lane_cols * kUnitBytes + lane * kLaneBytes, col % lane_cols, format.dtype);
}

void decode_fp8(const std::byte* block, std::uint64_t lane, std::uint64_t cols, std::span<float> out) {
  const std::byte* group = block;
  for (std::uint64_t first = 0; first < cols; first += kFp8Group) {
    const std::uint64_t width = std::min(kFp8Group, cols - first);
    const float scale = load<float>(group + fp8_group_bytes(width) - kUnitBytes + lane * kLaneBytes);
    for (std::uint64_t col = 0; col < width; ++col) {
      const std::byte code = group[col / 4 * kUnitBytes + lane * kLaneBytes + col % 4];
      out[first + col] = float_from_e4m3(std::to_integer<std::uint8_t>(code)) * scale;
    }
    group += fp8_group_bytes(width);
  }
}

}  // namespace

Encoding stored_encoding(const Encoding& encoding) {
  return std::visit(overloaded{[](const PlainFormat& plain) -> Encoding {
                                 return PlainFormat{plain.dtype == Dtype::bf16 ? Dtype::bf16 : Dtype::f32};
                               },
                               [](const AffineFormat& affine) -> Encoding {
                                 AffineFormat stored = affine;
                                 if (stored.scale_dtype != Dtype::bf16) stored.scale_dtype = Dtype::f32;
                                 return stored;
                               },
                               [](const Fp8BlockFormat&) -> Encoding { return Fp8BlockFormat{Dtype::f32}; }},
                    encoding);
}

std::uint64_t block_bytes(const Encoding& encoding, std::uint64_t cols) {
  MF_REQUIRE(stored_encoding(encoding) == encoding, "the encoding is a stored one");
  return std::visit(
      overloaded{
          [&](const PlainFormat& plain) { return divide_up(cols, plain_lane_cols(plain)) * kUnitBytes; },
          [&](const AffineFormat& affine) { return cols / affine.group * group_bytes(affine); },
          [&](const Fp8BlockFormat&) {
            const std::uint64_t rest = cols % kFp8Group;
            return cols / kFp8Group * fp8_group_bytes(kFp8Group) + (rest == 0 ? 0 : fp8_group_bytes(rest));
          }},
      encoding);
}

std::uint64_t matrix_bytes(const Encoding& encoding, std::uint64_t rows, std::uint64_t cols) {
  return divide_up(rows, kBlockRows) * block_bytes(encoding, cols);
}

void encode_block(const MatrixView& rows, std::uint64_t first_row, std::span<std::byte> block) {
  MF_REQUIRE(first_row < rows.rows, "the block has at least one row");
  MF_REQUIRE(block.size() == block_bytes(stored_encoding(rows.encoding), rows.cols),
             "the size of the block is right");
  const std::uint64_t count = std::min(kBlockRows, rows.rows - first_row);
  std::fill(block.begin(), block.end(), std::byte{0});
  std::visit(
      overloaded{
          [&](const PlainFormat& format) { encode_plain(rows, format, first_row, count, block.data()); },
          [&](const AffineFormat& format) { encode_affine(rows, format, first_row, count, block.data()); },
          [&](const Fp8BlockFormat& format) { encode_fp8(rows, format, first_row, count, block.data()); }},
      rows.encoding);
}

void decode_row(const TiledMatrix& matrix, std::uint64_t row, std::span<float> out) {
  MF_REQUIRE(row < matrix.rows, "the row is one of the matrix");
  MF_REQUIRE(out.size() == matrix.cols, "out has one element per column");
  const std::byte* block = matrix.first_block + row / kBlockRows * matrix.block_stride;
  const std::uint64_t lane = row % kBlockRows;
  std::visit(
      overloaded{[&](const PlainFormat& format) { decode_plain(format, block, lane, matrix.cols, out); },
                 [&](const AffineFormat& format) { decode_affine(format, block, lane, matrix.cols, out); },
                 [&](const Fp8BlockFormat&) { decode_fp8(block, lane, matrix.cols, out); }},
      matrix.encoding);
}

// Every unit, of codes or scales, has kLaneBytes bytes of each of its rows.
void copy_row(const TiledMatrix& from, std::uint64_t row, std::byte* to, std::uint64_t to_row) {
  MF_REQUIRE(row < from.rows, "the row is one of the matrix");
  const std::uint64_t bytes = block_bytes(from.encoding, from.cols);
  const std::byte* in =
      from.first_block + row / kBlockRows * from.block_stride + row % kBlockRows * kLaneBytes;
  std::byte* out = to + to_row / kBlockRows * bytes + to_row % kBlockRows * kLaneBytes;
  for (std::uint64_t unit = 0; unit < bytes; unit += kUnitBytes)
    std::memcpy(out + unit, in + unit, kLaneBytes);
}

}  // namespace moeflux::tile16
