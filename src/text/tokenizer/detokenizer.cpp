#include "text/tokenizer/detokenizer.h"

namespace moeflux {

std::string_view Detokenizer::push(TokenId token) {
  text_.clear();
  if (token.index() < tokenizer_->vocabulary_size() && !(skip_special_ && tokenizer_->is_special(token)))
    stream_.push(tokenizer_->token_bytes()[token], text_);
  return text_;
}

std::string_view Detokenizer::finish() {
  text_.clear();
  stream_.finish(text_);
  return text_;
}

}  // namespace moeflux
