#pragma once
// Which types the parameters of the tools may have, from the schemas that a request brings.
//
// For formats that write values without types (<parameter=count>\n5\n</parameter>): the schema says whether
// this is 5 or "5". Only types are read of a schema, nothing is validated by it. Immutable; any thread.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace moeflux {

// A set of the types that JSON Schema knows.
class JsonTypes {
 public:
  enum Type : std::uint8_t {
    string = 1,
    integer = 2,
    number = 4,  // integers are numbers, too
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

// The types that a schema allows; docs/replies.md has the rules. Any type for a schema that does not say; a
// string for what is not understood: $ref, unknown types, combinations of combinations more than 8 deep.
JsonTypes types_of_schema(const Json& schema);

// Appends to `json` the value that `text` stands for, as JSON: the first of null, boolean, integer, number,
// object and array that is allowed and that `text` spells, else a string. Python's True, False and None are
// understood.
void append_typed_value(std::string_view text, JsonTypes types, std::string& json);

// Appends the inside of a JSON string, without its quotes.
void append_json_escaped(std::string_view text, std::string& json);

class ToolSchemas {
 public:
  static constexpr std::size_t kMaxTools = 1024;
  static constexpr std::size_t kMaxParameters = 4096;  // of one tool
  static constexpr std::size_t kMaxNameBytes = 256;    // of a tool

  struct Tool {
    std::map<std::string, JsonTypes, std::less<>> parameters;
    JsonTypes others = JsonTypes::string;  // what additionalProperties allows

    JsonTypes types_of(std::string_view parameter) const;
  };

  // No tools.
  ToolSchemas() = default;

  // `tools` in OpenAI's form: [{"type": "function", "function": {"name", "description", "parameters"}}].
  // `what` names it in messages. Of two tools with one name the first counts.
  static Result<ToolSchemas> read(const Json& tools, std::string_view what = "tools");

  std::size_t size() const { return tools_.size(); }

  // Null when there is no such tool.
  const Tool* find(std::string_view name) const;

 private:
  std::map<std::string, Tool, std::less<>> tools_;
};

}  // namespace moeflux
