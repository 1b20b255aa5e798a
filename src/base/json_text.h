#pragma once
// A JSON document as text: turns offsets and the library's complaints into our messages.
//
// Internal to json.cpp. Views the text and its name, which outlive it. Immutable.

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/result.h"

namespace moeflux {

class JsonText {
 public:
  JsonText(std::string_view text, std::string_view what) : text_(text), what_(what) {}

  std::string_view text() const { return text_; }

  // "what:line:column: problem" for the byte at `offset`.
  Error error(ErrorCode code, std::size_t offset, std::string_view problem) const;

  // What the library's parser did not like. `characters_read` and `failure` are as it passes them to its
  // handler; `document_ended`: a whole document had been read before.
  Error syntax_error(std::size_t characters_read, const nlohmann::detail::exception& failure,
                     bool document_ended) const;

  // The offset of the quote that opens the string whose last quote is at `closing`.
  std::size_t opening_quote(std::size_t closing) const;

 private:
  std::string_view text_;
  std::string_view what_;
};

}  // namespace moeflux
