#pragma once
// Tensors of a source → the matrices of a model.
//
// One function per family lists every tensor that its ModelConfig needs. A tensor that is missing or has
// another shape is an error that names it. Matrix names do not depend on the kind of source: they are the
// published module path without its prefix ("layers.3.self_attn.q_proj"). One thread at a time.

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
  std::vector<NamedMatrix> resident;                  // all matrices but routed experts
  std::vector<std::optional<SourceExperts>> experts;  // one per layer; nullopt for a dense layer
  std::uint64_t skipped_bytes = 0;                    // of tensors that a text model does not need
};

// Collects resident matrices under their common names, from modules whose names begin with `prefix`.
class TensorMapper {
 public:
  TensorMapper(MatrixResolver& resolver, std::string prefix)
      : resolver_(resolver), prefix_(std::move(prefix)) {}

  const std::string& prefix() const { return prefix_; }
  MatrixResolver& resolver() { return resolver_; }
  const TensorCatalog& catalog() const { return resolver_.catalog(); }

  Status matrix(const std::string& name, Dim rows, Dim cols);
  // A 3-D tensor of `parts` stacked matrices, treated as one matrix of parts * rows rows.
  Status stacked(const std::string& name, Dim parts, Dim rows, Dim cols);
  // A one-dimensional tensor: "<name>.weight" for norms, plain "<name>" for parameters.
  Status norm(const std::string& name, Dim size, bool add_one = false);
  Status parameter(const std::string& name, Dim size);
  Status shaped(const std::string& name, std::vector<Dim> shape);  // "<name>.weight"
  // The output head, which has a prefix different from the body's; skipped with a note if embeddings are
  // tied.
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
