// The two faces of a ModelSummary.

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/overloaded.h"
#include "base/sizes.h"
#include "cli/inspect.h"
#include "cli/wrapped.h"

namespace moeflux::cli {
namespace {

constexpr std::size_t kLabelColumns = 10;

// A page of "label   text" lines, wrapped at kPageColumns.
class Page {
 public:
  void line(std::string_view label, std::string_view text) { out_ += wrapped(label, kLabelColumns, text); }
  void gap() { out_ += '\n'; }
  std::string text() && { return std::move(out_); }

 private:
  std::string out_;
};

// Names of mixers or mlps with how many layers have each, in order of appearance: "6 gated_delta_net, 2 ...".
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

// The routed experts' config: the same in every MoE layer of the families that we read.
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
  std::string text = fmt::format("{} a layer, {} a token, hidden {}, {}", moe.experts, moe.experts_per_token,
                                 moe.hidden_dim, describe_router(moe.router));
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

// A path longer than a line keeps its end, which tells more.
std::string fit_path(const std::string& path) {
  const std::size_t room = kPageColumns - kLabelColumns;
  if (path.size() <= room) return path;
  std::size_t start = path.size() - (room - 3);
  while (start < path.size() && (static_cast<unsigned char>(path[start]) & 0xC0) == 0x80) ++start;
  return "..." + path.substr(start);  // never half a UTF-8 character
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
  page.line("", fmt::format("{:<18}{}", "experts a token", exact(summary.token_expert_bytes)));
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

}  // namespace moeflux::cli
