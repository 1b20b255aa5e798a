#pragma once
// Tokens in, text out, as they come.
//
// What push() and finish() give, one after the other, is what Tokenizer::decode() gives for all tokens at once;
// held back is at most the beginning of a character, 3 bytes. Refers to its tokenizer, which outlives it. One
// thread at a time.

#include <string>
#include <string_view>

#include "base/ids.h"
#include "text/tokenizer.h"
#include "text/utf8_stream.h"

namespace moeflux {

class Detokenizer {
 public:
  Detokenizer(const Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}

  // The text that `token` completes: whole characters, perhaps none. Valid until the next call. An id without a
  // token stands for nothing.
  std::string_view push(TokenId token);

  // The tokens end here; what was held back becomes U+FFFD. The detokenizer is then as new.
  std::string_view finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  Utf8Stream stream_;
  std::string text_;
};

}  // namespace moeflux
