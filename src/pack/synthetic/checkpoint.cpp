#include "pack/synthetic/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <span>
#include <utility>

#include "base/json/json.h"
#include "quant/encoding.h"
#include "source/model_config.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxTensorsInShard = 1u << 16;  // half of the readers' limit per header

struct TensorBytes {
  std::uint64_t end;  // in its file; a tensor begins where the one before it ends
  std::uint64_t key;
  SyntheticPattern pattern;
};

// A text, followed by the data of the tensors if the text is a header.
struct SyntheticFile {
  std::string text;
  std::vector<TensorBytes> tensors;

  std::uint64_t size() const { return tensors.empty() ? text.size() : tensors.back().end; }
};

// Adds the quantization of `format` to the config, with the keys that MLX or Hugging Face use.
void describe_quantization(Json& config, SyntheticFormat format, const SyntheticPlan& plan) {
  config.erase("quantization");
  config.erase("quantization_config");
  if (format == SyntheticFormat::mlx) {
    Json quantization{{"group_size", kSyntheticGroup}, {"bits", kSyntheticBits}, {"mode", "affine"}};
    for (const std::string& module : plan.eight_bit_modules)
      quantization[module] = {{"group_size", kSyntheticGroup}, {"bits", 8}};
    config["quantization"] = quantization;
    config["quantization_config"] = std::move(quantization);
  } else if (format == SyntheticFormat::fp8) {
    config["quantization_config"] = {{"activation_scheme", "dynamic"},
                                     {"fmt", "e4m3"},
                                     {"quant_method", "fp8"},
                                     {"weight_block_size", {Fp8BlockFormat::kBlock, Fp8BlockFormat::kBlock}}};
  }
}

using Tensors = std::span<const SyntheticTensor>;

std::vector<Tensors> split(Tensors tensors, std::uint64_t shard_bytes) {
  std::vector<Tensors> shards;
  std::size_t first = 0;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const bool full = bytes > shard_bytes || tensors[i].bytes > shard_bytes - bytes;
    if (i > first && (full || i - first == kMaxTensorsInShard)) {
      shards.push_back(tensors.subspan(first, i - first));
      first = i;
      bytes = 0;
    }
    bytes += tensors[i].bytes;
  }
  shards.push_back(tensors.subspan(first));
  return shards;
}

// Hugging Face pads a header with spaces so that data begins at a multiple of 8; MLX does not.
std::string header_of(Tensors tensors, SyntheticFormat format) {
  const bool mlx = format == SyntheticFormat::mlx;
  std::string json = fmt::format(R"({{"__metadata__":{{"format":"{}"}})", mlx ? "mlx" : "pt");
  std::uint64_t begin = 0;
  for (const SyntheticTensor& tensor : tensors) {
    fmt::format_to(std::back_inserter(json), R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                   tensor.name, name_of(tensor.dtype), fmt::join(tensor.shape, ","), begin,
                   begin + tensor.bytes);
    begin += tensor.bytes;
  }
  json += '}';
  if (!mlx) json.resize((json.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = json.size();
  json.insert(0, reinterpret_cast<const char*>(&length), sizeof length);
  json.shrink_to_fit();
  return json;
}

SyntheticFile shard_of(Tensors tensors, SyntheticFormat format) {
  SyntheticFile file{header_of(tensors, format), {}};
  file.tensors.reserve(tensors.size());
  std::uint64_t end = file.text.size();
  for (const SyntheticTensor& tensor : tensors)
    file.tensors.push_back({end += tensor.bytes, tensor.key, tensor.pattern});
  return file;
}

class SyntheticReadFile final : public ReadFile {
 public:
  SyntheticReadFile(fs::path path, std::shared_ptr<const SyntheticFile> file)
      : ReadFile(std::move(path)), file_(std::move(file)) {}

  Result<std::uint64_t> size() const override { return file_->size(); }

  Result<std::size_t> read_some(std::uint64_t offset, std::span<std::byte> out) const override {
    const std::uint64_t size = file_->size();
    if (offset >= size || out.empty()) return std::size_t{0};
    out = out.first(static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), size - offset)));
    read(offset, out);
    return out.size();
  }

 private:
  void read(std::uint64_t offset, std::span<std::byte> out) const {
    if (offset < file_->text.size()) {
      const std::size_t count = std::min<std::size_t>(out.size(), file_->text.size() - offset);
      std::memcpy(out.data(), file_->text.data() + offset, count);
      offset += count;
      out = out.subspan(count);
    }
    const auto& tensors = file_->tensors;
    auto tensor = std::upper_bound(tensors.begin(), tensors.end(), offset,
                                   [](std::uint64_t at, const TensorBytes& t) { return at < t.end; });
    for (; !out.empty(); ++tensor) {
      const std::uint64_t begin = tensor == tensors.begin() ? file_->text.size() : std::prev(tensor)->end;
      const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), tensor->end - offset));
      generate(tensor->pattern, tensor->key, offset - begin, out.first(count));
      offset += count;
      out = out.subspan(count);
    }
  }

  std::shared_ptr<const SyntheticFile> file_;
};

Error read_only(const fs::path& path) {
  return {ErrorCode::unsupported, fmt::format("{}: a synthetic checkpoint is read-only", path.string())};
}

Error nothing_at(const fs::path& path) {
  return {ErrorCode::not_found, fmt::format("{}: no such file in a synthetic checkpoint", path.string())};
}

}  // namespace

struct SyntheticCheckpoint::Contents {
  fs::path directory;
  std::map<std::string, std::shared_ptr<const SyntheticFile>> files;  // by name
  std::uint64_t total_bytes = 0;

  void add(std::string name, SyntheticFile file) {
    total_bytes += file.size();
    files.emplace(std::move(name), std::make_shared<const SyntheticFile>(std::move(file)));
  }

  bool is_directory(const fs::path& path) const {
    const fs::path normal = path.lexically_normal();
    return normal == directory || normal == directory / "";
  }

  std::shared_ptr<const SyntheticFile> find(const fs::path& path) const {  // or null
    const fs::path normal = path.lexically_normal();
    if (normal.parent_path() != directory.parent_path() / directory.filename()) return nullptr;
    const auto found = files.find(normal.filename().string());
    return found == files.end() ? nullptr : found->second;
  }
};

SyntheticCheckpoint::SyntheticCheckpoint(std::shared_ptr<const Contents> contents)
    : contents_(std::move(contents)) {}

Result<SyntheticCheckpoint> SyntheticCheckpoint::make(std::string_view config,
                                                      const SyntheticOptions& options) {
  MF_TRY(Json document, parse_json(config, "config.json"));
  MF_TRY(const ObjectReader reader, ObjectReader::as_object(document, "config.json"));
  Notes notes;  // dropped: opening the checkpoint reports them again
  MF_TRY(const ModelConfig model, parse_model_config(reader, notes));
  MF_TRY(const SyntheticPlan plan, plan_synthetic_tensors(model, options.format, options.seed));
  describe_quantization(document, options.format, plan);

  auto contents = std::make_shared<Contents>();
  contents->directory = (options.directory / "x").lexically_normal().parent_path();
  contents->add("config.json", {document.dump(2) + "\n", {}});

  const std::vector<Tensors> shards = split(plan.tensors, options.shard_bytes);
  std::uint64_t tensor_bytes = 0;
  for (const SyntheticTensor& tensor : plan.tensors) tensor_bytes += tensor.bytes;
  std::string index = fmt::format(R"({{"metadata":{{"total_size":{}}},"weight_map":{{)", tensor_bytes);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    contents->add(name, shard_of(shards[i], options.format));
    for (const SyntheticTensor& tensor : shards[i])
      fmt::format_to(std::back_inserter(index), R"({}"{}":"{}")", &tensor == plan.tensors.data() ? "" : ",",
                     tensor.name, name);
  }
  index += "}}\n";
  index.shrink_to_fit();
  contents->add("model.safetensors.index.json", {std::move(index), {}});
  return SyntheticCheckpoint(std::move(contents));
}

const fs::path& SyntheticCheckpoint::directory() const { return contents_->directory; }

std::uint64_t SyntheticCheckpoint::total_bytes() const { return contents_->total_bytes; }

Result<std::unique_ptr<ReadFile>> SyntheticCheckpoint::open_read(const fs::path& path) {
  if (contents_->is_directory(path))
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{}: expected a file, found a directory", path.string())};
  auto file = contents_->find(path);
  if (!file) return nothing_at(path);
  return std::unique_ptr<ReadFile>(std::make_unique<SyntheticReadFile>(path, std::move(file)));
}

Result<FileInfo> SyntheticCheckpoint::info(const fs::path& path) {
  if (contents_->is_directory(path)) return FileInfo{FileKind::directory, 0};
  const auto file = contents_->find(path);
  if (!file) return nothing_at(path);
  return FileInfo{FileKind::regular, file->size()};
}

Result<std::vector<std::string>> SyntheticCheckpoint::list(const fs::path& directory) {
  if (!contents_->is_directory(directory)) return nothing_at(directory);
  std::vector<std::string> names;
  for (const auto& [name, file] : contents_->files) names.push_back(name);
  return names;
}

Result<std::uint64_t> SyntheticCheckpoint::free_bytes(const fs::path&) { return std::uint64_t{0}; }

Result<std::unique_ptr<WriteFile>> SyntheticCheckpoint::create(const fs::path& path) {
  return read_only(path);
}
Status SyntheticCheckpoint::make_directory(const fs::path& directory) { return read_only(directory); }
Status SyntheticCheckpoint::rename(const fs::path& from, const fs::path&) { return read_only(from); }
Status SyntheticCheckpoint::remove_all(const fs::path& path) { return read_only(path); }
Status SyntheticCheckpoint::sync_directory(const fs::path& directory) { return read_only(directory); }

}  // namespace moeflux
