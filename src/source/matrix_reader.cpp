#include "source/matrix_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/arithmetic.h"
#include "base/check.h"

namespace moeflux {
namespace {

// The bytes of `rows` rows from `first_row` on, in a range that holds `of_rows` rows.
ByteRange rows_of(const ByteRange& range, std::uint64_t first_row, std::uint64_t rows,
                  std::uint64_t of_rows) {
  const std::uint64_t row_bytes = range.size / of_rows;
  return {range.file, range.offset + first_row * row_bytes, rows * row_bytes};
}

Status fill(const TensorCatalog& catalog, const ByteRange& range, std::vector<std::byte>& buffer) {
  buffer.resize(range.size);
  if (range.size == 0) return {};
  return catalog.file(range.file).read_exactly(range.offset, buffer);
}

// `numbers`: the decoded row `row` of a slice that begins at `first_row`.
Status check_row(const TensorCatalog& catalog, const SourceMatrix& matrix, std::string_view name,
                 std::uint64_t first_row, const MatrixView& slice, std::uint64_t row,
                 std::span<const float> numbers) {
  const auto problem = find_not_finite(slice, row, numbers, first_row);
  if (!problem) return {};
  return Error{ErrorCode::corrupt_data,
               fmt::format("{}: '{}', row {}: {}", catalog.file(matrix.codes.file).path().string(), name,
                           first_row + row, *problem)};
}

}  // namespace

Status read_slices(const TensorCatalog& catalog, const SourceMatrix& matrix,
                   FunctionRef<Status(std::uint64_t first_row, const MatrixView& rows)> visit,
                   std::uint64_t row_multiple) {
  MF_REQUIRE(row_multiple > 0 && Fp8BlockFormat::kBlock % row_multiple == 0, "row_multiple divides 128");
  const bool fp8 = std::holds_alternative<Fp8BlockFormat>(matrix.encoding);
  const std::uint64_t block = Fp8BlockFormat::kBlock;
  const std::uint64_t row_bytes = std::max<std::uint64_t>(1, matrix.total_bytes() / matrix.rows);
  const std::uint64_t slice_rows =
      std::max<std::uint64_t>(1, kSliceBytes / row_bytes / row_multiple) * row_multiple;
  std::vector<std::byte> codes, scales, biases;
  for (std::uint64_t row = 0; row < matrix.rows;) {
    std::uint64_t rows = std::min(slice_rows, matrix.rows - row);
    if (fp8) rows = std::min(rows, block - row % block);
    MF_TRY_STATUS(fill(catalog, rows_of(matrix.codes, row, rows, matrix.rows), codes));
    const ByteRange scale_rows = fp8 ? rows_of(matrix.scales, row / block, 1, divide_up(matrix.rows, block))
                                     : rows_of(matrix.scales, row, rows, matrix.rows);
    MF_TRY_STATUS(fill(catalog, scale_rows, scales));
    MF_TRY_STATUS(fill(catalog, rows_of(matrix.biases, row, rows, matrix.rows), biases));
    MF_TRY_STATUS(visit(row, MatrixView{rows, matrix.cols, matrix.encoding, codes, scales, biases}));
    row += rows;
  }
  return {};
}

Status check_finite(const TensorCatalog& catalog, const SourceMatrix& matrix, std::string_view name,
                    std::uint64_t first_row, const MatrixView& rows) {
  if (is_finite(rows)) return {};
  std::vector<float> numbers(rows.cols);
  for (std::uint64_t row = 0; row < rows.rows; ++row) {
    decode_row(rows, row, numbers);
    MF_TRY_STATUS(check_row(catalog, matrix, name, first_row, rows, row, numbers));
  }
  return {};  // not reached: the number that is_finite() found was reported above
}

Status decode_rows(const TensorCatalog& catalog, const SourceMatrix& matrix, std::string_view name,
                   FunctionRef<Status(std::uint64_t row, std::span<const float> numbers)> visit) {
  std::vector<float> numbers(matrix.cols);
  return read_slices(catalog, matrix, [&](std::uint64_t first_row, const MatrixView& slice) -> Status {
    for (std::uint64_t row = 0; row < slice.rows; ++row) {
      decode_row(slice, row, numbers);
      MF_TRY_STATUS(check_row(catalog, matrix, name, first_row, slice, row, numbers));
      if (matrix.add_one)
        for (float& number : numbers) number += 1.0f;
      MF_TRY_STATUS(visit(first_row + row, numbers));
    }
    return {};
  });
}

}  // namespace moeflux
