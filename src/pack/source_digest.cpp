#include "pack/source_digest.h"

#include <array>
#include <variant>

#include "source/matrix_reader.h"

namespace moeflux {

void SourceDigest::add(const SourceMatrix& matrix, std::uint64_t first_row, const MatrixView& slice) {
  codes_.add(slice.codes);
  // All slices of one FP8 block carry the block's row of scales: count it once.
  const bool fp8 = std::holds_alternative<Fp8BlockFormat>(matrix.encoding);
  if (!fp8 || first_row % Fp8BlockFormat::kBlock == 0) scales_.add(slice.scales);
  biases_.add(slice.biases);
}

Digest SourceDigest::value() const {
  return combined_digest(std::array{codes_.value(), scales_.value(), biases_.value()});
}

Digest combined_digest(std::span<const Digest> parts) {
  DigestStream all;
  for (const Digest& part : parts) all.add(std::as_bytes(std::span(part.bytes)));
  return all.value();
}

Result<Digest> read_digest(const TensorCatalog& catalog, const SourceMatrix& matrix) {
  SourceDigest digest;
  MF_TRY_STATUS(read_slices(catalog, matrix, [&](std::uint64_t first_row, const MatrixView& slice) -> Status {
    digest.add(matrix, first_row, slice);
    return {};
  }));
  return digest.value();
}

Result<Digest> read_digest(const TensorCatalog& catalog, const ExpertMatrices& expert) {
  MF_TRY(const Digest gate, read_digest(catalog, expert.gate));
  MF_TRY(const Digest up, read_digest(catalog, expert.up));
  MF_TRY(const Digest down, read_digest(catalog, expert.down));
  return combined_digest(std::array{gate, up, down});
}

}  // namespace moeflux
