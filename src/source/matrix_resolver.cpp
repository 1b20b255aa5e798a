#include "source/matrix_resolver.h"

#include <fmt/format.h>

#include "base/arithmetic.h"
#include "base/printable.h"

namespace moeflux {
namespace {

std::string describe_dims(const std::vector<Dim>& dims) {
  std::vector<std::string> parts;
  for (const Dim& dim : dims)
    parts.push_back(dim.key.empty() ? fmt::format("{}", dim.size) : fmt::format("{}={}", dim.key, dim.size));
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

std::vector<Dim> with(std::vector<Dim> lead, Dim rows, Dim cols) {
  lead.push_back(rows);
  lead.push_back(cols);
  return lead;
}

// True if all dimensions but the last match and a last one exists.
bool leads_with(const std::vector<std::uint64_t>& shape, const std::vector<Dim>& lead, Dim rows) {
  if (shape.size() != lead.size() + 2) return false;
  for (std::size_t i = 0; i < lead.size(); ++i)
    if (shape[i] != lead[i].size) return false;
  return shape[lead.size()] == rows.size;
}

// The first of `count` equal matrices in three tensors, and the distances to the next one.
StackedMatrix stack_of(SourceMatrix whole, std::uint64_t count) {
  StackedMatrix stack{whole, whole.codes.size / count, whole.scales.size / count, whole.biases.size / count};
  stack.first.codes.size = stack.codes_stride;
  stack.first.scales.size = stack.scales_stride;
  stack.first.biases.size = stack.biases_stride;
  return stack;
}

std::uint64_t count_of(const std::vector<Dim>& lead) { return lead.empty() ? 1 : lead[0].size; }

}  // namespace

MatrixResolver::MatrixResolver(const TensorCatalog& catalog, const Quantization& quantization)
    : catalog_(catalog), quantization_(quantization), used_(catalog.all().size(), false) {}

std::string MatrixResolver::file_of(const TensorEntry& tensor) const {
  return catalog_.file(tensor.bytes.file).path().string();
}

Result<const TensorEntry*> MatrixResolver::require(const std::string& name) {
  const auto index = catalog_.index_of(name);
  if (!index) return Error{ErrorCode::not_found, fmt::format("tensor '{}' is missing", name)};
  used_[*index] = true;
  return &catalog_.all()[*index];
}

Error MatrixResolver::mismatch(const TensorEntry& tensor, const std::vector<Dim>& expected) const {
  return {ErrorCode::corrupt_data,
          fmt::format("{}: tensor '{}': expected {}, found {} {}", file_of(tensor), tensor.name,
                      describe_dims(expected), name_of(tensor.dtype), describe_shape(tensor.shape))};
}

Status MatrixResolver::check_shape(const TensorEntry& tensor, const std::vector<Dim>& expected) const {
  bool same = tensor.shape.size() == expected.size();
  for (std::size_t i = 0; same && i < expected.size(); ++i) same = tensor.shape[i] == expected[i].size;
  if (!same) return mismatch(tensor, expected);
  return {};
}

Status MatrixResolver::cross_check(const std::string& module, AffineParameters found) const {
  if (quantization_.method() != Quantization::Method::affine)
    return Error{
        ErrorCode::corrupt_data,
        fmt::format("tensor '{}.scales' belongs to a quantized module, but the config has no 'quantization'",
                    module)};
  const auto said = quantization_.of_module(module);
  if (!said)
    return Error{
        ErrorCode::corrupt_data,
        fmt::format("the config says that '{}' is not quantized, but '{}.scales' is there", module, module)};
  if (*said != found)
    return Error{
        ErrorCode::corrupt_data,
        fmt::format("the config says {} bits in groups of {} for '{}', but the shapes of its tensors mean {} "
                    "bits in groups of {}",
                    said->bits, said->group, module, found.bits, found.group)};
  return {};
}

Result<StackedMatrix> MatrixResolver::resolve_affine(const std::string& module, const TensorEntry& weight,
                                                     const std::vector<Dim>& lead, Dim rows, Dim cols) {
  MF_TRY(const TensorEntry* scales, require(module + ".scales"));
  MF_TRY(const TensorEntry* biases, require(module + ".biases"));
  if (weight.dtype != Dtype::u32)
    return Error{ErrorCode::corrupt_data,
                 fmt::format("{}: tensor '{}' has scales beside it, so it must be U32, found {}",
                             file_of(weight), weight.name, name_of(weight.dtype))};
  const std::vector<Dim> logical = with(lead, rows, cols);
  if (!leads_with(weight.shape, lead, rows)) return mismatch(weight, logical);
  if (!leads_with(scales->shape, lead, rows)) return mismatch(*scales, logical);

  // bits = 32 * words / columns; group = columns / scales. Both must be whole.
  const auto word_bits = checked_multiply(weight.shape.back(), 32);
  const std::uint64_t groups = scales->shape.back();
  if (!word_bits || *word_bits % cols.size != 0 || !is_affine_bits(*word_bits / cols.size))
    return Error{
        ErrorCode::corrupt_data,
        fmt::format(
            "{}: tensor '{}' has {} words per row for {} columns ({}), which is not 2, 3, 4, 5, 6 or 8 "
            "bits each",
            file_of(weight), weight.name, weight.shape.back(), cols.size, cols.key)};
  if (groups == 0 || cols.size % groups != 0 || !is_affine_group(cols.size / groups))
    return Error{
        ErrorCode::corrupt_data,
        fmt::format(
            "{}: tensor '{}' has {} scales per row for {} columns ({}), which is not groups of 32, 64 or "
            "128",
            file_of(*scales), scales->name, groups, cols.size, cols.key)};
  if (!is_plain_float(scales->dtype))
    return Error{ErrorCode::unsupported, fmt::format("{}: tensor '{}' is {}; expected BF16, F16 or F32",
                                                     file_of(*scales), scales->name, name_of(scales->dtype))};
  if (biases->shape != scales->shape || biases->dtype != scales->dtype)
    return Error{ErrorCode::corrupt_data,
                 fmt::format("{}: tensor '{}' is {} {}, but its scales are {} {}", file_of(*biases),
                             biases->name, name_of(biases->dtype), describe_shape(biases->shape),
                             name_of(scales->dtype), describe_shape(scales->shape))};
  const AffineParameters found{static_cast<std::uint32_t>(*word_bits / cols.size),
                               static_cast<std::uint32_t>(cols.size / groups)};
  MF_TRY_STATUS(cross_check(module, found));

  SourceMatrix whole{.rows = rows.size,
                     .cols = cols.size,
                     .encoding = AffineFormat{found.bits, found.group, scales->dtype},
                     .codes = weight.bytes,
                     .scales = scales->bytes,
                     .biases = biases->bytes};
  return stack_of(whole, count_of(lead));
}

Result<StackedMatrix> MatrixResolver::resolve_fp8(const std::string& module, const TensorEntry& weight,
                                                  const std::vector<Dim>& lead, Dim rows, Dim cols) {
  MF_TRY(const TensorEntry* scales, require(module + ".weight_scale_inv"));
  if (quantization_.method() != Quantization::Method::fp8)
    return Error{
        ErrorCode::corrupt_data,
        fmt::format("tensor '{}' is F8_E4M3, but the config has no 'quantization_config' with quant_method "
                    "'fp8'",
                    weight.name)};
  MF_TRY_STATUS(check_shape(weight, with(lead, rows, cols)));
  if (scales->dtype != Dtype::f32 && scales->dtype != Dtype::bf16)
    return Error{ErrorCode::unsupported, fmt::format("{}: tensor '{}' is {}; expected F32 or BF16",
                                                     file_of(*scales), scales->name, name_of(scales->dtype))};
  const std::uint64_t block = Fp8BlockFormat::kBlock;
  MF_TRY_STATUS(check_shape(*scales, with(lead, {divide_up(rows.size, block), "row blocks of 128"},
                                          {divide_up(cols.size, block), "column blocks of 128"})));
  SourceMatrix whole{.rows = rows.size,
                     .cols = cols.size,
                     .encoding = Fp8BlockFormat{scales->dtype},
                     .codes = weight.bytes,
                     .scales = scales->bytes,
                     .biases = {}};
  return stack_of(whole, count_of(lead));
}

Result<StackedMatrix> MatrixResolver::resolve(const std::string& module, std::vector<Dim> lead, Dim rows,
                                              Dim cols) {
  const std::string name = module + ".weight";
  if (catalog_.find(name) == nullptr) {
    for (const std::string_view foreign : {".qweight", ".weight_packed"})
      if (catalog_.find(module + std::string(foreign)) != nullptr)
        return Error{
            ErrorCode::unsupported,
            fmt::format(
                "tensor '{}{}' is of a GPTQ, AWQ or compressed-tensors checkpoint, which moeflux does "
                "not read yet",
                module, foreign)};
  }
  MF_TRY(const TensorEntry* weight, require(name));
  if (weight->dtype == Dtype::u32 || catalog_.find(module + ".scales") != nullptr)
    return resolve_affine(module, *weight, lead, rows, cols);
  if (weight->dtype == Dtype::f8_e4m3) return resolve_fp8(module, *weight, lead, rows, cols);
  if (quantization_.insists_on(module))
    return Error{
        ErrorCode::corrupt_data,
        fmt::format("the config says that '{}' is quantized, but '{}.scales' is missing", module, module)};
  if (lead.empty()) {
    MF_TRY(const SourceMatrix matrix, plain(name, {rows, cols}));
    return stack_of(matrix, 1);
  }
  return stacked_plain(name, lead[0], rows, cols);
}

Result<SourceMatrix> MatrixResolver::matrix(const std::string& module, Dim rows, Dim cols) {
  MF_TRY(const StackedMatrix one, resolve(module, {}, rows, cols));
  return one.first;
}

Result<StackedMatrix> MatrixResolver::stacked(const std::string& module, Dim count, Dim rows, Dim cols) {
  return resolve(module, {count}, rows, cols);
}

Result<StackedMatrix> MatrixResolver::stacked_plain(const std::string& tensor, Dim count, Dim rows,
                                                    Dim cols) {
  MF_TRY(SourceMatrix whole, plain(tensor, {count, rows, cols}));
  whole.rows = rows.size;
  whole.cols = cols.size;
  return stack_of(whole, count.size);
}

Result<SourceMatrix> MatrixResolver::plain(const std::string& tensor, std::vector<Dim> shape) {
  MF_TRY(const TensorEntry* entry, require(tensor));
  MF_TRY_STATUS(check_shape(*entry, shape));
  if (!is_plain_float(entry->dtype))
    return Error{ErrorCode::unsupported, fmt::format("{}: tensor '{}' is {}; expected BF16, F16 or F32",
                                                     file_of(*entry), entry->name, name_of(entry->dtype))};
  const std::uint64_t rows = shape.size() == 1 ? 1 : shape[0].size;
  std::uint64_t cols = 1;  // cannot overflow: the shape was checked against the bytes of its file
  for (std::size_t i = shape.size() == 1 ? 0 : 1; i < shape.size(); ++i) cols *= shape[i].size;
  return SourceMatrix{.rows = rows,
                      .cols = cols,
                      .encoding = PlainFormat{entry->dtype},
                      .codes = entry->bytes,
                      .scales = {},
                      .biases = {}};
}

MatrixResolver::Skipped MatrixResolver::skip(std::string_view prefix) {
  Skipped skipped;
  const auto range = catalog_.with_prefix(prefix);
  const auto first = static_cast<std::size_t>(range.data() - catalog_.all().data());
  for (std::size_t i = 0; i < range.size(); ++i) {
    if (used_[first + i]) continue;
    used_[first + i] = true;
    ++skipped.tensors;
    skipped.bytes += range[i].bytes.size;
  }
  return skipped;
}

std::vector<const TensorEntry*> MatrixResolver::unused() const {
  std::vector<const TensorEntry*> unused;
  for (std::size_t i = 0; i < used_.size(); ++i)
    if (!used_[i]) unused.push_back(&catalog_.all()[i]);
  return unused;
}

}  // namespace moeflux
