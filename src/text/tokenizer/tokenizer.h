#pragma once
// A Tokenizer turns text into tokens and back, exactly like Hugging Face's `tokenizers` library for
// byte-level BPE.
//
//   Tokenizer::parse(json, name)       a tokenizer.json
//   encode(text, AddedTokens::all, ids)
//   decode(ids, skip_special)          or, token by token, text/tokenizer/detokenizer.h
//
// The steps of encoding: invalid bytes become U+FFFD (text/unicode/utf8.h); added tokens are found; the text
// between them is normalized, and added tokens with the flag "normalized" are found in it; the rest is split
// into pieces (text/tokenizer/pre_tokenizer.h), and the bytes of each piece become tokens
// (text/tokenizer/bpe.h). docs/text.md has the details and the known differences.
//
// No tokens are added before or after a text, because a chat prompt contains its special tokens.
// begin_tokens() and end_tokens() have those that the file's post-processor would add.
//
// Immutable, thread-safe. Keeps scratch memory for later calls: about 1 MiB per concurrent caller, for at
// most 8. A moved-from Tokenizer can only be assigned to and destroyed.

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
#include "text/tokenizer/token_bytes.h"

namespace moeflux {

// The added tokens that are found in a text.
enum class AddedTokens {
  all,       // including <|im_end|>, for trusted text
  ordinary,  // without the flag "special"; the library's encode_special_tokens
  none,      // everything is text
};

class Tokenizer {
 public:
  // `json` is the content of a tokenizer.json; `name` names it in error messages. Fails with `corrupt_data`,
  // or with `unsupported` for an unsupported feature, which the message names.
  static Result<Tokenizer> parse(std::string_view json, std::string_view name);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Appends the tokens of `text`. Fails and appends nothing only if a pattern of the file exceeds the limits
  // of text/tokenizer/regex.h on this text.
  Status encode(std::string_view text, AddedTokens added, std::vector<TokenId>& out) const;

  // For a rendered chat prompt: finds all added tokens except those that share a byte with a range of `data`,
  // the text of users and tools. If no added token touches the data, the result is the same as with
  // AddedTokens::all. Requires: the ranges are within the text, ascending and disjoint.
  Status encode(std::string_view text, std::span<const TextRange> data, std::vector<TokenId>& out) const;

  // The text of `tokens`, with U+FFFD in place of invalid bytes and without special tokens if `skip_special`.
  // Ids without a token have no text.
  std::string decode(std::span<const TokenId> tokens, bool skip_special) const;

  // The bytes of every token; those of an added token are its content.
  const TokenBytes& token_bytes() const;

  // The highest id + 1.
  std::size_t vocabulary_size() const;

  // The token with this content: an added token, or a token of the vocabulary as spelled in the file
  // ("\u0120the").
  std::optional<TokenId> find(std::string_view content) const;

  bool is_special(TokenId token) const;
  bool is_added(TokenId token) const;

  // The tokens that the file's post-processor adds before and after one text.
  std::span<const TokenId> begin_tokens() const;
  std::span<const TokenId> end_tokens() const;

 private:
  struct Parts;
  explicit Tokenizer(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace moeflux
