#include "source/expert_layouts.h"

#include <fmt/format.h>

#include <algorithm>

namespace moeflux {

Result<SourceExperts> SafetensorsExperts::locate(LayerId layer, const std::string& mlp,
                                                 const ExpertDims& dims) {
  const TensorCatalog& catalog = resolver_.catalog();
  if (!catalog.with_prefix(mlp + ".switch_mlp.").empty()) return stacked(mlp, dims);
  if (catalog.find(mlp + ".experts.gate_up_proj") != nullptr ||
      catalog.find(mlp + ".experts.down_proj") != nullptr)
    return fused(mlp, dims);
  if (!catalog.with_prefix(mlp + ".experts.").empty()) return separate(mlp, dims);
  return Error{
      ErrorCode::not_found,
      fmt::format("layer {} has no routed experts: expected tensors '{}.switch_mlp.*' or '{}.experts.*'",
                  layer.index(), mlp, mlp)};
}

Result<SourceExperts> SafetensorsExperts::stacked(const std::string& mlp, const ExpertDims& dims) {
  SourceExperts::Stacked stack{};
  MF_TRY(stack.gate, resolver_.stacked(mlp + ".switch_mlp.gate_proj", dims.experts, dims.hidden, dims.dim));
  MF_TRY(stack.up, resolver_.stacked(mlp + ".switch_mlp.up_proj", dims.experts, dims.hidden, dims.dim));
  MF_TRY(stack.down, resolver_.stacked(mlp + ".switch_mlp.down_proj", dims.experts, dims.dim, dims.hidden));
  return SourceExperts(static_cast<std::uint32_t>(dims.experts.size), stack);
}

Result<SourceExperts> SafetensorsExperts::fused(const std::string& mlp, const ExpertDims& dims) {
  const Dim both{2 * dims.hidden.size, "2*moe_intermediate_size"};
  MF_TRY(const StackedMatrix gate_up,
         resolver_.stacked_plain(mlp + ".experts.gate_up_proj", dims.experts, both, dims.dim));
  SourceExperts::Stacked stack{.gate = gate_up, .up = gate_up, .down = {}};
  const std::uint64_t half = gate_up.first.codes.size / 2;
  for (StackedMatrix* part : {&stack.gate, &stack.up}) {
    part->first.rows = dims.hidden.size;
    part->first.codes.size = half;
  }
  stack.up.first.codes.offset += half;
  MF_TRY(stack.down,
         resolver_.stacked_plain(mlp + ".experts.down_proj", dims.experts, dims.dim, dims.hidden));
  return SourceExperts(static_cast<std::uint32_t>(dims.experts.size), stack);
}

Result<SourceExperts> SafetensorsExperts::separate(const std::string& mlp, const ExpertDims& dims) {
  std::vector<ExpertMatrices> experts;  // grows with the tensors found, not with the count the config claims
  experts.reserve(std::min(dims.experts.size,
                           std::uint64_t{resolver_.catalog().with_prefix(mlp + ".experts.").size() / 3}));
  for (std::uint64_t i = 0; i < dims.experts.size; ++i) {
    const std::string module = fmt::format("{}.experts.{}.", mlp, i);
    ExpertMatrices expert;
    MF_TRY(expert.gate, resolver_.matrix(module + "gate_proj", dims.hidden, dims.dim));
    MF_TRY(expert.up, resolver_.matrix(module + "up_proj", dims.hidden, dims.dim));
    MF_TRY(expert.down, resolver_.matrix(module + "down_proj", dims.dim, dims.hidden));
    experts.push_back(expert);
  }
  return SourceExperts(std::move(experts));
}

}  // namespace moeflux
