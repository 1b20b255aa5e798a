#include "cli/conversation.h"

#include <algorithm>

#include "text/template/messages.h"

namespace moeflux::cli {
namespace {

bool is_of(const Json& message, std::string_view role) {
  const auto found = message.find("role");
  return found != message.end() && *found == role;
}

}  // namespace

Result<Conversation> Conversation::parse(std::string_view json, std::string_view name) {
  Conversation conversation;
  MF_TRY(conversation.messages_, parse_messages(json, name));
  return conversation;
}

std::string Conversation::to_json() const {
  return messages_.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

bool Conversation::awaits_answer() const {
  return !messages_.empty() && !is_of(messages_.back(), "assistant") && !is_of(messages_.back(), "system");
}

bool Conversation::ends_with_a_question() const {
  return !messages_.empty() && is_of(messages_.back(), "user");
}

void Conversation::set_system(std::string_view text) {
  if (!messages_.empty() && is_of(messages_.front(), "system")) messages_.erase(messages_.begin());
  if (!text.empty()) messages_.insert(messages_.begin(), Json{{"role", "system"}, {"content", text}});
}

std::string Conversation::system() const {
  if (messages_.empty() || !is_of(messages_.front(), "system")) return "";
  const auto content = messages_.front().find("content");
  const auto* const text =
      content == messages_.front().end() ? nullptr : content->get_ptr<const Json::string_t*>();
  return text == nullptr ? "" : *text;
}

void Conversation::say(std::string_view text) {
  messages_.push_back(Json{{"role", "user"}, {"content", text}});
}

void Conversation::answer(Json message) { messages_.push_back(std::move(message)); }

bool Conversation::undo() {
  for (std::size_t i = messages_.size(); i-- > 0;)
    if (is_of(messages_[i], "user")) {
      messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(i), messages_.end());
      return true;
    }
  return false;
}

bool Conversation::take_back_answer() {
  std::size_t kept = messages_.size();
  while (kept > 0 && is_of(messages_[kept - 1], "assistant")) --kept;
  if (kept == 0 || is_of(messages_[kept - 1], "system")) return false;
  messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(kept), messages_.end());
  return true;
}

void Conversation::clear() {
  const std::string kept = system();
  messages_ = Json::array();
  set_system(kept);
}

}  // namespace moeflux::cli
