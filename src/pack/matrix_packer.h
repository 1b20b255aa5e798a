#pragma once
// Converts one matrix of a source to the blocks of a packed matrix.
//
// Reads the source in slices, so memory is bounded by one slice and one block, whatever the size of the
// matrix. Codes of quantized sources are moved unchanged; plain numbers are quantized if the stored format
// requires it. Numbers that are not finite are `corrupt_data`. Buffers are reused between calls: use one
// packer per job. One thread at a time.

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/hash.h"
#include "base/result.h"
#include "model/packed_format.h"
#include "source/source_matrix.h"
#include "source/tensor_catalog.h"

namespace moeflux {

class MatrixPacker {
 public:
  using Sink = FunctionRef<Status(std::span<const std::byte> block)>;

  // `catalog` outlives the packer.
  explicit MatrixPacker(const TensorCatalog& catalog) : catalog_(catalog) {}

  // Calls `sink` with the tile16 blocks of 16 rows, in order. Returns the digest of the matrix's bytes in the
  // source (pack/source_digest.h). `name` names the matrix in errors.
  Result<Digest> pack_tiles(const SourceMatrix& matrix, std::string_view name, const MatrixFormat& format,
                            Sink sink);

  // Calls `sink` with rows of F32, adding the 1 that some norms are stored without.
  Result<Digest> pack_rows(const SourceMatrix& matrix, std::string_view name, Sink sink);

 private:
  const TensorCatalog& catalog_;
  std::vector<std::byte> block_;
  std::vector<float> numbers_;
};

}  // namespace moeflux
