#pragma once
// Tensors of a source → the matrices of a model.
//
// One function a family names every tensor that its ModelConfig needs; what is missing or of another shape
// is an error with that name. Names of matrices are the same whatever the source was: the published module
// path without its prefix ("layers.3.self_attn.q_proj"). One thread at a time.

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/config.h"
#include "source/expert_layouts.h"
#include "source/matrix_resolver.h"
#include "source/notes.h"
#include "source/source_matrix.h"

namespace moeflux {

struct SourceTensors {
  std::vector<NamedMatrix> resident;                  // all that is not a routed expert
  std::vector<std::optional<SourceExperts>> experts;  // one a layer; none for a dense layer
  std::uint64_t skipped_bytes = 0;                    // of tensors that a text model does not use
};

// Collects resident matrices under their common names, read from modules that begin with `prefix`.
class TensorMapper {
 public:
  TensorMapper(MatrixResolver& resolver, std::string prefix)
      : resolver_(resolver), prefix_(std::move(prefix)) {}

  const std::string& prefix() const { return prefix_; }
  MatrixResolver& resolver() { return resolver_; }
  const TensorCatalog& catalog() const { return resolver_.catalog(); }

  Status matrix(const std::string& name, Dim rows, Dim cols);
  // `parts` matrices stacked in a 3-D tensor, kept as one matrix of parts * rows.
  Status stacked(const std::string& name, Dim parts, Dim rows, Dim cols);
  // A one-dimensional tensor: "<name>.weight" for norms, "<name>" as it is for parameters.
  Status norm(const std::string& name, Dim size, bool add_one = false);
  Status parameter(const std::string& name, Dim size);
  Status shaped(const std::string& name, std::vector<Dim> shape);  // "<name>.weight"
  // The output head, which has its own prefix; skipped with a note when embeddings are tied.
  Status output_head(const ModelConfig& model, const std::string& module, Notes& notes);

  // gate, up and down of a SwiGLU block.
  Status swiglu(const std::string& name, Dim hidden, Dim dim);

  void skip(const std::string& prefix, std::string_view what, Notes& notes);
  void note_unused(Notes& notes) const;

  SourceTensors finish(std::vector<std::optional<SourceExperts>> experts) &&;

 private:
  MatrixResolver& resolver_;
  std::string prefix_;
  SourceTensors tensors_;
};

Result<SourceTensors> map_tensors(const ModelConfig& model, MatrixResolver& resolver, ExpertLocator& experts,
                                  Notes& notes);

Result<SourceTensors> map_qwen3_5_moe(const ModelConfig& model, MatrixResolver& resolver,
                                      ExpertLocator& experts, Notes& notes);
Result<SourceTensors> map_deepseek_v3(const ModelConfig& model, MatrixResolver& resolver,
                                      ExpertLocator& experts, Notes& notes);

}  // namespace moeflux
