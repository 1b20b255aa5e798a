#pragma once
// Text to tokens and back, exactly as Hugging Face's `tokenizers` library does it for byte-level BPE.
//
//   Tokenizer::parse(json, name)       a tokenizer.json
//   encode(text, AddedTokens::all, ids)
//   decode(ids, skip_special)          or, token by token, text/detokenizer.h
//
// What is done to a text, in this order: bytes that are not UTF-8 become U+FFFD (text/utf8.h); added tokens are
// found; what is between them is normalized, and added tokens with the flag "normalized" are found; the rest is
// cut into pieces (text/pre_tokenizer.h), and the bytes of each become tokens (text/bpe.h). docs/text.md has the
// details and what is known to differ.
//
// Nothing is put before or after the tokens of a text: a chat prompt has its special tokens already. What the
// file's post-processor would add is in begin_tokens() and end_tokens().
//
// Immutable: any thread, also at the same time. Scratch memory of calls is kept and used again: about 1 MiB for
// each thread that was inside at once, 8 at most. A Tokenizer that was moved from can only be assigned to and
// destroyed.

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/text_range.h"
#include "text/token_bytes.h"

namespace moeflux {

// Which added tokens are found in a text.
enum class AddedTokens {
  all,       // also <|im_end|>: for text that we wrote
  ordinary,  // only those without the flag "special", the library's encode_special_tokens
  none,      // all of it is text
};

class Tokenizer {
 public:
  // `json` is the content of a tokenizer.json, `name` how messages call it. Fails with `corrupt_data`, or with
  // `unsupported` for what is well-formed and not done here, by its name.
  static Result<Tokenizer> parse(std::string_view json, std::string_view name);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Appends the tokens of `text`. Fails, and appends nothing, only when a pattern of the file cannot be applied
  // to this text within the limits of text/regex.h.
  Status encode(std::string_view text, AddedTokens added, std::vector<TokenId>& out) const;

  // For a rendered chat prompt: all added tokens are found, but none that shares a byte with a range of `data`,
  // which is what users and tools said. Where no added token touches the data, the result is that of
  // AddedTokens::all. Requires ranges within the text, ascending and disjoint.
  Status encode(std::string_view text, std::span<const TextRange> data, std::vector<TokenId>& out) const;

  // The text of tokens; what is not UTF-8 becomes U+FFFD. `skip_special` leaves special tokens out. Ids without
  // a token stand for nothing.
  std::string decode(std::span<const TokenId> tokens, bool skip_special) const;

  // The bytes of every token; an added token stands for its content.
  const TokenBytes& token_bytes() const;

  // The highest id + 1.
  std::size_t vocabulary_size() const;

  // The token with this content: an added one, or one of the vocabulary as the file spells it ("\u0120the").
  std::optional<TokenId> find(std::string_view content) const;

  bool is_special(TokenId token) const;
  bool is_added(TokenId token) const;

  // What the file's post-processor puts before and after one text.
  std::span<const TokenId> begin_tokens() const;
  std::span<const TokenId> end_tokens() const;

 private:
  struct Parts;
  explicit Tokenizer(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace moeflux
