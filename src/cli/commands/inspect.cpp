#include "cli/commands/inspect.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <utility>

#include "base/json/json.h"
#include "base/overloaded.h"
#include "base/sizes.h"
#include "base/utf8.h"
#include "cli/console.h"
#include "cli/labeled_line.h"
#include "model/packed_model.h"
#include "pack/journal.h"
#include "pack/synthetic/checkpoint.h"
#include "pack/synthetic/shapes.h"
#include "source/matrix_reader.h"
#include "source/source_model.h"

namespace moeflux::cli {
namespace {

constexpr std::size_t kLabelColumns = 10;

// A page of "label   text" lines, wrapped at kPageColumns.
class Page {
 public:
  void line(std::string_view label, std::string_view text) {
    out_ += labeled_line(label, kLabelColumns, text);
  }
  void gap() { out_ += '\n'; }
  std::string text() && { return std::move(out_); }

 private:
  std::string out_;
};

// Names of mixers or MLPs with the number of layers that have each, in order of appearance: "6
// gated_delta_net, 2 ...".
std::vector<std::pair<std::string, std::uint32_t>> count_kinds(const ModelConfig& config, bool mixers) {
  std::vector<std::pair<std::string, std::uint32_t>> kinds;
  for (const LayerConfig& layer : config.layers) {
    const std::string name(mixers                                         ? name_of(layer.mixer)
                           : std::holds_alternative<MoeConfig>(layer.mlp) ? "moe"
                                                                          : "dense");
    const auto found =
        std::find_if(kinds.begin(), kinds.end(), [&](const auto& kind) { return kind.first == name; });
    if (found == kinds.end())
      kinds.emplace_back(name, 1);
    else
      ++found->second;
  }
  return kinds;
}

std::string list_kinds(const ModelConfig& config, bool mixers) {
  std::vector<std::string> parts;
  for (const auto& [name, count] : count_kinds(config, mixers))
    parts.push_back(fmt::format("{} {}", count, name));
  return fmt::format("{}", fmt::join(parts, ", "));
}

// The config of the routed experts, which is the same in every MoE layer of the supported families.
const MoeConfig* moe_of(const ModelConfig& config) {
  for (const LayerConfig& layer : config.layers)
    if (const auto* moe = std::get_if<MoeConfig>(&layer.mlp)) return moe;
  return nullptr;
}

std::string describe_router(const RouterConfig& router) {
  return std::visit(overloaded{[](const SoftmaxRouterConfig&) -> std::string { return "softmax router"; },
                               [](const GroupedSigmoidRouterConfig& grouped) {
                                 return fmt::format("sigmoid router, {} of {} groups", grouped.groups_kept,
                                                    grouped.groups);
                               }},
                    router);
}

std::string describe_experts(const MoeConfig& moe) {
  std::string text = fmt::format("{} per layer, {} per token, hidden {}, {}", moe.experts,
                                 moe.experts_per_token, moe.hidden_dim, describe_router(moe.router));
  if (moe.shared)
    text += fmt::format("; shared expert hidden {}{}", moe.shared->hidden_dim,
                        moe.shared->gated ? ", gated" : "");
  return text;
}

// "7,077,888 B (7.08 MB)".
std::string exact(std::uint64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  return fmt::format("{} B ({})", with_thousands(bytes), human_bytes(bytes));
}

std::string expert_size(const ModelSummary& summary) {
  if (summary.smallest_expert_bytes == summary.largest_expert_bytes)
    return exact(summary.largest_expert_bytes);
  return fmt::format("{} to {}", exact(summary.smallest_expert_bytes), exact(summary.largest_expert_bytes));
}

void encoding_lines(Page& page, std::string_view label, const std::vector<EncodingUse>& uses) {
  for (const EncodingUse& use : uses) {
    page.line(label, fmt::format("{}: {} matrices, {}", use.encoding, with_thousands(use.matrices),
                                 exact(use.bytes)));
    label = "";
  }
}

// Keeps the end of a path that is longer than a line: the end is more informative than the start.
std::string fit_path(const std::string& path) {
  const std::size_t room = kPageColumns - kLabelColumns;
  if (path.size() <= room) return path;
  std::size_t start = path.size() - (room - 3);
  while (start < path.size() && is_utf8_continuation(path[start])) ++start;
  return "..." + path.substr(start);  // a whole UTF-8 character
}

Json encodings_json(const std::vector<EncodingUse>& uses) {
  Json list = Json::array();
  for (const EncodingUse& use : uses)
    list.push_back({{"encoding", use.encoding}, {"matrices", use.matrices}, {"bytes", use.bytes}});
  return list;
}

Json kinds_json(const ModelConfig& config, bool mixers) {
  Json kinds = Json::object();
  for (const auto& [name, count] : count_kinds(config, mixers)) kinds[name] = count;
  return kinds;
}

Status check_matrix(const SourceModel& model, const std::string& name, const SourceMatrix& matrix,
                    CheckReport& report) {
  MF_TRY_STATUS(decode_rows(model.catalog(), matrix, name,
                            [](std::uint64_t, std::span<const float>) -> Status { return {}; }));
  ++report.matrices;
  report.weights += matrix.rows * matrix.cols;
  return {};
}

// Decodes every weight of the model. Stops at the first that cannot be read or is not finite.
Result<CheckReport> check_weights(const SourceModel& model) {
  CheckReport report;
  for (const NamedMatrix& named : model.resident())
    MF_TRY_STATUS(check_matrix(model, named.name, named.matrix, report));
  for (std::uint32_t i = 0; i < model.config().layers.size(); ++i) {
    const SourceExperts* experts = model.experts(LayerId(i));
    if (experts == nullptr) continue;
    for (std::uint32_t e = 0; e < experts->count(); ++e) {
      const ExpertKey key{LayerId(i), ExpertId(e)};
      const ExpertMatrices expert = experts->expert(key.expert);
      MF_TRY_STATUS(check_matrix(model, expert_matrix_name(key, "gate_proj"), expert.gate, report));
      MF_TRY_STATUS(check_matrix(model, expert_matrix_name(key, "up_proj"), expert.up, report));
      MF_TRY_STATUS(check_matrix(model, expert_matrix_name(key, "down_proj"), expert.down, report));
    }
  }
  return report;
}

std::string render(const ModelSummary& summary, const InspectFlags& flags, const CheckReport* checked) {
  return flags.json ? render_json(summary, checked) : render_page(summary, checked);
}

Result<std::string> inspect_source(FileSystem& files, const InspectFlags& flags) {
  MF_TRY(const SourceModel model, SourceModel::open(files, flags.path));
  MF_TRY(const ModelSummary summary, model.summarise());
  if (!flags.check) return render(summary, flags, nullptr);
  MF_TRY(const CheckReport checked, check_weights(model));
  return render(summary, flags, &checked);
}

Result<std::string> inspect_packed(FileSystem& files, const InspectFlags& flags) {
  if (flags.check)
    return Error{
        ErrorCode::invalid_argument,
        fmt::format("{}: --check is for sources; 'moeflux verify' reads a packed model", flags.path)};
  MF_TRY(const PackedModel model, PackedModel::open(files, flags.path));
  return render(model.summarise(), flags, nullptr);
}

// Inspects a published model by name, as it would be on disk, from its headers alone.
Result<std::string> inspect_shape(FileSystem& files, const InspectFlags& flags) {
  MF_TRY(const std::string config, shape_config(files, flags.path));
  SyntheticOptions synthetic;
  synthetic.directory = flags.path;
  MF_TRY(SyntheticCheckpoint checkpoint, SyntheticCheckpoint::make(config, synthetic));
  MF_TRY(const SourceModel model, SourceModel::open(checkpoint, checkpoint.directory()));
  MF_TRY(ModelSummary summary, model.summarise());
  summary.notes.insert(summary.notes.begin(),
                       "nothing of this is on disk: the shape of the published model, with "
                       "made-up weights in 4 bits");
  return render(summary, flags, nullptr);
}

}  // namespace

std::string render_page(const ModelSummary& summary, const CheckReport* checked) {
  const ModelConfig& config = summary.config;
  Page page;
  page.line("model", fit_path(summary.path));
  page.line("format", fmt::format("{}, {} {}, {}", summary.format, summary.files,
                                  summary.files == 1 ? "file" : "files", exact(summary.file_bytes)));
  page.line("family",
            fmt::format("{}, width {}, vocabulary {}, context {}{}", name_of(config.family), config.dim,
                        with_thousands(config.vocabulary), with_thousands(config.max_positions),
                        config.tied_embeddings ? ", tied embeddings" : ""));
  page.line("layers", fmt::format("{}: {}; {}", config.layers.size(), list_kinds(config, true),
                                  list_kinds(config, false)));
  if (const MoeConfig* moe = moe_of(config)) page.line("experts", describe_experts(*moe));
  encoding_lines(page, "resident", summary.resident_encodings);
  encoding_lines(page, "routed", summary.expert_encodings);
  page.gap();
  page.line("bytes", fmt::format("{:<18}{}", "resident", exact(summary.resident_bytes)));
  page.line("", fmt::format("{:<18}{}", "one expert", expert_size(summary)));
  page.line("", fmt::format("{:<18}{}", "experts per token", exact(summary.token_expert_bytes)));
  page.line("", fmt::format("{:<18}{} in {} experts", "all experts", exact(summary.expert_bytes),
                            with_thousands(summary.experts)));
  if (summary.skipped_bytes > 0)
    page.line("", fmt::format("{:<18}{}", "skipped", exact(summary.skipped_bytes)));
  if (checked != nullptr)
    page.line("checked", fmt::format("{} weights of {} matrices read and decoded, all finite",
                                     with_thousands(checked->weights), with_thousands(checked->matrices)));
  for (const std::string& note : summary.notes) page.line("note", note);
  return std::move(page).text();
}

std::string render_json(const ModelSummary& summary, const CheckReport* checked) {
  const ModelConfig& config = summary.config;
  Json json{{"path", summary.path},
            {"format", summary.format},
            {"files", summary.files},
            {"file_bytes", summary.file_bytes},
            {"family", name_of(config.family)},
            {"dim", config.dim},
            {"vocabulary", config.vocabulary},
            {"max_positions", config.max_positions},
            {"tied_embeddings", config.tied_embeddings},
            {"layers", config.layers.size()},
            {"mixers", kinds_json(config, true)},
            {"mlps", kinds_json(config, false)}};
  if (const MoeConfig* moe = moe_of(config)) {
    json["experts_per_layer"] = moe->experts;
    json["experts_per_token"] = moe->experts_per_token;
    json["expert_hidden_dim"] = moe->hidden_dim;
    if (const auto* grouped = std::get_if<GroupedSigmoidRouterConfig>(&moe->router)) {
      json["router_groups"] = grouped->groups;
      json["router_groups_kept"] = grouped->groups_kept;
    }
    if (moe->shared) json["shared_expert_hidden_dim"] = moe->shared->hidden_dim;
  }
  json["resident_encodings"] = encodings_json(summary.resident_encodings);
  json["expert_encodings"] = encodings_json(summary.expert_encodings);
  json["bytes"] = {{"resident", summary.resident_bytes},
                   {"smallest_expert", summary.smallest_expert_bytes},
                   {"largest_expert", summary.largest_expert_bytes},
                   {"experts_per_token", summary.token_expert_bytes},
                   {"all_experts", summary.expert_bytes},
                   {"skipped", summary.skipped_bytes}};
  json["experts"] = summary.experts;
  if (checked != nullptr) json["checked"] = {{"matrices", checked->matrices}, {"weights", checked->weights}};
  json["notes"] = summary.notes;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<std::string> inspect(FileSystem& files, const InspectFlags& flags) {
  MF_TRY(const bool exists, files.exists(flags.path));
  if (!exists && is_builtin_shape(flags.path)) return inspect_shape(files, flags);
  MF_TRY(const bool packed, PackedModel::is_at(files, flags.path));
  if (packed) return inspect_packed(files, flags);
  MF_TRY(const bool unfinished, files.exists(std::filesystem::path(flags.path) / kJournalName));
  if (unfinished)
    return Error{
        ErrorCode::not_found,
        fmt::format("{}: packing it was interrupted; run the same 'moeflux pack' again", flags.path)};
  return inspect_source(files, flags);
}

Command add_inspect(CLI::App& program) {
  CLI::App* const parser = program.add_subcommand("inspect", "Describe a model on disk, without loading it");
  const auto flags = std::make_shared<InspectFlags>();
  parser
      ->add_option("PATH", flags->path, "A checkpoint, the original's artifacts, a packed model, or a shape")
      ->required();
  parser->add_flag("--json", flags->json, "Print the same numbers as JSON");
  parser->add_flag("--check", flags->check, "Also read and decode every weight; stop at the first bad one");
  return {parser, [flags](const Shell& shell) { return finish(inspect(shell.files, *flags)); }};
}

}  // namespace moeflux::cli
