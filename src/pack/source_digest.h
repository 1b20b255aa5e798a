#pragma once
// Digests of a source's bytes, from which the fingerprint is computed.
//
// The digest of a matrix covers its bytes in file order (codes, scales, biases) and does not depend on the
// slices they are read in.

#include <cstdint>
#include <span>

#include "base/hash.h"
#include "base/result.h"
#include "model/packed_format.h"
#include "quant/matrix.h"
#include "source/source_matrix.h"
#include "source/tensor_catalog.h"

namespace moeflux {

// The digest of one matrix, fed with its slices in ascending order. One thread at a time.
class SourceDigest {
 public:
  void add(const SourceMatrix& matrix, std::uint64_t first_row, const MatrixView& slice);
  Digest value() const;

 private:
  DigestStream codes_, scales_, biases_;
};

// The digest of several digests, in order: gate, up and down of an expert.
Digest combined_digest(std::span<const Digest> parts);

// Reads `matrix` in slices. Pure functions over a catalog: any thread.
Result<Digest> read_digest(const TensorCatalog& catalog, const SourceMatrix& matrix);
Result<Digest> read_digest(const TensorCatalog& catalog, const ExpertMatrices& expert);

}  // namespace moeflux
