#include "generation/model_text.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/sizes.h"
#include "text/tokenizer/tokenizer_json.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kMaxSettingsBytes = 4 * kMiB;

// nullopt if there is no such file.
Result<std::optional<std::string>> read_if_present(FileSystem& files, const std::filesystem::path& path) {
  MF_TRY(const bool is_present, files.exists(path));
  if (!is_present) return std::optional<std::string>();
  MF_TRY(std::string text, files.read_text(path, kMaxSettingsBytes));
  return std::optional(std::move(text));
}

}  // namespace

struct ModelText::LazyJson {
  std::once_flag once;
  std::optional<JsonVocabulary> vocabulary;
};

ModelText::ModelText(Tokenizer tokenizer)
    : tokenizer_(std::move(tokenizer)), json_(std::make_unique<LazyJson>()) {}
ModelText::ModelText(ModelText&&) noexcept = default;
ModelText::~ModelText() = default;

Result<Tokenizer> ModelText::open_tokenizer(FileSystem& files, const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "tokenizer.json";
  MF_TRY(const std::string json, files.read_text(path, kMaxTokenizerBytes));
  return Tokenizer::parse(json, path.native());
}

Result<ModelText> ModelText::open(FileSystem& files, const std::filesystem::path& directory) {
  MF_TRY(Tokenizer tokenizer, open_tokenizer(files, directory));
  ModelText text(std::move(tokenizer));
  text.directory_ = directory;
  const std::filesystem::path config_path = directory / "generation_config.json";
  MF_TRY(const std::optional<std::string> json, read_if_present(files, config_path));
  if (json) {
    MF_TRY(text.defaults_, parse_generation_config(*json, config_path.native()));
  }
  MF_TRY_STATUS(text.read_templates(files));

  text.end_tokens_ = text.defaults_.end_tokens;
  for (const auto& [name, content] : text.special_tokens_)
    if (name == "eos_token")
      if (const std::optional<TokenId> token = text.tokenizer_.find(content))
        text.end_tokens_.push_back(*token);
  std::ranges::sort(text.end_tokens_);
  text.end_tokens_.erase(std::unique(text.end_tokens_.begin(), text.end_tokens_.end()),
                         text.end_tokens_.end());
  return text;
}

Status ModelText::read_templates(FileSystem& files) {
  const std::filesystem::path config_path = directory_ / "tokenizer_config.json";
  MF_TRY(const std::optional<std::string> config, read_if_present(files, config_path));
  MF_TRY(const std::optional<std::string> jinja, read_if_present(files, directory_ / "chat_template.jinja"));
  if (config) {
    Result<SpecialTokens> tokens = special_tokens_of(*config);
    if (!tokens) return std::move(tokens).error().during(config_path.native());
    special_tokens_ = *std::move(tokens);
  }
  if (!config && !jinja) return {};
  Result<ChatTemplates> templates =
      ChatTemplates::from_model(config ? std::string_view(*config) : "{}",
                                jinja ? std::optional<std::string_view>(*jinja) : std::nullopt);
  if (!templates && templates.error().code() == ErrorCode::not_found) return {};
  if (!templates) {
    template_error_ = std::move(templates).error().during(directory_.native());
    return {};
  }
  templates_ = *std::move(templates);
  // The template's text contains the formats that it asks the model to write.
  const std::string& source = jinja ? *jinja : *config;
  reply_format_ = {detect_tool_format(source), detect_reasoning(source), false};
  return {};
}

Status ModelText::use_template(std::string_view source, std::string_view name) {
  MF_TRY(ChatTemplate parsed, ChatTemplate::parse(source, name));
  templates_ = ChatTemplates::of(std::move(parsed), special_tokens_);
  template_error_.reset();
  reply_format_ = {detect_tool_format(source), detect_reasoning(source), false};
  return {};
}

const JsonVocabulary& ModelText::json_vocabulary() const {
  std::call_once(json_->once, [&] {
    json_->vocabulary.emplace(tokenizer_.token_bytes(), end_tokens_,
                              [&](TokenId token) { return tokenizer_.is_special(token); });
  });
  return *json_->vocabulary;
}

}  // namespace moeflux
