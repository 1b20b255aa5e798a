#pragma once
// What a model's folder says about text: its tokenizer, its chat template, how it wishes to be sampled, what ends a
// reply.
//
//   tokenizer.json           needed
//   tokenizer_config.json    special tokens by name; the chat template, if it is not in a file of its own
//   chat_template.jinja      the chat template
//   generation_config.json   temperature and its siblings, end tokens
//
// A folder of a packed model has them as they came, so it is enough. Owns what it read. Immutable: any thread.

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
#include "text/chat_template.h"
#include "text/reply_format.h"
#include "text/tokenizer.h"

namespace moeflux {

class ModelText {
 public:
  ModelText(ModelText&&) noexcept;
  ModelText& operator=(ModelText&&) = delete;
  ~ModelText();

  static Result<ModelText> open(FileSystem& files, const std::filesystem::path& directory);

  // Only the tokenizer: for commands that need nothing else of the folder.
  static Result<Tokenizer> open_tokenizer(FileSystem& files, const std::filesystem::path& directory);

  const std::filesystem::path& directory() const { return directory_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  // Null: the folder has none, or one that cannot be read, which is then why. Nothing but a chat needs them.
  const ChatTemplates* chat_templates() const { return templates_ ? &*templates_ : nullptr; }
  const std::optional<Error>& template_error() const { return template_error_; }
  // Another one instead of the folder's. `name` begins its messages.
  Status use_template(std::string_view source, std::string_view name);
  const SamplingDefaults& defaults() const { return defaults_; }
  // Ascending; of generation_config.json and tokenizer_config.json.
  std::span<const TokenId> end_tokens() const { return end_tokens_; }
  // How its replies are written; whether one starts inside its reasoning is for the prompt to say.
  ReplyFormat reply_format() const { return reply_format_; }
  // What its tokens mean to JSON: made when it is first asked for.
  const JsonVocabulary& json_vocabulary() const;

 private:
  explicit ModelText(Tokenizer tokenizer);
  Status read_templates(FileSystem& files);

  std::filesystem::path directory_;
  Tokenizer tokenizer_;
  SpecialTokens special_tokens_;
  std::optional<ChatTemplates> templates_;
  std::optional<Error> template_error_;  // why there are none, where there should be
  SamplingDefaults defaults_;
  std::vector<TokenId> end_tokens_;
  ReplyFormat reply_format_;
  struct LazyJson;
  std::unique_ptr<LazyJson> json_;
};

}  // namespace moeflux
