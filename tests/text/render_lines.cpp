// Renders templates for template_oracle_test.py: reads and writes one JSON object per line.
//
//   {"template": "...", "messages": [...], "tools": ..., "kwargs": {...}, "add_generation_prompt": true,
//    "tokens": {"bos_token": "..."}}                        a chat template
//   {"template": "...", "variables": {...}}                 any template; the variables are data
//   -> {"text": "...", "data": [[begin, end], ...]}  or  {"error": "...", "code": "..."}

#include <ctime>
#include <iostream>
#include <string>

#include "base/json/json.h"
#include "base/result.h"
#include "text/template/chat_template.h"
#include "text/template/jinja/template.h"
#include "text/template/messages.h"

namespace moeflux {
namespace {

std::tm fixed_time() {
  std::tm time{};
  time.tm_year = 124;
  time.tm_mon = 1;
  time.tm_mday = 9;
  time.tm_hour = 15;
  time.tm_min = 4;
  time.tm_sec = 5;
  time.tm_wday = 5;
  time.tm_yday = 39;
  return time;
}

const Json* find(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Result<RenderedPrompt> render_any(const Json& request, const std::string& source) {
  MF_TRY(const jinja::Template parsed, jinja::Template::parse(source, "template"));
  jinja::Variables variables;
  variables.now = fixed_time();
  const Json& given = *find(request, "variables");
  for (auto member = given.begin(); member != given.end(); ++member)
    variables.list.push_back({member.key(), &*member, true});
  MF_TRY(jinja::MarkedText text, parsed.render(variables));
  return RenderedPrompt{std::move(text.bytes), std::move(text.data)};
}

Result<RenderedPrompt> render_chat(const Json& request, const std::string& source) {
  MF_TRY(const ChatTemplate parsed, ChatTemplate::parse(source, "template"));
  ChatInput input;
  input.now = fixed_time();
  if (const Json* messages = find(request, "messages")) {
    MF_TRY(input.messages, check_messages(*messages, "messages"));
  }
  if (const Json* tools = find(request, "tools")) input.tools = *tools;
  if (const Json* kwargs = find(request, "kwargs")) input.kwargs = *kwargs;
  if (const auto generation = request.find("add_generation_prompt"); generation != request.end())
    input.add_generation_prompt = generation->is_boolean() && *generation->get_ptr<const bool*>();
  SpecialTokens tokens;
  if (const Json* given = find(request, "tokens")) {
    for (auto member = given->begin(); member != given->end(); ++member)
      tokens.emplace_back(member.key(), *member->get_ptr<const std::string*>());
  }
  return parsed.render(input, tokens);
}

Json answer(const std::string& line) {
  const Result<Json> request =
      parse_json(line, "request", {.bytes = 64 * kMiB, .depth = 80, .values = 2'000'000});
  if (!request) return {{"error", request.error().message()}, {"code", "request"}};
  const std::string source = *find(*request, "template")->get_ptr<const std::string*>();
  const Result<RenderedPrompt> prompt =
      find(*request, "variables") != nullptr ? render_any(*request, source) : render_chat(*request, source);
  if (!prompt) return {{"error", prompt.error().message()}, {"code", name_of(prompt.error().code())}};
  Json ranges = Json::array();
  for (const TextRange& range : prompt->data) ranges.push_back(Json::array({range.begin, range.end}));
  return {{"text", prompt->text}, {"data", std::move(ranges)}};
}

}  // namespace
}  // namespace moeflux

int main() {
  std::string line;
  while (std::getline(std::cin, line)) std::cout << moeflux::answer(line).dump() << std::endl;
  return 0;
}
