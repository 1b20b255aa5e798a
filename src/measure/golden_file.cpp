#include "measure/golden_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "source/safetensors/safetensors.h"

namespace moeflux {
namespace {

using Shape = std::vector<std::uint64_t>;

constexpr std::uint32_t kLargestId = std::numeric_limits<std::uint32_t>::max();

// The tensors of one file, by name.
class GoldenFile {
 public:
  static Result<GoldenFile> open(FileSystem& files, const std::string& path) {
    MF_TRY(std::unique_ptr<ReadFile> file, files.open_read(path));
    MF_TRY(SafetensorsHeader header, read_safetensors_header(*file, FileId(0)));
    return GoldenFile(std::move(file), std::move(header), path);
  }

  bool has(std::string_view name) const { return find(name) != nullptr; }

  // A vector of any length.
  Result<std::vector<std::uint32_t>> ids(std::string_view name) const {
    MF_TRY(const TensorEntry* tensor, get(name));
    if (tensor->shape.size() != 1) return mismatch(*tensor, "one dimension");
    return read_ids(*tensor);
  }
  Result<std::vector<std::uint32_t>> ids(std::string_view name, const Shape& shape) const {
    MF_TRY(const TensorEntry* tensor, get(name));
    if (tensor->shape != shape) return mismatch(*tensor, "I32 " + describe_shape(shape));
    return read_ids(*tensor);
  }

  Result<std::vector<float>> floats(std::string_view name, const Shape& shape) const {
    MF_TRY(const TensorEntry* tensor, get(name));
    if (tensor->dtype != Dtype::f32 || tensor->shape != shape)
      return mismatch(*tensor, "F32 " + describe_shape(shape));
    return read<float>(*tensor);
  }

  Result<Shape> shape_of(std::string_view name) const {
    MF_TRY(const TensorEntry* tensor, get(name));
    return tensor->shape;
  }

  Error error(std::string_view name, std::string_view problem) const {
    return {ErrorCode::corrupt_data, fmt::format("{}: tensor '{}': {}", path_, name, problem)};
  }

 private:
  GoldenFile(std::unique_ptr<ReadFile> file, SafetensorsHeader header, std::string path)
      : file_(std::move(file)), header_(std::move(header)), path_(std::move(path)) {}

  const TensorEntry* find(std::string_view name) const {
    const auto found = std::ranges::lower_bound(header_.tensors, name, {}, &TensorEntry::name);
    return found != header_.tensors.end() && found->name == name ? &*found : nullptr;
  }
  Result<const TensorEntry*> get(std::string_view name) const {
    if (const TensorEntry* tensor = find(name)) return tensor;
    return Error{ErrorCode::corrupt_data, fmt::format("{}: there is no tensor '{}'", path_, name)};
  }

  Error mismatch(const TensorEntry& tensor, std::string_view expected) const {
    return error(tensor.name, fmt::format("expected {}, found {} {}", expected, name_of(tensor.dtype),
                                          describe_shape(tensor.shape)));
  }

  template <class T>
  Result<std::vector<T>> read(const TensorEntry& tensor) const {
    std::vector<T> numbers(tensor.bytes.size / sizeof(T));
    MF_TRY_STATUS(file_->read_exactly(tensor.bytes.offset, std::as_writable_bytes(std::span(numbers))));
    return numbers;
  }

  Result<std::vector<std::uint32_t>> read_ids(const TensorEntry& tensor) const {
    if (tensor.dtype == Dtype::i32) return narrowed<std::int32_t>(tensor);
    if (tensor.dtype == Dtype::i64) return narrowed<std::int64_t>(tensor);
    return mismatch(tensor, "I32 or I64");
  }
  template <class T>
  Result<std::vector<std::uint32_t>> narrowed(const TensorEntry& tensor) const {
    MF_TRY(const std::vector<T> numbers, read<T>(tensor));
    for (const T number : numbers)
      if (number < 0 || std::int64_t{number} > std::int64_t{kLargestId})
        return error(tensor.name, fmt::format("{} is not an id", number));
    return std::vector<std::uint32_t>(numbers.begin(), numbers.end());
  }

  std::unique_ptr<ReadFile> file_;
  SafetensorsHeader header_;
  std::string path_;
};

std::vector<TokenId> as_tokens(const std::vector<std::uint32_t>& ids) {
  std::vector<TokenId> tokens;
  tokens.reserve(ids.size());
  for (const std::uint32_t id : ids) tokens.emplace_back(id);
  return tokens;
}

Result<std::vector<std::uint32_t>> read_logit_positions(const GoldenFile& file, std::size_t prompt) {
  if (!file.has("logit_positions")) {
    std::vector<std::uint32_t> all(prompt);
    std::iota(all.begin(), all.end(), 0u);
    return all;
  }
  MF_TRY(std::vector<std::uint32_t> positions, file.ids("logit_positions"));
  if (positions.empty()) return file.error("logit_positions", "expected at least one position, found none");
  for (std::size_t i = 0; i < positions.size(); ++i) {
    if (positions[i] >= prompt)
      return file.error("logit_positions",
                        fmt::format("position {} is beyond the prompt of {}", positions[i], prompt));
    if (i > 0 && positions[i] <= positions[i - 1])
      return file.error("logit_positions", fmt::format("expected ascending positions, found {} after {}",
                                                       positions[i], positions[i - 1]));
  }
  return positions;
}

// An empty GoldenRouter if the file has none.
Result<GoldenRouter> read_router(const GoldenFile& file, std::uint32_t layer, const LayerConfig& config,
                                 std::uint64_t prompt) {
  GoldenRouter router;
  const std::string weights = fmt::format("layer.{}.router.1", layer),
                    experts = fmt::format("layer.{}.router.2", layer);
  if (!file.has(weights) && !file.has(experts)) return router;
  if (!std::holds_alternative<MoeConfig>(config.mlp))
    return file.error(file.has(weights) ? weights : experts,
                      fmt::format("layer {} of the model has no experts", layer));
  MF_TRY(const Shape shape, file.shape_of(weights));
  // K may differ from the model's: --top-experts runs fewer.
  const std::uint64_t experts_per_token = shape.empty() ? 0 : shape.back();
  if (experts_per_token == 0 || experts_per_token > kMaxExperts)
    return file.error(weights, fmt::format("expected [{}, K], found {}", prompt, describe_shape(shape)));
  router.experts_per_token = static_cast<std::uint32_t>(experts_per_token);
  MF_TRY(router.weights, file.floats(weights, {prompt, experts_per_token}));
  MF_TRY(router.experts, file.ids(experts, {prompt, experts_per_token}));
  return router;
}

}  // namespace

Result<Golden> read_golden(FileSystem& files, const std::string& path, const ModelConfig& config,
                           bool with_layers) {
  MF_TRY(const GoldenFile file, GoldenFile::open(files, path));
  Golden golden;
  MF_TRY(const std::vector<std::uint32_t> input, file.ids("input_ids"));
  if (input.empty()) return file.error("input_ids", "expected at least one token, found none");
  golden.input = as_tokens(input);
  const std::uint64_t prompt = input.size();
  MF_TRY(golden.logit_positions, read_logit_positions(file, input.size()));
  MF_TRY(golden.logits, file.floats("logits", {golden.logit_positions.size(), config.vocabulary}));
  if (file.has("greedy_ids") || file.has("greedy_logits")) {
    MF_TRY(const std::vector<std::uint32_t> greedy, file.ids("greedy_ids"));
    golden.greedy = as_tokens(greedy);
  }
  if (file.has("greedy_logits")) {
    MF_TRY(golden.greedy_logits, file.floats("greedy_logits", {golden.greedy.size(), config.vocabulary}));
  }
  if (!with_layers) return golden;
  if (!file.has("hidden_states"))
    return Error{
        ErrorCode::invalid_argument,
        fmt::format("{}: tensor 'hidden_states': comparing layers needs it, and the file does not have it",
                    path)};
  MF_TRY(golden.hidden_states, file.floats("hidden_states", {config.layers.size() + 1, prompt, config.dim}));
  for (std::uint32_t i = 0; i < config.layers.size(); ++i) {
    MF_TRY(GoldenRouter router, read_router(file, i, config.layers[i], prompt));
    golden.routers.push_back(std::move(router));
  }
  return golden;
}

}  // namespace moeflux
