#pragma once
// Reads matrices of a source: as encoded bytes in slices of whole rows, or decoded row by row.
//
// Memory is bounded by one slice, whatever the size of the matrix. Reads are buffered, not direct, because
// tensor data is not aligned in published files. Pure functions over a catalog: any thread.

#include <cstdint>
#include <string_view>

#include "base/function_ref.h"
#include "base/result.h"
#include "base/sizes.h"
#include "quant/matrix.h"
#include "source/source_matrix.h"
#include "source/tensor_catalog.h"

namespace moeflux {

inline constexpr std::uint64_t kSliceBytes = 4 * kMiB;

// Calls `visit(first_row, rows)` with consecutive slices of about kSliceBytes. Each slice but the last has a
// multiple of `row_multiple` rows. An FP8 slice never crosses a block of 128 rows, so one row of scales
// belongs to it. Requires: `row_multiple` divides 128.
Status read_slices(const TensorCatalog& catalog, const SourceMatrix& matrix,
                   FunctionRef<Status(std::uint64_t first_row, const MatrixView& rows)> visit,
                   std::uint64_t row_multiple = 1);

// Fails with `corrupt_data` if a number in the slice `rows` is not finite; the message gives file, matrix (as
// `name`), row and column or group. `first_row` is the first row of the slice.
Status check_finite(const TensorCatalog& catalog, const SourceMatrix& matrix, std::string_view name,
                    std::uint64_t first_row, const MatrixView& rows);

// Calls `visit(row, numbers)` for every row, decoded, adding the 1 that some norms are stored without. Fails
// with `corrupt_data` as check_finite() does.
Status decode_rows(const TensorCatalog& catalog, const SourceMatrix& matrix, std::string_view name,
                   FunctionRef<Status(std::uint64_t row, std::span<const float> numbers)> visit);

}  // namespace moeflux
