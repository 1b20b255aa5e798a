#include "pack/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/arithmetic.h"
#include "quant/tile16.h"

namespace moeflux {
namespace {

enum class SourceEncoding { plain, affine, fp8 };

SourceEncoding encoding_of(const SourceMatrix& matrix) {
  if (std::holds_alternative<AffineFormat>(matrix.encoding)) return SourceEncoding::affine;
  if (std::holds_alternative<Fp8BlockFormat>(matrix.encoding)) return SourceEncoding::fp8;
  return SourceEncoding::plain;
}

// The kind of source: affine if any matrix is affine, else fp8 if any is fp8, else plain.
SourceEncoding encoding_of(const SourceModel& source) {
  SourceEncoding found = SourceEncoding::plain;
  const auto see = [&](const SourceMatrix& matrix) {
    if (encoding_of(matrix) == SourceEncoding::affine) found = SourceEncoding::affine;
    if (encoding_of(matrix) == SourceEncoding::fp8 && found == SourceEncoding::plain)
      found = SourceEncoding::fp8;
  };
  for (const NamedMatrix& named : source.resident()) see(named.matrix);
  for (std::uint32_t i = 0; i < source.config().layers.size(); ++i)
    if (const SourceExperts* experts = source.experts(LayerId(i))) {
      const ExpertMatrices first = experts->expert(ExpertId(0));
      for (const SourceMatrix* matrix : {&first.gate, &first.up, &first.down}) see(*matrix);
    }
  return found;
}

// The bits for plain and FP8 matrices; nullopt: keep them unchanged.
Result<std::optional<std::uint32_t>> bits_to_use(const SourceModel& source, const PackOptions& options) {
  const SourceEncoding encoding = encoding_of(source);
  if (options.bits && encoding == SourceEncoding::affine)
    return Error{
        ErrorCode::invalid_argument,
        fmt::format("{}: already quantized, and its codes are never changed; --bits is for BF16 and FP8 "
                    "sources",
                    source.path().string())};
  if (options.bits) return options.bits;
  if (encoding == SourceEncoding::plain) return std::optional<std::uint32_t>(4);
  return std::optional<std::uint32_t>();
}

class FormatRule {
 public:
  FormatRule(Family family, std::optional<std::uint32_t> bits) : family_(family), bits_(bits) {}

  MatrixFormat stored(std::string_view name, const SourceMatrix& matrix) const {
    return {matrix.rows, matrix.cols, encoding(name, matrix)};
  }

 private:
  Encoding encoding(std::string_view name, const SourceMatrix& matrix) const {
    const Encoding kept = tile16::stored_encoding(matrix.encoding);
    if (!bits_ || encoding_of(matrix) == SourceEncoding::affine) return kept;
    const bool router = name.ends_with(".mlp.gate") || name.ends_with(".mlp.shared_expert_gate");
    const bool stays =
        *bits_ == 16 || matrix.cols % kPackGroup != 0 || (router && family_ == Family::deepseek_v3);
    if (stays) return encoding_of(matrix) == SourceEncoding::fp8 ? Encoding(PlainFormat{Dtype::bf16}) : kept;
    return AffineFormat{router ? 8 : *bits_, kPackGroup, Dtype::bf16};
  }

  Family family_;
  std::optional<std::uint32_t> bits_;
};

Result<std::vector<TensorPlan>> plan_resident(const SourceModel& source, const FormatRule& rule) {
  std::map<std::string_view, const NamedMatrix*> by_name;
  bool split = false;
  for (const NamedMatrix& named : source.resident()) {
    by_name.emplace(named.name, &named);
    split |= named.name.ends_with(".self_attn.embed_q");
  }
  std::vector<TensorPlan> plans;
  std::uint64_t offset = 0;
  for (const TensorShape& shape : resident_tensors(source.config(), split)) {
    const auto found = by_name.find(shape.name);
    if (found == by_name.end() || found->second->matrix.rows != shape.rows ||
        found->second->matrix.cols != shape.cols)
      return Error{ErrorCode::corrupt_data,
                   fmt::format("{}: tensor '{}': expected {} x {}", source.path().string(), shape.name,
                               shape.rows, shape.cols)};
    const SourceMatrix& matrix = found->second->matrix;
    TensorPlan plan{found->second, {}, TensorLayout::tile16, offset, 0};
    if (shape.is_vector) {
      plan.layout = TensorLayout::rows;
      plan.format = {matrix.rows, matrix.cols, PlainFormat{Dtype::f32}};
    } else {
      plan.format = rule.stored(shape.name, matrix);
    }
    plan.bytes = packed_bytes(plan.format, plan.layout);
    offset = divide_up(offset + plan.bytes, kTensorAlignment) * kTensorAlignment;
    plans.push_back(plan);
  }
  return plans;
}

std::uint32_t index_of(std::vector<ExpertFormat>& formats, const ExpertFormat& format) {
  const auto found = std::find(formats.begin(), formats.end(), format);
  const auto index = static_cast<std::uint32_t>(found - formats.begin());
  if (found == formats.end()) formats.push_back(format);
  return index;
}

ExpertFilePlan plan_experts(LayerId layer, const SourceExperts& experts, const FormatRule& rule,
                            std::vector<ExpertFormat>& formats) {
  ExpertFilePlan plan;
  plan.layer = layer;
  for (std::uint32_t e = 0; e < experts.count(); ++e) {
    if (e == 0 || !experts.is_uniform()) {
      const ExpertMatrices expert = experts.expert(ExpertId(e));
      plan.formats.push_back(
          index_of(formats, {rule.stored(".gate_proj", expert.gate), rule.stored(".up_proj", expert.up),
                             rule.stored(".down_proj", expert.down)}));
    } else {
      plan.formats.push_back(plan.formats.front());
    }
    plan.offsets.push_back(plan.bytes);
    plan.bytes += record_layout(formats[plan.formats.back()]).record_bytes;
  }
  return plan;
}

}  // namespace

std::uint64_t PackPlan::total_bytes() const {
  std::uint64_t total = resident_bytes;
  for (const ExpertFilePlan& file : expert_files) total += file.bytes;
  return total;
}

Result<PackPlan> plan_pack(const SourceModel& source, const PackOptions& options) {
  if (options.bits && *options.bits != 4 && *options.bits != 8 && *options.bits != 16)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("--bits must be 4, 8 or 16, found {}", *options.bits)};
  MF_TRY(const std::optional<std::uint32_t> bits, bits_to_use(source, options));
  const FormatRule rule(source.config().family, bits);
  PackPlan plan;
  MF_TRY(plan.tensors, plan_resident(source, rule));
  plan.resident_bytes = plan.tensors.back().offset + plan.tensors.back().bytes;
  for (std::uint32_t i = 0; i < source.config().layers.size(); ++i)
    if (const SourceExperts* experts = source.experts(LayerId(i)))
      plan.expert_files.push_back(plan_experts(LayerId(i), *experts, rule, plan.expert_formats));
  return plan;
}

}  // namespace moeflux
