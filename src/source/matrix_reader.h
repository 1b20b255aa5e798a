#pragma once
// Reads matrices of a source: as encoded bytes, in slices of whole rows, or decoded row by row.
//
// Memory is bounded by the slice, whatever the size of the matrix. Reads are plain preads into a buffer,
// because tensor data is not aligned in real files. Pure functions over a catalog: any thread.

#include <cstdint>
#include <string_view>

#include "base/function_ref.h"
#include "base/result.h"
#include "quant/matrix.h"
#include "source/source_matrix.h"
#include "source/tensor_catalog.h"

namespace moeflux {

inline constexpr std::uint64_t kSliceBytes = 4u << 20;

// Calls `visit(first_row, rows)` with consecutive slices of about kSliceBytes, each a multiple of
// `row_multiple` rows (a divisor of 128) but for the last. An fp8 slice never crosses a border between blocks
// of 128 rows, so that its scales are its own.
Status read_slices(const TensorCatalog& catalog, const SourceMatrix& matrix,
                   FunctionRef<Status(std::uint64_t first_row, const MatrixView& rows)> visit,
                   std::uint64_t row_multiple = 1);

// A number of `rows` that is not finite, as `corrupt_data` that names the matrix (as `name`), file, row and
// place; nothing when all are. `first_row` is where the slice begins.
Status check_finite(const TensorCatalog& catalog, const SourceMatrix& matrix, std::string_view name,
                    std::uint64_t first_row, const MatrixView& rows);

// Calls `visit(row, numbers)` for every row, decoded, with the 1 added where the source left it out. A
// number that is not finite is `corrupt_data`: it names the matrix (as `name`), file, row and place.
Status decode_rows(const TensorCatalog& catalog, const SourceMatrix& matrix, std::string_view name,
                   FunctionRef<Status(std::uint64_t row, std::span<const float> numbers)> visit);

}  // namespace moeflux
