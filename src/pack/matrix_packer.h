#pragma once
// One matrix of a source → the blocks of a packed one.
//
// Reads the source in slices, so memory is bounded by a slice and a block whatever the size of the matrix. Codes that
// are quantized already are moved, never changed; plain numbers are quantized when the stored format says so. Numbers
// that are not finite are an error. Buffers are kept between calls: one packer a job. One thread at a time.

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

  // Calls `sink` with the blocks of 16 rows of tile16, in order. Returns the digest of the matrix's bytes in the
  // source, in file order: codes, scales, biases.
  Result<Digest> pack_tiles(const SourceMatrix& matrix, std::string_view name, const MatrixFormat& format,
                            Sink sink);

  // Calls `sink` with rows of F32, the 1 added where the source left it out.
  Result<Digest> pack_rows(const SourceMatrix& matrix, std::string_view name, Sink sink);

 private:
  const TensorCatalog& catalog_;
  std::vector<std::byte> block_;
  std::vector<float> numbers_;
};

}  // namespace moeflux
