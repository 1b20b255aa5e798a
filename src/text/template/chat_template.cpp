#include "text/template/chat_template.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json/object_reader.h"
#include "base/printable.h"

namespace moeflux {
namespace {

constexpr std::string_view kConfigName = "tokenizer_config.json";
constexpr std::string_view kReserved[] = {"messages", "tools", "documents", "add_generation_prompt"};
constexpr std::string_view kTokenNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                            "pad_token", "cls_token", "mask_token"};

Result<Json> parse_config(std::string_view text) {
  // With added tokens and embedded templates the file may reach a few MB.
  MF_TRY(Json config, parse_json(text, kConfigName, {.bytes = 16 * kMiB}));
  MF_TRY_STATUS(ObjectReader::as_object(config, std::string(kConfigName)));
  return config;
}

Result<SpecialTokens> tokens_in(const Json& config) {
  SpecialTokens out;
  for (const std::string_view name : kTokenNames) {
    const auto token = config.find(name);
    if (token == config.end() || token->is_null()) continue;
    const Json* text = &*token;
    if (token->is_object()) {
      const auto content = token->find("content");
      if (content != token->end()) text = &*content;
    }
    if (!text->is_string()) {
      return Error(ErrorCode::corrupt_data,
                   fmt::format("{}: '{}': expected a string or an object with a string 'content', found {}",
                               kConfigName, name, shown(*token)));
    }
    out.emplace_back(name, *text->get_ptr<const std::string*>());
  }
  return out;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\n\v\f\r";
  const std::size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

// The text at the end of the last message, or null.
const std::string* final_text(const Json& messages) {
  if (!messages.is_array() || messages.empty() || !messages.back().is_object()) return nullptr;
  const auto content = messages.back().find("content");
  if (content == messages.back().end()) return nullptr;
  if (content->is_string()) return content->get_ptr<const std::string*>();
  if (!content->is_array() || content->empty() || !content->back().is_object()) return nullptr;
  const auto text = content->back().find("text");
  return text == content->back().end() ? nullptr : text->get_ptr<const std::string*>();
}

// Ends the prompt at the end of the last message's content, as Hugging Face does.
Status cut_after_final_message(const ChatInput& input, RenderedPrompt& prompt) {
  const std::string* text = final_text(input.messages);
  if (text == nullptr || trimmed(*text).empty())
    return Error(ErrorCode::invalid_argument, "the last message cannot be continued: it has no text");
  const std::string_view core = trimmed(*text);
  const std::size_t at = prompt.text.rfind(core);
  if (at == std::string::npos) {
    return Error(ErrorCode::invalid_argument,
                 "the last message cannot be continued: the template does not write its content unchanged");
  }
  const bool whole = prompt.text.compare(at, text->size(), *text) == 0;
  const std::size_t end = at + (whole ? text->size() : core.size());
  prompt.text.resize(end);
  prompt.conversation_bytes = std::min(prompt.conversation_bytes, end);
  while (!prompt.data.empty() && prompt.data.back().begin >= end) prompt.data.pop_back();
  if (!prompt.data.empty()) prompt.data.back().end = std::min(prompt.data.back().end, end);
  return {};
}

Status check_input(const ChatInput& input) {
  if (!input.kwargs.is_object() && !input.kwargs.is_null())
    return Error(ErrorCode::invalid_argument, "the variables of the template must be an object");
  for (auto member = input.kwargs.begin(); member != input.kwargs.end(); ++member) {
    if (std::find(std::begin(kReserved), std::end(kReserved), member.key()) != std::end(kReserved)) {
      return Error(ErrorCode::invalid_argument,
                   fmt::format("the template's variable '{}' is reserved and cannot be set", member.key()));
    }
  }
  if (input.continue_final_message && input.add_generation_prompt) {
    return Error(ErrorCode::invalid_argument,
                 "a prompt can continue the last message or begin a new one, not both");
  }
  return {};
}

}  // namespace

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, std::string_view name) {
  MF_TRY(jinja::Template parsed, jinja::Template::parse(source, name));
  return ChatTemplate(std::move(parsed));
}

Result<RenderedPrompt> ChatTemplate::render(const ChatInput& input, const SpecialTokens& tokens,
                                            const Limits& limits) const {
  MF_TRY_STATUS(check_input(input));
  const Json none;
  const Json generation(input.add_generation_prompt);
  std::vector<Json> token_texts;
  token_texts.reserve(tokens.size());
  jinja::Variables variables;
  variables.now = input.now;
  for (const auto& [name, text] : tokens) {
    token_texts.emplace_back(text);
    variables.list.push_back({name, &token_texts.back(), false});
  }
  for (auto member = input.kwargs.begin(); member != input.kwargs.end(); ++member)
    variables.list.push_back({member.key(), &*member, true});
  variables.list.push_back({"messages", &input.messages, true});
  variables.list.push_back({"tools", &input.tools, true});
  variables.list.push_back({"documents", &none, false});
  constexpr std::size_t kUnused = std::string::npos;
  std::size_t first_use = kUnused;
  variables.list.push_back({"add_generation_prompt", &generation, false, &first_use});
  MF_TRY(jinja::MarkedText text, template_.render(variables, limits));
  if (first_use == kUnused) first_use = text.bytes.size();
  RenderedPrompt prompt{std::move(text.bytes), std::move(text.data), first_use};
  if (input.continue_final_message) MF_TRY_STATUS(cut_after_final_message(input, prompt));
  return prompt;
}

Result<SpecialTokens> special_tokens_of(std::string_view tokenizer_config) {
  MF_TRY(const Json config, parse_config(tokenizer_config));
  return tokens_in(config);
}

Result<ChatTemplates> ChatTemplates::from_model(std::string_view tokenizer_config,
                                                std::optional<std::string_view> jinja_file) {
  MF_TRY(const Json config, parse_config(tokenizer_config));
  ChatTemplates out;
  MF_TRY(out.tokens_, tokens_in(config));
  if (jinja_file) {
    MF_TRY(out.chat_, ChatTemplate::parse(*jinja_file, "chat_template.jinja"));
    return out;
  }
  const auto found = config.find("chat_template");
  const std::string where = fmt::format("{}: chat_template", kConfigName);
  if (found == config.end() || found->is_null()) {
    return Error(
        ErrorCode::not_found,
        fmt::format("{}: 'chat_template' is missing, and there is no chat_template.jinja", kConfigName));
  }
  if (const auto* text = found->get_ptr<const std::string*>()) {
    MF_TRY(out.chat_, ChatTemplate::parse(*text, where));
    return out;
  }
  if (!found->is_array()) {
    return Error(
        ErrorCode::corrupt_data,
        fmt::format("{}: expected a string or an array of templates, found {}", where, shown(*found)));
  }
  for (const Json& entry : *found) {
    MF_TRY(const ObjectReader reader, ObjectReader::as_object(entry, where));
    MF_TRY(const std::string name, reader.text("name"));
    if (name != "default" && name != "tool_use") continue;
    MF_TRY(const std::string source, reader.text("template"));
    MF_TRY(ChatTemplate parsed, ChatTemplate::parse(source, fmt::format("{} '{}'", where, name)));
    (name == "default" ? out.chat_ : out.tool_use_) = std::move(parsed);
  }
  if (!out.chat_)
    return Error(ErrorCode::not_found, fmt::format("{}: no template is named 'default'", where));
  return out;
}

ChatTemplates ChatTemplates::of(ChatTemplate chat, SpecialTokens tokens) {
  ChatTemplates out;
  out.chat_ = std::move(chat);
  out.tokens_ = std::move(tokens);
  return out;
}

Result<RenderedPrompt> ChatTemplates::render(const ChatInput& input, const jinja::Limits& limits) const {
  const bool has_tools = input.tools.is_array() && !input.tools.empty();
  const ChatTemplate& chosen = has_tools && tool_use_ ? *tool_use_ : *chat_;
  return chosen.render(input, tokens_, limits);
}

}  // namespace moeflux
