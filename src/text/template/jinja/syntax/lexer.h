#pragma once
// Splits the source of a template into tokens, applying trim_blocks, lstrip_blocks and whitespace control.
//
// Text between tags is a `data` token; inside tags there are names, literals and operators. Pure function,
// thread-safe.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace moeflux::jinja {

enum class TokenType : std::uint8_t {
  data,
  print_begin,
  print_end,
  block_begin,
  block_end,
  name,
  string,
  integer,
  real,
  op,  // see `text`
  end,
};

struct Token {
  TokenType type;
  std::uint32_t line;
  std::string text;  // of a string: unescaped; of a number: without underscores

  bool is_name(std::string_view name) const { return type == TokenType::name && text == name; }
  bool is_op(std::string_view op) const { return type == TokenType::op && text == op; }
};

// Returns the tokens; the last one is `end`. `name` begins error messages.
Result<std::vector<Token>> tokenize(std::string_view source, std::string_view name);

}  // namespace moeflux::jinja
