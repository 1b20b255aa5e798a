#pragma once
// A Detokenizer turns a stream of tokens into text.
//
// The texts of push() and finish() together are Tokenizer::decode() of all tokens. Holds back at most 3
// bytes, the beginning of a character. Refers to its tokenizer, which outlives it. One thread at a time.

#include <string>
#include <string_view>

#include "base/ids.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode/utf8_stream.h"

namespace moeflux {

class Detokenizer {
 public:
  Detokenizer(const Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}

  // The text that `token` completes: whole characters, possibly none. Valid until the next call. An id
  // without a token has no text.
  std::string_view push(TokenId token);

  // Ends the tokens; held back bytes become U+FFFD. Afterwards the detokenizer is as new.
  std::string_view finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  Utf8Stream stream_;
  std::string text_;
};

}  // namespace moeflux
