#pragma once
// What a JsonAutomaton in object mode must accept: nlohmann's parser plus a plain check of the limits. Test
// code only.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "text/json/json_automaton.h"

namespace moeflux {

// Whether valid JSON is within the limits of the automaton.
inline bool within_limits(std::string_view text, JsonObjectLimits limits) {
  const auto digits = [&](std::size_t& i) {
    const std::size_t begin = i;
    while (i < text.size() && text[i] >= '0' && text[i] <= '9') ++i;
    return i - begin;
  };
  std::size_t depth = 0, spaces = 0;
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    spaces = c == ' ' || c == '\n' || c == '\r' || c == '\t' ? spaces + 1 : 0;
    if (spaces > limits.whitespace) return false;
    if (c == '"') {
      for (++i; text[i] != '"'; ++i) i += text[i] == '\\' ? 1 : 0;
    } else if (c == '{' || c == '[') {
      if (++depth > limits.depth) return false;
    } else if (c == '}' || c == ']') {
      --depth;
    } else if (c >= '0' && c <= '9') {
      if (digits(i) > JsonAutomaton::kMaxIntegerDigits) return false;
      if (i < text.size() && text[i] == '.' && digits(++i) > JsonAutomaton::kMaxFractionDigits) return false;
      if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
        ++i;
        if (text[i] == '+' || text[i] == '-') ++i;
        if (digits(i) > JsonAutomaton::kMaxExponentDigits) return false;
      }
      continue;
    }
    ++i;
  }
  return true;
}

// One object, nothing after it, within the limits. nlohmann also accepts a byte order mark and takes a NUL as
// the end.
inline bool should_accept(std::string_view text, JsonObjectLimits limits = {}) {
  if (text.empty() || text.back() != '}' || text.find('\0') != std::string_view::npos) return false;
  const std::size_t first = text.find_first_not_of(" \n\r\t");
  if (first == std::string_view::npos || text[first] != '{') return false;
  return nlohmann::json::accept(text.begin(), text.end()) && within_limits(text, limits);
}

inline bool accepts(std::string_view text, JsonObjectLimits limits = {}) {
  JsonAutomaton automaton(limits);
  return automaton.accept(text) && automaton.complete();
}

// Bytes that complete the object from the automaton's state; empty if there are none, which is a bug.
inline std::string closing(JsonAutomaton automaton) {
  constexpr std::string_view kWays = "\"}]:0\\udcelrsa{\x80\x90\xA0";
  std::string bytes;
  while (!automaton.complete()) {
    std::size_t way = 0;
    while (way < kWays.size() && !automaton.accept(kWays[way])) ++way;
    if (way == kWays.size() || bytes.size() > 1000) return "";
    bytes += kWays[way];
  }
  return bytes;
}

}  // namespace moeflux
