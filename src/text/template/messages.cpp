#include "text/template/messages.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/json/object_reader.h"
#include "base/printable.h"

namespace moeflux {
namespace {

Error wrong(std::string_view where, std::string_view expected, const Json& found) {
  return Error(ErrorCode::corrupt_data,
               fmt::format("{}: expected {}, found {}", where, expected, shown(found)));
}

Status check_part(const Json& part, const std::string& where) {
  if (!part.is_object()) return wrong(where, "a content part as an object", part);
  const auto type = part.find("type");
  if (type == part.end() || !type->is_string())
    return Error(ErrorCode::corrupt_data, fmt::format("{}: 'type' is missing or not a string", where));
  const std::string& name = *type->get_ptr<const std::string*>();
  if (name != "text") {
    return Error(ErrorCode::unsupported,
                 fmt::format("{}: content of type '{}' is not supported, expected 'text'", where,
                             printable(name, 40)));
  }
  const auto text = part.find("text");
  if (text == part.end()) return Error(ErrorCode::corrupt_data, fmt::format("{}: 'text' is missing", where));
  if (!text->is_string()) return wrong(where + ".text", "a string", *text);
  return {};
}

Status check_content(const Json& content, const std::string& where) {
  if (content.is_null() || content.is_string()) return {};
  if (!content.is_array()) return wrong(where, "a string, null or an array of parts", content);
  std::size_t index = 0;
  for (const Json& part : content) MF_TRY_STATUS(check_part(part, fmt::format("{}[{}]", where, index++)));
  return {};
}

// Turns arguments of any accepted form into an object.
Status open_arguments(Json& arguments, const std::string& where) {
  if (arguments.is_object()) return {};
  if (arguments.is_null()) {
    arguments = Json::object();
    return {};
  }
  const auto* text = arguments.get_ptr<const std::string*>();
  if (text == nullptr) return wrong(where, "an object or a string of JSON with an object", arguments);
  if (text->empty()) {  // some clients write a call without arguments like this
    arguments = Json::object();
    return {};
  }
  MF_TRY(Json parsed, parse_json(*text, where, kMessageLimits));
  if (!parsed.is_object()) return wrong(where, "a string of JSON with an object", parsed);
  arguments = std::move(parsed);
  return {};
}

Status open_tool_calls(Json& calls, const std::string& where) {
  if (calls.is_null()) return {};
  if (!calls.is_array()) return wrong(where, "an array", calls);
  std::size_t index = 0;
  for (Json& call : calls) {
    const std::string place = fmt::format("{}[{}]", where, index++);
    if (!call.is_object()) return wrong(place, "an object", call);
    const auto function = call.find("function");
    // Some clients write the function without its envelope.
    const bool has_envelope = function != call.end() && !function->is_null();
    if (has_envelope && !function->is_object()) return wrong(place + ".function", "an object", *function);
    Json& body = has_envelope ? *function : call;
    const std::string inside = has_envelope ? place + ".function" : place;
    const auto name = body.find("name");
    if (name == body.end())
      return Error(ErrorCode::corrupt_data, fmt::format("{}: 'name' is missing", inside));
    if (!name->is_string()) return wrong(inside + ".name", "a string", *name);
    const auto arguments = body.find("arguments");
    if (arguments != body.end()) MF_TRY_STATUS(open_arguments(*arguments, inside + ".arguments"));
  }
  return {};
}

Status check_message(Json& message, const std::string& where) {
  if (!message.is_object()) return wrong(where, "a message as an object", message);
  const auto role = message.find("role");
  if (role == message.end())
    return Error(ErrorCode::corrupt_data, fmt::format("{}: 'role' is missing", where));
  if (!role->is_string()) return wrong(where + ".role", "a string", *role);
  if (const auto content = message.find("content"); content != message.end())
    MF_TRY_STATUS(check_content(*content, where + ".content"));
  if (const auto calls = message.find("tool_calls"); calls != message.end())
    MF_TRY_STATUS(open_tool_calls(*calls, where + ".tool_calls"));
  return {};
}

}  // namespace

Result<Json> check_messages(Json messages, std::string_view name) {
  const std::string what(name);
  if (!messages.is_array()) return wrong(what, "an array of messages", messages);
  if (messages.empty())
    return Error(ErrorCode::corrupt_data, fmt::format("{}: expected at least one message, found none", name));
  std::size_t index = 0;
  for (Json& message : messages)
    MF_TRY_STATUS(check_message(message, fmt::format("{}: messages[{}]", name, index++)));
  return messages;
}

Status check_tools(const Json& tools, std::string_view name) {
  if (tools.is_null()) return {};
  if (!tools.is_array()) return wrong(name, "an array of tools", tools);
  std::size_t index = 0;
  for (const Json& tool : tools) {
    const std::string where = fmt::format("{}: tools[{}]", name, index++);
    if (!tool.is_object()) return wrong(where, "a tool as an object", tool);
  }
  return {};
}

Result<Json> parse_messages(std::string_view json, std::string_view name) {
  MF_TRY(Json messages, parse_json(json, name, kMessageLimits));
  return check_messages(std::move(messages), name);
}

Result<Json> parse_tools(std::string_view json, std::string_view name) {
  MF_TRY(Json tools, parse_json(json, name, kMessageLimits));
  MF_TRY_STATUS(check_tools(tools, name));
  return tools;
}

}  // namespace moeflux
