#pragma once
// The text side of a model's folder: tokenizer, chat template, sampling defaults, end tokens.
//
//   tokenizer.json           required
//   tokenizer_config.json    special tokens by name; the chat template, if it has no file of its own
//   chat_template.jinja      the chat template; wins over tokenizer_config.json
//   generation_config.json   temperature and other sampling defaults, end tokens
//
// A packed model's folder contains copies of these files. Owns what it read. Thread-safe, but for
// use_template().

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "io/file_system.h"
#include "sampling/generation_config.h"
#include "sampling/json_object.h"
#include "text/reply/reply_format.h"
#include "text/template/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace moeflux {

class ModelText {
 public:
  ModelText(ModelText&&) noexcept;
  ModelText& operator=(ModelText&&) = delete;
  ~ModelText();

  static Result<ModelText> open(FileSystem& files, const std::filesystem::path& directory);

  // Opens the tokenizer alone.
  static Result<Tokenizer> open_tokenizer(FileSystem& files, const std::filesystem::path& directory);

  const std::filesystem::path& directory() const { return directory_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  // Null if the folder has no template, or if it failed to parse; see template_error(). Only chats need one.
  const ChatTemplates* chat_templates() const { return templates_ ? &*templates_ : nullptr; }
  const std::optional<Error>& template_error() const { return template_error_; }
  // Replaces the folder's template. `name` begins the messages of its errors.
  Status use_template(std::string_view source, std::string_view name);
  const SamplingDefaults& defaults() const { return defaults_; }
  // Ascending; from generation_config.json and tokenizer_config.json.
  std::span<const TokenId> end_tokens() const { return end_tokens_; }
  // The format of the model's replies, as far as the template decides it; the prompt decides whether a reply
  // starts inside its reasoning.
  ReplyFormat reply_format() const { return reply_format_; }
  // The effect of each token on JSON; built on first use.
  const JsonVocabulary& json_vocabulary() const;

 private:
  explicit ModelText(Tokenizer tokenizer);
  Status read_templates(FileSystem& files);

  std::filesystem::path directory_;
  Tokenizer tokenizer_;
  SpecialTokens special_tokens_;
  std::optional<ChatTemplates> templates_;
  std::optional<Error> template_error_;  // why the folder's template cannot be used
  SamplingDefaults defaults_;
  std::vector<TokenId> end_tokens_;
  ReplyFormat reply_format_;
  struct LazyJson;
  std::unique_ptr<LazyJson> json_;
};

}  // namespace moeflux
