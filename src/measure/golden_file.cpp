#include "cli/evaluating.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/printable.h"
#include "cli/run_options.h"
#include "cli/statistics_line.h"
#include "cli/traced_engine.h"
#include "engine/engine.h"
#include "kernels/kernel_table.h"
#include "model/manifest.h"
#include "model/packed_model.h"
#include "source/safetensors.h"

namespace moeflux::cli {
namespace {

using Shape = std::vector<std::uint64_t>;

constexpr std::uint32_t kLargest = std::numeric_limits<std::uint32_t>::max();

// The tensors of one file, by name.
class GoldenFile {
 public:
  static Result<GoldenFile> open(FileSystem& files, const std::string& path) {
    MF_TRY(std::unique_ptr<ReadFile> file, files.open_read(path));
    MF_TRY(SafetensorsHeader header, read_safetensors_header(*file, FileId(0)));
    return GoldenFile(std::move(file), std::move(header), path);
  }

  bool has(std::string_view name) const { return find(name) != nullptr; }

  // However many there are.
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
      if (number < 0 || std::int64_t{number} > std::int64_t{kLargest})
        return error(tensor.name, fmt::format("{} is not the number of anything", number));
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

// Nothing where the file has none.
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
  // However many there are of each: with --top-experts they are not the model's.
  const std::uint64_t experts_per_token = shape.empty() ? 0 : shape.back();
  if (experts_per_token == 0 || experts_per_token > kMaxExperts)
    return file.error(weights, fmt::format("expected [{}, K], found {}", prompt, describe_shape(shape)));
  router.experts_per_token = static_cast<std::uint32_t>(experts_per_token);
  MF_TRY(router.weights, file.floats(weights, {prompt, experts_per_token}));
  MF_TRY(router.experts, file.ids(experts, {prompt, experts_per_token}));
  return router;
}

Result<ModelConfig> read_config(FileSystem& files, const std::string& path) {
  MF_TRY(const PackedModel model, PackedModel::open(files, path));
  return model.config();
}

// Numbers that are too large for an engine are left for it to refuse.
std::uint32_t clamped(std::uint64_t number) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(number, kLargest));
}

// Empty when all is well.
std::string failure_of(const EvalResult& result, const std::optional<double>& max_error) {
  if (!result.is_finite()) return "some of the numbers, computed or expected, are not finite";
  if (max_error && !(result.max_logit_error <= *max_error))
    return fmt::format("the largest logit error, {:.3g}, is above {:.3g}", result.max_logit_error,
                       *max_error);
  return "";
}

std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{:.3g}", value) : "not finite";
}

Json number_json(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

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
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{}: --layers needs the tensor 'hidden_states', which is not there", path)};
  MF_TRY(golden.hidden_states, file.floats("hidden_states", {config.layers.size() + 1, prompt, config.dim}));
  for (std::uint32_t i = 0; i < config.layers.size(); ++i) {
    MF_TRY(GoldenRouter router, read_router(file, i, config.layers[i], prompt));
    golden.routers.push_back(std::move(router));
  }
  return golden;
}

Result<Verdict> run_eval(FileSystem& files, const EvalCommand& command, LogSink& log) {
  EngineOptions options;
  MF_TRY(options.precision, parse_precision(command.precision));
  MF_TRY(options.kv_numbers, parse_kv_numbers(command.kv));
  MF_TRY_STATUS(select_kernels(command.isa));
  if (command.max_error && !(*command.max_error >= 0))
    return Error{ErrorCode::invalid_argument,
                 fmt::format("--max-error must be 0 or more, found {}", *command.max_error)};
  options.isa = command.isa;
  options.threads = command.threads;
  options.experts_per_token = command.top_experts;
  MF_TRY_STATUS(take_streaming(command.streaming, options));

  MF_TRY(const ModelConfig config, read_config(files, command.model));
  std::optional<std::uint32_t> experts_per_token;
  if (warn_of_top_experts(command.top_experts, config, log)) experts_per_token = command.top_experts;
  MF_TRY(const Golden golden, read_golden(files, command.golden, config, command.layers));
  const std::uint64_t prompt = golden.input.size();
  const std::uint64_t chunk = command.chunk == 0 ? prompt : std::min<std::uint64_t>(command.chunk, prompt);
  options.context = clamped(prompt + golden.greedy.size());
  options.step_rows = clamped(chunk * command.batch);

  MF_TRY(const TracedEngine engine,
         TracedEngine::open(files, command.model, options, command.streaming.trace));
  if (!command.json) log.write(LogLevel::info, "memory: " + engine->memory_plan().describe());
  show_streaming(*engine, command.json, log);
  EvalOptions eval_options;
  eval_options.chunk = command.chunk;
  eval_options.batch = command.batch;
  eval_options.layers = command.layers;
  Result<EvalResult> result = evaluate(*engine, golden, eval_options);
  MF_TRY_STATUS(engine.finish_trace());
  if (!result) return std::move(result).error().during(command.golden);
  return Verdict{
      command.json ? render_json(*result, experts_per_token) : render_page(*result, experts_per_token),
      failure_of(*result, command.max_error)};
}

std::string render_page(const EvalResult& result, std::optional<std::uint32_t> experts_per_token) {
  std::string page;
  const auto line = [&](std::string_view label, std::string_view value) {
    page += fmt::format("{:<18}{}\n", label, value);
  };
  line("max logit error", number(result.max_logit_error));
  line("mean logit error", number(result.mean_logit_error));
  line("top-1 agreement", number(result.top1_agreement));
  line("greedy match", !result.greedy_match ? "no greedy ids" : *result.greedy_match ? "yes" : "no");
  line("positions", fmt::format("{}", result.positions));
  line("logits xxh3", hex_of(result.logits_xxh3));
  if (experts_per_token) line("experts a token", fmt::format("{}, not the model's own", *experts_per_token));
  if (result.layers.empty()) return page;
  page += "\nlayer   max hidden error   router ids   max router weight error\n";
  for (const LayerErrors& layer : result.layers) {
    const bool has_router = layer.router_ids_equal.has_value();
    page +=
        fmt::format("{:>5}   {:>16}   {:>10}   {:>23}\n", layer.layer.index(), number(layer.max_hidden_error),
                    !has_router               ? "-"
                    : *layer.router_ids_equal ? "equal"
                                              : "DIFFERENT",
                    has_router ? number(layer.max_router_weight_error.value_or(0)) : "-");
  }
  return page;
}

std::string render_json(const EvalResult& result, std::optional<std::uint32_t> experts_per_token) {
  Json json{{"max_logit_error", number_json(result.max_logit_error)},
            {"mean_logit_error", number_json(result.mean_logit_error)},
            {"top1_agreement", number_json(result.top1_agreement)},
            {"greedy_match", result.greedy_match ? Json(*result.greedy_match) : Json(nullptr)},
            {"positions", result.positions},
            {"logits_xxh3", hex_of(result.logits_xxh3)}};
  if (experts_per_token) json["experts_per_token"] = *experts_per_token;
  for (const LayerErrors& layer : result.layers)
    json["layers"].push_back(
        {{"layer", layer.layer.index()},
         {"max_hidden_error", number_json(layer.max_hidden_error)},
         {"router_ids_equal", layer.router_ids_equal ? Json(*layer.router_ids_equal) : Json(nullptr)},
         {"max_router_weight_error",
          layer.max_router_weight_error ? number_json(*layer.max_router_weight_error) : Json(nullptr)}});
  return json.dump() + "\n";
}

}  // namespace moeflux::cli
