#pragma once
// ToolSchemas: the types of tool parameters, from the JSON schemas of a request.
//
// For formats that write values without types (<parameter=count>\n5\n</parameter>), the schema tells whether
// the value is 5 or "5". Only types are read from a schema; nothing is validated against it. Immutable,
// thread-safe.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/json/json.h"
#include "base/result.h"

namespace moeflux {

// A set of JSON Schema types.
class JsonTypes {
 public:
  enum Type : std::uint8_t {
    string = 1,
    integer = 2,
    number = 4,  // includes integers
    boolean = 8,
    null = 16,
    object = 32,
    array = 64,
  };

  constexpr JsonTypes() = default;
  constexpr JsonTypes(Type type) : bits_(type) {}
  static constexpr JsonTypes any() { return JsonTypes(127); }

  constexpr bool has(Type type) const { return (bits_ & type) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr JsonTypes operator|(JsonTypes other) const { return JsonTypes(bits_ | other.bits_); }
  constexpr JsonTypes operator&(JsonTypes other) const { return JsonTypes(bits_ & other.bits_); }
  friend constexpr bool operator==(JsonTypes, JsonTypes) = default;

 private:
  constexpr explicit JsonTypes(int bits) : bits_(static_cast<std::uint8_t>(bits)) {}
  std::uint8_t bits_ = 0;
};

// The types that a schema allows; docs/replies.md has the rules. Any type if the schema states none; a string
// for unsupported schemas: $ref, unknown types, combinations nested more than 8 deep.
JsonTypes types_of_schema(const Json& schema);

// Appends `text` to `json` as a JSON value: the first of null, boolean, integer, number, object and array
// that `types` allows and `text` spells, otherwise a string. Python's True, False and None are accepted.
void append_typed_value(std::string_view text, JsonTypes types, std::string& json);

// Appends `text` as the content of a JSON string, without quotes.
void append_json_escaped(std::string_view text, std::string& json);

class ToolSchemas {
 public:
  static constexpr std::size_t kMaxTools = 1024;
  static constexpr std::size_t kMaxParameters = 4096;  // of one tool
  static constexpr std::size_t kMaxNameBytes = 256;    // of a tool

  struct Tool {
    std::map<std::string, JsonTypes, std::less<>> parameters;
    JsonTypes others = JsonTypes::string;  // from additionalProperties

    JsonTypes types_of(std::string_view parameter) const;
  };

  // No tools.
  ToolSchemas() = default;

  // `tools` in OpenAI's form: [{"type": "function", "function": {"name", "description", "parameters"}}].
  // `what` names it in error messages. Of two tools with the same name the first one counts.
  static Result<ToolSchemas> read(const Json& tools, std::string_view what = "tools");

  std::size_t size() const { return tools_.size(); }

  // Null if there is no such tool.
  const Tool* find(std::string_view name) const;

 private:
  std::map<std::string, Tool, std::less<>> tools_;
};

}  // namespace moeflux
