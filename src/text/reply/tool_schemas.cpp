#include "text/reply/tool_schemas.h"

#include <fmt/format.h>

#include <charconv>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>

#include "base/json/object_reader.h"
#include "text/json/json_automaton.h"

namespace moeflux {
namespace {

constexpr int kMaxCombinations = 8;  // nested anyOf, oneOf and allOf

std::optional<JsonTypes> type_named(std::string_view name) {
  if (name == "string") return JsonTypes::string;
  if (name == "integer") return JsonTypes::integer;
  if (name == "number") return JsonTypes::number;
  if (name == "boolean") return JsonTypes::boolean;
  if (name == "null") return JsonTypes::null;
  if (name == "object") return JsonTypes::object;
  if (name == "array") return JsonTypes::array;
  return std::nullopt;
}

JsonTypes type_of_value(const Json& value) {
  if (value.is_null()) return JsonTypes::null;
  if (value.is_boolean()) return JsonTypes::boolean;
  if (value.is_number_integer()) return JsonTypes::integer;
  if (value.is_number()) return JsonTypes::number;
  if (value.is_object()) return JsonTypes::object;
  if (value.is_array()) return JsonTypes::array;
  return JsonTypes::string;
}

const Json* member(const Json& object, std::string_view key) {
  const auto found = object.find(std::string(key));
  return found == object.end() ? nullptr : &*found;
}

// "type": "string" or ["string", "null"].
JsonTypes types_named(const Json& type) {
  JsonTypes types;
  const auto add = [&](const Json& name) {
    if (const std::string* text = name.get_ptr<const std::string*>()) {
      if (const auto known = type_named(*text)) types = types | *known;
    }
  };
  if (type.is_array()) {
    for (const Json& name : type) add(name);
  } else {
    add(type);
  }
  return types.empty() ? JsonTypes(JsonTypes::string) : types;
}

JsonTypes types_of(const Json& schema, int combinations);

// The types that any schema of `list` allows, or that all of them allow with `all`.
JsonTypes combined(const Json& list, bool all, int combinations) {
  if (!list.is_array() || combinations == kMaxCombinations) return JsonTypes::string;
  JsonTypes types = all ? JsonTypes::any() : JsonTypes();
  for (const Json& schema : list) {
    const JsonTypes more = types_of(schema, combinations + 1);
    types = all ? types & more : types | more;
  }
  return types.empty() ? JsonTypes(JsonTypes::string) : types;
}

// Ignores "nullable".
JsonTypes stated_types(const Json& schema, int combinations) {
  if (member(schema, "$ref")) return JsonTypes::string;
  if (const Json* type = member(schema, "type")) return types_named(*type);
  if (const Json* value = member(schema, "const")) return type_of_value(*value);
  if (const Json* values = member(schema, "enum"); values && values->is_array() && !values->empty()) {
    JsonTypes types;
    for (const Json& value : *values) types = types | type_of_value(value);
    return types;
  }
  if (const Json* list = member(schema, "anyOf")) return combined(*list, false, combinations);
  if (const Json* list = member(schema, "oneOf")) return combined(*list, false, combinations);
  if (const Json* list = member(schema, "allOf")) return combined(*list, true, combinations);
  if (member(schema, "properties")) return JsonTypes::object;
  if (member(schema, "items")) return JsonTypes::array;
  return JsonTypes::any();
}

JsonTypes types_of(const Json& schema, int combinations) {
  if (schema.is_boolean()) return schema == Json(true) ? JsonTypes::any() : JsonTypes(JsonTypes::string);
  if (!schema.is_object()) return JsonTypes::string;
  const JsonTypes types = stated_types(schema, combinations);
  const Json* nullable = member(schema, "nullable");
  return nullable && *nullable == Json(true) ? types | JsonTypes::null : types;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_json_whitespace(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_json_whitespace(text.back())) text.remove_suffix(1);
  return text;
}

// The digits of an integer, which "5.0" spells too; empty for anything else.
std::string_view as_integer(std::string_view text) {
  const std::size_t point = text.find('.');
  const std::string_view whole = text.substr(0, point);
  if (whole.find_first_not_of("-0123456789") != std::string_view::npos || !is_json(whole)) return {};
  if (point != std::string_view::npos) {
    const std::string_view fraction = text.substr(point + 1);
    if (fraction.empty() || fraction.find_first_not_of('0') != std::string_view::npos) return {};
  }
  return whole;
}

bool is_number(std::string_view text) {
  if (text.empty() || (text.front() != '-' && (text.front() < '0' || text.front() > '9')) || !is_json(text))
    return false;
  double value = 0;
  return std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc::result_out_of_range;
}

// The JSON value that `text` spells if it is one of `types` other than string; otherwise empty.
std::string_view as_other_than_string(std::string_view text, JsonTypes types) {
  if (text.empty()) return {};
  if (types.has(JsonTypes::null) && (text == "null" || text == "None")) return "null";
  if (types.has(JsonTypes::boolean)) {
    if (text == "true" || text == "True") return "true";
    if (text == "false" || text == "False") return "false";
  }
  if (types.has(JsonTypes::integer)) {
    if (const std::string_view integer = as_integer(text); !integer.empty()) return integer;
  }
  if (types.has(JsonTypes::number) && is_number(text)) return text;
  if (types.has(JsonTypes::object) && text.front() == '{' && is_json(text)) return text;
  if (types.has(JsonTypes::array) && text.front() == '[' && is_json(text)) return text;
  return {};
}

Result<ToolSchemas::Tool> read_parameters(const ObjectReader& function) {
  ToolSchemas::Tool tool;
  if (!function.has("parameters")) return tool;
  MF_TRY(const ObjectReader parameters, function.object("parameters"));
  if (const Json* others = parameters.value("additionalProperties"); others && others->is_object())
    tool.others = types_of_schema(*others);
  if (!parameters.has("properties")) return tool;
  MF_TRY(const ObjectReader properties, parameters.object("properties"));
  const Json& all = *parameters.value("properties");
  if (all.size() > ToolSchemas::kMaxParameters) {
    return Error{ErrorCode::unsupported,
                 fmt::format("{}: expected at most {} parameters, found {}", properties.where(),
                             ToolSchemas::kMaxParameters, all.size())};
  }
  for (const auto& [name, schema] : all.items()) tool.parameters.emplace(name, types_of_schema(schema));
  return tool;
}

}  // namespace

JsonTypes types_of_schema(const Json& schema) { return types_of(schema, 0); }

void append_json_escaped(std::string_view text, std::string& json) {
  for (const char c : text) {
    switch (c) {
      case '"': json += "\\\""; break;
      case '\\': json += "\\\\"; break;
      case '\n': json += "\\n"; break;
      case '\r': json += "\\r"; break;
      case '\t': json += "\\t"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          fmt::format_to(std::back_inserter(json), "\\u{:04x}", static_cast<unsigned>(c));
        } else {
          json += c;
        }
    }
  }
}

void append_typed_value(std::string_view text, JsonTypes types, std::string& json) {
  if (const std::string_view other = as_other_than_string(trimmed(text), types); !other.empty()) {
    json += other;
    return;
  }
  json += '"';
  append_json_escaped(text, json);
  json += '"';
}

JsonTypes ToolSchemas::Tool::types_of(std::string_view parameter) const {
  const auto found = parameters.find(parameter);
  return found == parameters.end() ? others : found->second;
}

Result<ToolSchemas> ToolSchemas::read(const Json& tools, std::string_view what) {
  if (!tools.is_array()) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{}: expected a list of tools, found {}", what, shown(tools))};
  }
  if (tools.size() > kMaxTools) {
    return Error{ErrorCode::unsupported,
                 fmt::format("{}: expected at most {} tools, found {}", what, kMaxTools, tools.size())};
  }
  ToolSchemas schemas;
  std::size_t index = 0;
  for (const Json& entry : tools) {
    MF_TRY(const ObjectReader tool, ObjectReader::as_object(entry, fmt::format("{}[{}]", what, index++)));
    MF_TRY(const ObjectReader function, tool.object("function"));
    MF_TRY(std::string name, function.text("name"));
    if (name.empty() || name.size() > kMaxNameBytes) {
      return Error{ErrorCode::invalid_argument, fmt::format("{}: 'name': expected 1 to {} bytes, found {}",
                                                            function.where(), kMaxNameBytes, name.size())};
    }
    MF_TRY(Tool read, read_parameters(function));
    schemas.tools_.try_emplace(std::move(name), std::move(read));
  }
  return schemas;
}

const ToolSchemas::Tool* ToolSchemas::find(std::string_view name) const {
  const auto found = tools_.find(name);
  return found == tools_.end() ? nullptr : &found->second;
}

}  // namespace moeflux
