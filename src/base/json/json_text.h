#pragma once
// The text of a JSON document: turns offsets and the library's errors into our messages.
//
// Internal to json.cpp. Views the text and its name, which must outlive it. Immutable.

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

  // The message for an error of the library's parser. `characters_read` and `failure` are the arguments of
  // its handler. `document_ended` means that the error is in text after a complete document.
  Error syntax_error(std::size_t characters_read, const nlohmann::detail::exception& failure,
                     bool document_ended) const;

  // The offset of the opening quote of the string whose closing quote is at `closing`.
  std::size_t opening_quote(std::size_t closing) const;

 private:
  std::string_view text_;
  std::string_view what_;
};

}  // namespace moeflux
