#include "model/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/json/object_reader.h"
#include "base/overloaded.h"
#include "base/printable.h"
#include "model/config_json.h"
#include "quant/tile16.h"

namespace moeflux {
namespace {

constexpr std::string_view kFormatName = "moeflux packed model";
constexpr std::uint32_t kMaxExpertFormats = 4096;

Error corrupt(std::string_view what, std::string why) {
  return {ErrorCode::corrupt_data, fmt::format("{}: {}", what, std::move(why))};
}

Json encoding_to_json(const Encoding& encoding) {
  return std::visit(overloaded{[](const PlainFormat& plain) {
                                 return Json{{"kind", "plain"}, {"dtype", name_of(plain.dtype)}};
                               },
                               [](const AffineFormat& affine) {
                                 return Json{{"kind", "affine"},
                                             {"bits", affine.bits},
                                             {"group", affine.group},
                                             {"scales", name_of(affine.scale_dtype)}};
                               },
                               [](const Fp8BlockFormat& fp8) {
                                 return Json{{"kind", "fp8_block"}, {"scales", name_of(fp8.scale_dtype)}};
                               }},
                    encoding);
}

Result<Dtype> dtype_from_json(const ObjectReader& reader, std::string_view key) {
  MF_TRY(const std::string name, reader.text(key));
  const auto dtype = dtype_from_name(name);
  if (!dtype || !is_plain_float(*dtype)) return reader.wrong(key, "BF16 or F32");
  return *dtype;
}

// An encoding that tile16 supports, for a matrix with `cols` columns.
Result<Encoding> encoding_from_json(const ObjectReader& parent, std::uint64_t cols) {
  MF_TRY(const ObjectReader reader, parent.object("encoding"));
  MF_TRY(const std::string kind, reader.text("kind"));
  Encoding encoding;
  if (kind == "plain") {
    MF_TRY(const Dtype dtype, dtype_from_json(reader, "dtype"));
    encoding = PlainFormat{dtype};
  } else if (kind == "affine") {
    AffineFormat affine{};
    MF_TRY(affine.bits, reader.size("bits", 8));
    if (!is_affine_bits(affine.bits)) return reader.wrong("bits", "2, 3, 4, 5, 6 or 8");
    MF_TRY(affine.group, reader.size("group", 128));
    if (!is_affine_group(affine.group) || cols % affine.group != 0)
      return reader.wrong("group", fmt::format("32, 64 or 128, and a divisor of {} columns", cols));
    MF_TRY(affine.scale_dtype, dtype_from_json(reader, "scales"));
    encoding = affine;
  } else if (kind == "fp8_block") {
    MF_TRY(const Dtype scales, dtype_from_json(reader, "scales"));
    encoding = Fp8BlockFormat{scales};
  } else {
    return Error{ErrorCode::unsupported,
                 fmt::format("{}: unknown encoding '{}'", reader.where(), printable(kind))};
  }
  if (tile16::stored_encoding(encoding) != encoding)
    return corrupt(reader.where(),
                   fmt::format("{} is not an encoding of a packed model", describe(encoding)));
  return encoding;
}

Json format_to_json(const MatrixFormat& format) {
  return {{"rows", format.rows}, {"cols", format.cols}, {"encoding", encoding_to_json(format.encoding)}};
}

Result<MatrixFormat> format_from_json(const ObjectReader& reader) {
  MatrixFormat format{};
  MF_TRY(format.rows, reader.size("rows", kMaxDim));
  MF_TRY(format.cols, reader.size("cols", kMaxDim));
  MF_TRY(format.encoding, encoding_from_json(reader, format.cols));
  return format;
}

Result<std::uint64_t> whole_number(const ObjectReader& reader, std::string_view key) {
  const Json* value = reader.value(key);
  if (value == nullptr) return reader.missing(key);
  if (!value->is_number_unsigned()) return reader.wrong(key, "a whole number");
  return value->get<std::uint64_t>();
}

Result<std::uint64_t> checksum_from_json(const ObjectReader& reader, std::string_view key) {
  MF_TRY(const std::string text, reader.text(key));
  const auto checksum = checksum_from_hex(text);
  if (!checksum) return reader.wrong(key, "16 hexadecimal digits");
  return *checksum;
}

Result<const Json*> array_of(const ObjectReader& reader, std::string_view key) {
  const Json* value = reader.value(key);
  if (value == nullptr) return reader.missing(key);
  if (!value->is_array()) return reader.wrong(key, "an array");
  return value;
}

Json tensor_to_json(const PackedTensor& tensor) {
  Json json{{"name", tensor.name}};
  json.update(format_to_json(tensor.format));
  json["layout"] = tensor.layout == TensorLayout::rows ? "rows" : "tile16";
  json["offset"] = tensor.offset;
  json["bytes"] = tensor.bytes;
  json["xxh3"] = hex_of(tensor.checksum);
  return json;
}

Result<PackedTensor> tensor_from_json(const Json& value, std::string_view what, std::size_t index) {
  MF_TRY(const ObjectReader reader,
         ObjectReader::as_object(value, fmt::format("{}: resident tensor {}", what, index)));
  PackedTensor tensor{};
  MF_TRY(tensor.name, reader.text("name"));
  MF_TRY(tensor.format, format_from_json(reader));
  MF_TRY(const std::string layout, reader.text("layout"));
  if (layout != "rows" && layout != "tile16") return reader.wrong("layout", "rows or tile16");
  tensor.layout = layout == "rows" ? TensorLayout::rows : TensorLayout::tile16;
  if (tensor.layout == TensorLayout::rows && tensor.format.encoding != Encoding(PlainFormat{Dtype::f32}))
    return reader.wrong("encoding", "plain F32 in rows");
  MF_TRY(tensor.offset, whole_number(reader, "offset"));
  MF_TRY(tensor.bytes, whole_number(reader, "bytes"));
  MF_TRY(tensor.checksum, checksum_from_json(reader, "xxh3"));
  if (tensor.bytes != packed_bytes(tensor.format, tensor.layout))
    return reader.wrong(
        "bytes", fmt::format("{} for this shape and encoding", packed_bytes(tensor.format, tensor.layout)));
  return tensor;
}

// Tensors are aligned, in ascending order, disjoint, and inside the file.
Status check_ranges(const Manifest& manifest, std::string_view what) {
  std::uint64_t end = 0;
  std::string before;
  for (const PackedTensor& tensor : manifest.tensors) {
    const std::string name = printable(tensor.name);
    if (tensor.offset % kTensorAlignment != 0)
      return corrupt(what, fmt::format("tensor '{}': expected an offset that is a multiple of {}, found {}",
                                       name, kTensorAlignment, tensor.offset));
    if (tensor.offset < end)
      return corrupt(what, fmt::format("tensor '{}' at offset {} overlaps tensor '{}', which ends at {}",
                                       name, tensor.offset, before, end));
    if (tensor.offset > manifest.resident_bytes || tensor.bytes > manifest.resident_bytes - tensor.offset)
      return corrupt(what,
                     fmt::format("tensor '{}': {} bytes at offset {} end beyond the {} bytes of resident.bin",
                                 name, tensor.bytes, tensor.offset, manifest.resident_bytes));
    end = tensor.offset + tensor.bytes;
    before = name;
  }
  return {};
}

// The tensors are exactly those of the config, each listed once.
Status check_tensors(const Manifest& manifest, std::string_view what) {
  std::map<std::string_view, const PackedTensor*> by_name;
  for (const PackedTensor& tensor : manifest.tensors)
    if (!by_name.emplace(tensor.name, &tensor).second)
      return corrupt(what, fmt::format("tensor '{}' is listed twice", printable(tensor.name)));
  const bool split = std::any_of(manifest.tensors.begin(), manifest.tensors.end(), [](const PackedTensor& t) {
    return t.name.ends_with(".self_attn.embed_q");
  });
  const std::vector<TensorShape> needed = resident_tensors(manifest.config, split);
  for (const TensorShape& shape : needed) {
    const auto found = by_name.find(shape.name);
    if (found == by_name.end()) return corrupt(what, fmt::format("tensor '{}' is missing", shape.name));
    const PackedTensor& tensor = *found->second;
    if (tensor.format.rows != shape.rows || tensor.format.cols != shape.cols ||
        (tensor.layout == TensorLayout::rows) != shape.is_vector)
      return corrupt(
          what, fmt::format("tensor '{}': expected {} x {} in {}, found {} x {} in {}", shape.name,
                            shape.rows, shape.cols, shape.is_vector ? "rows" : "tile16", tensor.format.rows,
                            tensor.format.cols, tensor.layout == TensorLayout::rows ? "rows" : "tile16"));
    by_name.erase(found);
  }
  if (!by_name.empty())
    return corrupt(
        what, fmt::format("tensor '{}' does not belong to this config", printable(by_name.begin()->first)));
  if (manifest.tensors.back().name != "embed_tokens")
    return corrupt(what, fmt::format("the last tensor is '{}', expected 'embed_tokens'",
                                     printable(manifest.tensors.back().name)));
  return {};
}

Json record_to_json(const ExpertRecord& record) {
  return Json::array({record.format, record.offset, record.bytes, hex_of(record.checksum)});
}

// [format, offset, bytes, checksum]: an array rather than an object, because there are tens of thousands.
Result<ExpertRecord> record_from_json(const Json& value, const std::string& where, const Manifest& manifest,
                                      std::uint64_t file_bytes) {
  const bool shaped = value.is_array() && value.size() == 4 && value[0].is_number_unsigned() &&
                      value[1].is_number_unsigned() && value[2].is_number_unsigned() && value[3].is_string();
  if (!shaped) return corrupt(where, "expected [format, offset, bytes, checksum]");
  const auto format = value[0].get<std::uint64_t>();
  ExpertRecord record{0, value[1].get<std::uint64_t>(), value[2].get<std::uint64_t>(), 0};
  if (format >= manifest.expert_formats.size())
    return corrupt(where, fmt::format("expert format {} does not exist; the manifest lists {}", format,
                                      manifest.expert_formats.size()));
  record.format = static_cast<std::uint32_t>(format);
  const auto checksum = checksum_from_hex(value[3].get_ref<const std::string&>());
  if (!checksum) return corrupt(where, "the checksum is not 16 hexadecimal digits");
  record.checksum = *checksum;
  const std::uint64_t expected = record_layout(manifest.expert_formats[format]).record_bytes;
  if (record.bytes != expected)
    return corrupt(where, fmt::format("expected a record of {} bytes, found {}", expected, record.bytes));
  if (record.offset % kRecordAlignment != 0 || record.offset > file_bytes ||
      record.bytes > file_bytes - record.offset)
    return corrupt(
        where, fmt::format("{} bytes at offset {} are not aligned to {} or end beyond the {} bytes of the "
                           "file",
                           record.bytes, record.offset, kRecordAlignment, file_bytes));
  return record;
}

// An expert of layer `moe` must have the shape of the config.
Status check_expert_format(const ExpertFormat& format, const MoeConfig& moe, std::uint32_t dim,
                           const std::string& where) {
  const auto is = [](const MatrixFormat& matrix, std::uint64_t rows, std::uint64_t cols) {
    return matrix.rows == rows && matrix.cols == cols;
  };
  if (is(format.gate, moe.hidden_dim, dim) && is(format.up, moe.hidden_dim, dim) &&
      is(format.down, dim, moe.hidden_dim))
    return {};
  return corrupt(where, fmt::format("expected an expert of {} x {}, found {} x {}", moe.hidden_dim, dim,
                                    format.gate.rows, format.gate.cols));
}

// Records of one file must not share bytes.
Status check_records_apart(std::vector<ExpertRecord> records, const std::string& where) {
  std::sort(records.begin(), records.end(),
            [](const ExpertRecord& a, const ExpertRecord& b) { return a.offset < b.offset; });
  for (std::size_t i = 1; i < records.size(); ++i)
    if (records[i].offset - records[i - 1].offset < records[i - 1].bytes)
      return corrupt(where, fmt::format("two records overlap at offset {}", records[i].offset));
  return {};
}

// A relative path below the model's directory, of printable ASCII without "..".
bool is_inner_path(std::string_view file) {
  return !file.empty() && file.size() < 256 && file.front() != '/' &&
         file.find("..") == std::string_view::npos &&
         std::all_of(file.begin(), file.end(), [](char c) { return c > 0x20 && c < 0x7f && c != '\\'; });
}

Result<ExpertFile> expert_file_from_json(const Json& value, std::string_view what, std::size_t index,
                                         const Manifest& manifest) {
  MF_TRY(const ObjectReader reader,
         ObjectReader::as_object(value, fmt::format("{}: expert file {}", what, index)));
  ExpertFile file;
  MF_TRY(const std::uint32_t layer,
         reader.size("layer", static_cast<std::uint32_t>(manifest.config.layers.size()) - 1, 0));
  file.layer = LayerId(layer);
  MF_TRY(file.file, reader.text("file"));
  if (!is_inner_path(file.file)) return reader.wrong("file", "a name inside the model's directory");
  MF_TRY(file.bytes, whole_number(reader, "bytes"));
  MF_TRY(const Json* records, array_of(reader, "records"));
  const auto* moe = std::get_if<MoeConfig>(&manifest.config.layers[layer].mlp);
  if (moe == nullptr) return corrupt(reader.where(), fmt::format("layer {} has no routed experts", layer));
  if (records->size() != moe->experts)
    return corrupt(reader.where(), fmt::format("layer {} has {} experts, found {} records", layer,
                                               moe->experts, records->size()));
  for (std::size_t e = 0; e < records->size(); ++e) {
    const std::string where = fmt::format("{}: layer {}, expert {}", what, layer, e);
    MF_TRY(const ExpertRecord record, record_from_json((*records)[e], where, manifest, file.bytes));
    MF_TRY_STATUS(
        check_expert_format(manifest.expert_formats[record.format], *moe, manifest.config.dim, where));
    file.records.push_back(record);
  }
  MF_TRY_STATUS(check_records_apart(file.records, reader.where()));
  return file;
}

Status read_experts(const ObjectReader& reader, std::string_view what, Manifest& manifest) {
  MF_TRY(const Json* formats, array_of(reader, "expert_formats"));
  if (formats->size() > kMaxExpertFormats)
    return reader.wrong("expert_formats", fmt::format("at most {} formats", kMaxExpertFormats));
  for (std::size_t i = 0; i < formats->size(); ++i) {
    MF_TRY(const ObjectReader format,
           ObjectReader::as_object((*formats)[i], fmt::format("{}: expert format {}", what, i)));
    ExpertFormat expert{};
    for (const auto& [key, matrix] :
         {std::pair{"gate", &expert.gate}, {"up", &expert.up}, {"down", &expert.down}}) {
      MF_TRY(const ObjectReader part, format.object(key));
      MF_TRY(*matrix, format_from_json(part));
    }
    if (expert.gate.rows != expert.up.rows) return format.wrong("up", "as many rows as gate");
    manifest.expert_formats.push_back(expert);
  }
  MF_TRY(const Json* files, array_of(reader, "experts"));
  for (std::size_t i = 0; i < files->size(); ++i) {
    MF_TRY(ExpertFile file, expert_file_from_json((*files)[i], what, i, manifest));
    if (!manifest.experts.empty() && !(manifest.experts.back().layer < file.layer))
      return corrupt(what, fmt::format("layer {} is listed twice or out of order", file.layer.index()));
    manifest.experts.push_back(std::move(file));
  }
  std::size_t needed = 0;
  for (const LayerConfig& layer : manifest.config.layers)
    needed += std::holds_alternative<MoeConfig>(layer.mlp);
  if (manifest.experts.size() != needed)
    return corrupt(what, fmt::format("{} layers have routed experts, but {} are listed", needed,
                                     manifest.experts.size()));
  return {};
}

}  // namespace

std::string hex_of(std::uint64_t checksum) { return fmt::format("{:016x}", checksum); }

std::string hex_of(const Digest& digest) {
  std::string text;
  for (const std::uint8_t byte : digest.bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::optional<std::uint64_t> checksum_from_hex(std::string_view text) {
  if (text.size() != 16) return std::nullopt;
  std::uint64_t value = 0;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !(c >= 'a' && c <= 'f')) return std::nullopt;
    value = value << 4 | static_cast<std::uint64_t>(digit ? c - '0' : c - 'a' + 10);
  }
  return value;
}

std::optional<Digest> digest_from_hex(std::string_view text) {
  if (text.size() != 32) return std::nullopt;
  const auto high = checksum_from_hex(text.substr(0, 16)), low = checksum_from_hex(text.substr(16));
  if (!high || !low) return std::nullopt;
  Digest digest;
  for (std::size_t i = 0; i < 8; ++i) {
    digest.bytes[i] = static_cast<std::uint8_t>(*high >> (56 - 8 * i));
    digest.bytes[8 + i] = static_cast<std::uint8_t>(*low >> (56 - 8 * i));
  }
  return digest;
}

Result<Manifest> parse_manifest(std::string_view json, std::string_view what) {
  MF_TRY(const Json document, parse_json(json, what, kManifestLimits));
  MF_TRY(const ObjectReader reader, ObjectReader::as_object(document, std::string(what)));
  MF_TRY(const std::string format, reader.text("format"));
  if (format != kFormatName) return reader.wrong("format", fmt::format("'{}'", kFormatName));
  MF_TRY(const std::uint64_t version, whole_number(reader, "format_version"));
  if (version != kPackedFormatVersion)
    return Error{ErrorCode::unsupported,
                 fmt::format("{}: expected format version {}, found {}; pack the source again", what,
                             kPackedFormatVersion, version)};
  MF_TRY(const std::string layout, reader.text("layout"));
  if (layout != tile16::kName)
    return Error{ErrorCode::unsupported,
                 fmt::format("{}: expected layout '{}', found '{}'", what, tile16::kName, printable(layout))};
  Manifest manifest;
  MF_TRY(const std::string fingerprint, reader.text("fingerprint"));
  const auto digest = digest_from_hex(fingerprint);
  if (!digest) return reader.wrong("fingerprint", "32 hexadecimal digits");
  manifest.fingerprint = *digest;
  MF_TRY(manifest.source_format, reader.text("source_format"));
  const Json* config = reader.value("config");
  if (config == nullptr) return reader.missing("config");
  MF_TRY(manifest.config, config_from_json(*config, fmt::format("{}: config", what)));

  MF_TRY(manifest.resident_bytes, whole_number(reader, "resident_bytes"));
  MF_TRY(const Json* tensors, array_of(reader, "tensors"));
  for (std::size_t i = 0; i < tensors->size(); ++i) {
    MF_TRY(PackedTensor tensor, tensor_from_json((*tensors)[i], what, i));
    manifest.tensors.push_back(std::move(tensor));
  }
  MF_TRY_STATUS(check_ranges(manifest, what));
  MF_TRY_STATUS(check_tensors(manifest, what));
  MF_TRY_STATUS(read_experts(reader, what, manifest));

  MF_TRY(manifest.text_files, reader.texts("text_files", 64));
  for (const std::string& file : manifest.text_files)
    if (!is_inner_path(file) || file.find('/') != std::string::npos)
      return reader.wrong("text_files", "plain names inside the model's directory");
  return manifest;
}

std::string write_manifest(const Manifest& manifest) {
  Json tensors = Json::array();
  for (const PackedTensor& tensor : manifest.tensors) tensors.push_back(tensor_to_json(tensor));
  Json formats = Json::array();
  for (const ExpertFormat& format : manifest.expert_formats)
    formats.push_back({{"gate", format_to_json(format.gate)},
                       {"up", format_to_json(format.up)},
                       {"down", format_to_json(format.down)}});
  Json experts = Json::array();
  for (const ExpertFile& file : manifest.experts) {
    Json records = Json::array();
    for (const ExpertRecord& record : file.records) records.push_back(record_to_json(record));
    experts.push_back({{"layer", file.layer.index()},
                       {"file", file.file},
                       {"bytes", file.bytes},
                       {"records", std::move(records)}});
  }
  const Json document{{"format", kFormatName},
                      {"format_version", kPackedFormatVersion},
                      {"layout", tile16::kName},
                      {"fingerprint", hex_of(manifest.fingerprint)},
                      {"source_format", manifest.source_format},
                      {"config", config_to_json(manifest.config)},
                      {"resident_bytes", manifest.resident_bytes},
                      {"tensors", std::move(tensors)},
                      {"expert_formats", std::move(formats)},
                      {"experts", std::move(experts)},
                      {"text_files", manifest.text_files}};
  return document.dump() + "\n";
}

}  // namespace moeflux
