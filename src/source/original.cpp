#include "source/original.h"

#include <fmt/format.h>

#include <array>

#include "base/arithmetic.h"
#include "base/printable.h"
#include "source/model_config.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;

// Constants of the original program that its files do not record.
constexpr std::uint32_t kOriginalPositions = 1u << 20;
constexpr std::uint32_t kOriginalBits = 4;  // of a U32 tensor without "bits"
constexpr std::uint32_t kOriginalGroup = 64;

Error corrupt(std::string_view what, std::string why) {
  return {ErrorCode::corrupt_data, fmt::format("{}: {}", what, std::move(why))};
}

Result<std::optional<OriginalPaths>> paths_if_there(FileSystem& files, const fs::path& artifacts,
                                                    const fs::path& root, const fs::path& mlx) {
  OriginalPaths paths{artifacts / "model_weights.bin", artifacts / "model_weights.json", root, mlx};
  MF_TRY(const bool there, files.exists(paths.manifest));
  if (!there) return std::optional<OriginalPaths>{};
  return std::optional(std::move(paths));
}

Result<std::uint64_t> whole_number(const ObjectReader& tensor, std::string_view key) {
  const Json* value = tensor.value(key);
  if (value == nullptr) return tensor.missing(key);
  if (!value->is_number_unsigned()) return tensor.wrong(key, "a whole number");
  return value->get<std::uint64_t>();
}

// One entry of "tensors", checked against the size of the weights file.
Result<TensorEntry> parse_tensor(const std::string& name, const Json& value, std::string_view what,
                                 std::uint64_t weights_bytes, FileId weights) {
  MF_TRY(const ObjectReader reader,
         ObjectReader::as_object(value, fmt::format("{}: tensor '{}'", what, printable(name))));
  TensorEntry tensor{.name = name, .dtype = Dtype::f32, .shape = {}, .bytes = {weights, 0, 0}};
  MF_TRY(tensor.bytes.offset, whole_number(reader, "offset"));
  MF_TRY(tensor.bytes.size, whole_number(reader, "size"));
  MF_TRY(const std::string dtype, reader.text("dtype"));
  const auto known = dtype_from_name(dtype);
  if (!known) return reader.wrong("dtype", "a dtype such as U32, BF16 or F32");
  tensor.dtype = *known;
  const Json* shape = reader.value("shape");
  if (shape == nullptr) return reader.missing("shape");
  if (!shape->is_array() || shape->size() > 8)
    return reader.wrong("shape", "an array of at most 8 whole numbers");
  for (const Json& dim : *shape) {
    if (!dim.is_number_unsigned()) return reader.wrong("shape", "an array of whole numbers");
    tensor.shape.push_back(dim.get<std::uint64_t>());
  }
  if (tensor.bytes.offset > weights_bytes || tensor.bytes.size > weights_bytes - tensor.bytes.offset)
    return corrupt(reader.where(),
                   fmt::format("{} bytes at offset {} do not fit into model_weights.bin, which has {}",
                               tensor.bytes.size, tensor.bytes.offset, weights_bytes));
  const auto elements = checked_product(tensor.shape);
  const auto bits = elements ? checked_multiply(*elements, bits_of(tensor.dtype)) : std::nullopt;
  if (!bits || *bits % 8 != 0 || *bits / 8 != tensor.bytes.size)
    return corrupt(reader.where(), fmt::format("{} {} does not fill its {} bytes", dtype,
                                               describe_shape(tensor.shape), tensor.bytes.size));
  return tensor;
}

// The config block, completed with the constants of the original program.
Result<ModelConfig> parse_config(const Json& config, std::string where, Notes& notes) {
  Json completed = config;
  // Checks two keys, so that the error for a config without one of them names the missing one.
  const bool deepseek = completed.contains("n_routed_experts") || completed.contains("kv_lora_rank");
  completed["model_type"] = deepseek ? "deepseek_v3" : "qwen3_5_moe";
  if (!completed.contains("max_position_embeddings")) {
    completed["max_position_embeddings"] = kOriginalPositions;
    notes.push_back(
        fmt::format("{}: 'max_position_embeddings' is not recorded; the original's {} positions are assumed",
                    where, kOriginalPositions));
  }
  if (deepseek && !completed.contains("norm_topk_prob")) completed["norm_topk_prob"] = true;
  MF_TRY(const ObjectReader reader, ObjectReader::as_object(completed, std::move(where)));
  reader.ignore(std::array<std::string_view, 2>{"default_bits", "default_group_size"});
  return parse_model_config(reader, notes);
}

Result<Quantization> parse_bits(const Json& config, const Json& tensors, const std::string& where) {
  const ObjectReader reader(config, where);
  AffineParameters defaults{kOriginalBits, kOriginalGroup};
  if (reader.has("default_bits")) {
    MF_TRY(defaults.bits, reader.size("default_bits", 8));
  }
  if (reader.has("default_group_size")) {
    MF_TRY(defaults.group, reader.size("default_group_size", 128));
  }
  Quantization quantization = Quantization::affine(defaults);
  constexpr std::string_view kSuffix = ".weight";
  for (const auto& [name, value] : tensors.items()) {
    if (!value.is_object() || !name.ends_with(kSuffix) || value.value("dtype", Json()) != "U32") continue;
    AffineParameters parameters{kOriginalBits, defaults.group};
    const ObjectReader tensor(value, fmt::format("{}: tensor '{}'", where, printable(name)));
    if (tensor.has("bits")) {
      MF_TRY(parameters.bits, tensor.size("bits", 8));
    }
    quantization.override_module(name.substr(0, name.size() - kSuffix.size()), parameters);
  }
  return quantization;
}

}  // namespace

Result<std::optional<OriginalPaths>> find_original(FileSystem& files, const fs::path& directory) {
  MF_TRY(auto paths, paths_if_there(files, directory / "artifacts", directory / "root", directory / "mlx"));
  if (paths) return paths;
  MF_TRY(paths, paths_if_there(files, directory, directory, directory / "mlx"));
  const fs::path whole = directory.has_filename() ? directory : directory.parent_path();
  const std::string name = whole.filename().string();
  if (name == "artifacts" || name == "root" || name == "mlx") {
    const fs::path parent = whole.has_parent_path() ? whole.parent_path() : fs::path(".");
    MF_TRY(auto parts, paths_if_there(files, parent / "artifacts", parent / "root", parent / "mlx"));
    if (parts) return parts;
  }
  for (const std::string_view suffix : {"-artifacts", "-root", "-mlx-4bit"}) {
    if (!name.ends_with(suffix)) continue;
    const std::string stem = name.substr(0, name.size() - suffix.size());
    MF_TRY(auto siblings, paths_if_there(files, whole.parent_path() / (stem + "-artifacts"),
                                         whole.parent_path() / (stem + "-root"),
                                         whole.parent_path() / (stem + "-mlx-4bit")));
    if (!siblings) continue;
    // A folder that holds all artifacts may also be called NAME-artifacts.
    MF_TRY(const bool has_root, files.exists(siblings->experts_root));
    if (has_root || !paths) return siblings;
  }
  return paths;
}

Result<OriginalManifest> parse_original_manifest(std::string_view json, std::string_view what,
                                                 std::uint64_t weights_bytes, FileId weights, Notes& notes) {
  MF_TRY(const Json document, parse_json(json, what));
  MF_TRY(const ObjectReader manifest, ObjectReader::as_object(document, std::string(what)));
  const Json* tensors = manifest.value("tensors");
  if (tensors == nullptr) return manifest.missing("tensors");
  if (!tensors->is_object()) return manifest.wrong("tensors", "an object");
  const Json* config = manifest.value("config");
  if (config == nullptr) return manifest.missing("config");
  if (!config->is_object()) return manifest.wrong("config", "an object");

  OriginalManifest result;
  const std::string config_where = fmt::format("{}: config", what);
  MF_TRY(result.config, parse_config(*config, config_where, notes));
  MF_TRY(result.quantization, parse_bits(*config, *tensors, config_where));
  for (const auto& [name, value] : tensors->items()) {
    MF_TRY(TensorEntry tensor, parse_tensor(name, value, what, weights_bytes, weights));
    result.tensors.push_back(std::move(tensor));
  }
  if (manifest.has("num_tensors")) {
    MF_TRY(const std::uint64_t claimed, whole_number(manifest, "num_tensors"));
    if (claimed != result.tensors.size())
      return corrupt(what, fmt::format("'num_tensors' is {}, but {} tensors are listed", claimed,
                                       result.tensors.size()));
  }
  return result;
}

Result<OriginalExperts> OriginalExperts::find(FileSystem& files, TensorCatalog& catalog, const fs::path& root,
                                              bool use_2bit, Notes& notes) {
  MF_TRY(const bool four, files.exists(root / kPackedExperts));
  MF_TRY(const bool two, files.exists(root / kPackedExperts2bit));
  if (four && two)
    notes.push_back(
        fmt::format("4-bit and 2-bit experts are both there; the {}-bit ones are read", use_2bit ? 2 : 4));
  if (use_2bit && !two)
    return Error{ErrorCode::not_found, fmt::format("{}: expected {} here, because 2-bit experts are wanted",
                                                   root.string(), kPackedExperts2bit)};
  if (four && !use_2bit) return OriginalExperts(files, catalog, root / kPackedExperts, 4);
  if (two) return OriginalExperts(files, catalog, root / kPackedExperts2bit, 2);
  MF_TRY(const bool lz4, files.exists(root / "packed_experts_lz4"));
  if (lz4)
    return Error{
        ErrorCode::unsupported,
        fmt::format("{}: LZ4-compressed experts are not supported; expected packed_experts beside them",
                    (root / "packed_experts_lz4").string())};
  return Error{ErrorCode::not_found,
               fmt::format("{}: expected packed_experts or packed_experts_2bit here", root.string())};
}

Result<SourceExperts> OriginalExperts::locate(LayerId layer, const std::string&, const ExpertDims& dims) {
  const fs::path path = folder_ / fmt::format("layer_{:02}.bin", layer.index());
  const AffineFormat format{bits_, kOriginalGroup, Dtype::bf16};
  if (dims.dim.size % kOriginalGroup != 0 || dims.hidden.size % kOriginalGroup != 0)
    return Error{ErrorCode::corrupt_data,
                 fmt::format("{}: experts of {}={} by {}={} cannot be in groups of {}", path.string(),
                             dims.hidden.key, dims.hidden.size, dims.dim.key, dims.dim.size, kOriginalGroup)};
  const EncodedBytes part =
      encoded_bytes(format, dims.hidden.size, dims.dim.size);  // the same for gate, up and down
  const std::uint64_t record = 3 * part.total();
  MF_TRY(auto file, files_->open_read(path));
  MF_TRY(const std::uint64_t found, file->size());
  const std::uint64_t expected = dims.experts.size * record;  // at most 2^16 * 2^45 bytes
  if (found != expected)
    return corrupt(path.string(), fmt::format("{} {}-bit experts of {} bytes should fill {} bytes, found {}",
                                              dims.experts.size, bits_, record, expected, found));
  const FileId id = catalog_->add_file(std::move(file));

  std::uint64_t offset = 0;
  const auto take = [&](std::uint64_t size) {
    const ByteRange range{id, offset, size};
    offset += size;
    return range;
  };
  const auto take_matrix = [&](Dim rows, Dim cols) {
    SourceMatrix matrix{
        .rows = rows.size, .cols = cols.size, .encoding = format, .codes = {}, .scales = {}, .biases = {}};
    matrix.codes = take(part.codes);
    matrix.scales = take(part.scales);
    matrix.biases = take(part.biases);
    return StackedMatrix{matrix, record, record, record};
  };
  SourceExperts::Stacked stack{};
  stack.gate = take_matrix(dims.hidden, dims.dim);
  stack.up = take_matrix(dims.hidden, dims.dim);
  stack.down = take_matrix(dims.dim, dims.hidden);
  return SourceExperts(static_cast<std::uint32_t>(dims.experts.size), stack);
}

}  // namespace moeflux
