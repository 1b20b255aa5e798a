#include "pack/matrix_packer.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "pack/quantize.h"
#include "pack/source_digest.h"
#include "quant/tile16.h"
#include "source/matrix_reader.h"

namespace moeflux {
Result<Digest> MatrixPacker::pack_tiles(const SourceMatrix& matrix, std::string_view name,
                                        const MatrixFormat& format, Sink sink) {
  MF_REQUIRE(!matrix.add_one, "only vectors are stored without their 1");
  SourceDigest digest;
  block_.resize(tile16::block_bytes(format.encoding, format.cols));
  const bool moves = tile16::stored_encoding(matrix.encoding) == format.encoding;
  numbers_.resize(matrix.cols);

  // Blocks that cannot be moved are decoded, then quantized or rounded to BF16.
  const auto* affine = std::get_if<AffineFormat>(&format.encoding);
  std::optional<QuantizedRows> quantized;
  std::vector<std::uint16_t> rounded;
  if (!moves && affine != nullptr) quantized.emplace(tile16::kBlockRows, matrix.cols, *affine);
  if (!moves && affine == nullptr) rounded.resize(tile16::kBlockRows * matrix.cols);

  const auto convert_block = [&](const MatrixView& slice, std::uint64_t first) -> MatrixView {
    const std::uint64_t rows = std::min(tile16::kBlockRows, slice.rows - first);
    for (std::uint64_t row = 0; row < rows; ++row) {
      decode_row(slice, first + row, numbers_);
      if (quantized)
        quantized->set_row(row, numbers_);
      else
        std::transform(numbers_.begin(), numbers_.end(),
                       rounded.begin() + static_cast<std::ptrdiff_t>(row * matrix.cols), bf16_from_float);
    }
    if (quantized) return quantized->view(rows);
    return {rows,
            matrix.cols,
            PlainFormat{Dtype::bf16},
            std::as_bytes(std::span(rounded).first(rows * matrix.cols)),
            {},
            {}};
  };

  MF_TRY_STATUS(read_slices(
      catalog_, matrix,
      [&](std::uint64_t first_row, const MatrixView& slice) -> Status {
        digest.add(matrix, first_row, slice);
        MF_TRY_STATUS(check_finite(catalog_, matrix, name, first_row, slice));
        for (std::uint64_t row = 0; row < slice.rows; row += tile16::kBlockRows) {
          if (moves)
            tile16::encode_block(slice, row, block_);
          else
            tile16::encode_block(convert_block(slice, row), 0, block_);
          MF_TRY_STATUS(sink(block_));
        }
        return {};
      },
      tile16::kBlockRows));
  return digest.value();
}

Result<Digest> MatrixPacker::pack_rows(const SourceMatrix& matrix, std::string_view name, Sink sink) {
  SourceDigest digest;
  numbers_.resize(matrix.cols);
  MF_TRY_STATUS(
      read_slices(catalog_, matrix, [&](std::uint64_t first_row, const MatrixView& slice) -> Status {
        digest.add(matrix, first_row, slice);
        MF_TRY_STATUS(check_finite(catalog_, matrix, name, first_row, slice));
        for (std::uint64_t row = 0; row < slice.rows; ++row) {
          decode_row(slice, row, numbers_);
          if (matrix.add_one)
            for (float& number : numbers_) number += 1.0f;
          MF_TRY_STATUS(sink(std::as_bytes(std::span(numbers_))));
        }
        return {};
      }));
  return digest.value();
}

}  // namespace moeflux
