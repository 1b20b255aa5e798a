#include "source/tensor_map.h"

#include <fmt/format.h>

#include "base/printable.h"
#include "base/sizes.h"

namespace moeflux {

Status TensorMapper::matrix(const std::string& name, Dim rows, Dim cols) {
  MF_TRY(const SourceMatrix found, resolver_.matrix(prefix_ + name, rows, cols));
  tensors_.resident.push_back({name, found});
  return {};
}

Status TensorMapper::stacked(const std::string& name, Dim parts, Dim rows, Dim cols) {
  MF_TRY(const StackedMatrix stack, resolver_.stacked(prefix_ + name, parts, rows, cols));
  SourceMatrix whole = stack.first;
  whole.rows *= parts.size;
  whole.codes.size *= parts.size;
  whole.scales.size *= parts.size;
  whole.biases.size *= parts.size;
  if (std::holds_alternative<Fp8BlockFormat>(whole.encoding) && rows.size % Fp8BlockFormat::kBlock != 0)
    return Error{ErrorCode::unsupported,
                 fmt::format("'{}{}' stacks fp8 matrices of {} rows, which is no multiple of 128", prefix_,
                             name, rows.size)};
  tensors_.resident.push_back({name, whole});
  return {};
}

Status TensorMapper::norm(const std::string& name, Dim size, bool add_one) {
  MF_TRY(SourceMatrix found, resolver_.plain(prefix_ + name + ".weight", {size}));
  found.add_one = add_one;
  tensors_.resident.push_back({name, found});
  return {};
}

Status TensorMapper::parameter(const std::string& name, Dim size) {
  MF_TRY(const SourceMatrix found, resolver_.plain(prefix_ + name, {size}));
  tensors_.resident.push_back({name, found});
  return {};
}

Status TensorMapper::shaped(const std::string& name, std::vector<Dim> shape) {
  MF_TRY(const SourceMatrix found, resolver_.plain(prefix_ + name + ".weight", std::move(shape)));
  tensors_.resident.push_back({name, found});
  return {};
}

Status TensorMapper::output_head(const ModelConfig& model, const std::string& module, Notes& notes) {
  if (model.tied_embeddings) {
    skip(module + ".", "an output head, though 'tie_word_embeddings' is true", notes);
    return {};
  }
  MF_TRY(const SourceMatrix found,
         resolver_.matrix(module, {model.vocabulary, "vocab_size"}, {model.dim, "hidden_size"}));
  tensors_.resident.push_back({"lm_head", found});
  return {};
}

Status TensorMapper::swiglu(const std::string& name, Dim hidden, Dim dim) {
  MF_TRY_STATUS(matrix(name + ".gate_proj", hidden, dim));
  MF_TRY_STATUS(matrix(name + ".up_proj", hidden, dim));
  return matrix(name + ".down_proj", dim, hidden);
}

void TensorMapper::skip(const std::string& prefix, std::string_view what, Notes& notes) {
  const MatrixResolver::Skipped skipped = resolver_.skip(prefix);
  if (skipped.tensors == 0) return;
  tensors_.skipped_bytes += skipped.bytes;
  notes.push_back(fmt::format("skipped {} tensors '{}*' ({}): {}", skipped.tensors, prefix,
                              human_bytes(skipped.bytes), what));
}

void TensorMapper::note_unused(Notes& notes) const {
  const std::vector<const TensorEntry*> unused = resolver_.unused();
  if (unused.empty()) return;
  notes.push_back(fmt::format("{} tensors are not part of this model and are not used, the first is '{}'",
                              unused.size(), printable(unused[0]->name)));
}

SourceTensors TensorMapper::finish(std::vector<std::optional<SourceExperts>> experts) && {
  tensors_.experts = std::move(experts);
  return std::move(tensors_);
}

Result<SourceTensors> map_tensors(const ModelConfig& model, MatrixResolver& resolver, ExpertLocator& experts,
                                  Notes& notes) {
  switch (model.family) {
    case Family::qwen3_5_moe: return map_qwen3_5_moe(model, resolver, experts, notes);
    case Family::deepseek_v3: return map_deepseek_v3(model, resolver, experts, notes);
  }
  return Error{ErrorCode::unsupported, "a family without a tensor map"};
}

}  // namespace moeflux
