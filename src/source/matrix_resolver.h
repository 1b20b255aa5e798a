#pragma once
// Finds the matrices of a model among the tensors of a source.
//
// Whether a module is quantized depends on its tensors (`.scales` beside `.weight`, or e4m3 with
// `.weight_scale_inv`). Its encoding follows from their shapes and is checked against the config. Every error
// gives the tensor, its file, the expected value with the config keys it comes from, and the value found. The
// resolver records which tensors were used. One thread at a time.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "source/quantization.h"
#include "source/source_matrix.h"
#include "source/tensor_catalog.h"

namespace moeflux {

// A dimension that a tensor must have, and the config keys it comes from.
struct Dim {
  std::uint64_t size;
  std::string_view key;
};

class MatrixResolver {
 public:
  // Both outlive the resolver.
  MatrixResolver(const TensorCatalog& catalog, const Quantization& quantization);

  const TensorCatalog& catalog() const { return catalog_; }

  // The matrix [rows, cols] of `module` ("model.layers.0.mlp.gate"), in any encoding.
  Result<SourceMatrix> matrix(const std::string& module, Dim rows, Dim cols);

  // `count` matrices stacked in one tensor: [count, rows, cols].
  Result<StackedMatrix> stacked(const std::string& module, Dim count, Dim rows, Dim cols);

  // The same for a tensor that has no ".weight" in its name and is never quantized.
  Result<StackedMatrix> stacked_plain(const std::string& tensor, Dim count, Dim rows, Dim cols);

  // A tensor of plain floats by its full name, with exactly this shape. The first dimension becomes the rows.
  Result<SourceMatrix> plain(const std::string& tensor, std::vector<Dim> shape);

  // Marks every tensor whose name begins with `prefix` as used; returns their number and bytes.
  struct Skipped {
    std::uint64_t tensors = 0, bytes = 0;
  };
  Skipped skip(std::string_view prefix);

  // The tensors that no call has used or skipped.
  std::vector<const TensorEntry*> unused() const;

 private:
  Result<const TensorEntry*> require(const std::string& name);
  Error mismatch(const TensorEntry& tensor, const std::vector<Dim>& expected) const;
  Status check_shape(const TensorEntry& tensor, const std::vector<Dim>& expected) const;
  Result<StackedMatrix> resolve(const std::string& module, std::vector<Dim> lead, Dim rows, Dim cols);
  Result<StackedMatrix> resolve_affine(const std::string& module, const TensorEntry& weight,
                                       const std::vector<Dim>& lead, Dim rows, Dim cols);
  Result<StackedMatrix> resolve_fp8(const std::string& module, const TensorEntry& weight,
                                    const std::vector<Dim>& lead, Dim rows, Dim cols);
  Status cross_check(const std::string& module, AffineParameters found) const;
  std::string file_of(const TensorEntry& tensor) const;

  const TensorCatalog& catalog_;
  const Quantization& quantization_;
  std::vector<bool> used_;  // parallel to catalog_.all()
};

}  // namespace moeflux
