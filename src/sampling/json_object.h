#pragma once
// JSON mode: the generation is exactly one JSON object.
//
// JsonVocabulary is an index of the vocabulary for JSON, built once per model (0.1 s for 248,320 tokens) and
// shared. JsonObjectConstraint follows one generation with a JsonAutomaton over the bytes of its tokens. A
// mask is computed by a walk over a trie of the vocabulary that skips every subtree behind a refused byte;
// outside of strings it visits few nodes. Inside strings nearly every token fits: the tokens that stay in the
// string are precomputed, and only those that close it are walked. docs/sampling.md specifies what is
// accepted.
//
// Special tokens never appear in the text. End tokens are allowed when the object is closed, and then nothing
// else is. Tokens without bytes are never allowed, because they make no progress.

#include <cstdint>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "base/ids.h"
#include "sampling/constraint.h"
#include "sampling/token_trie.h"
#include "text/json/json_automaton.h"
#include "text/tokenizer/token_bytes.h"

namespace moeflux {

// Immutable, thread-safe. Refers to `bytes`, which outlives it.
class JsonVocabulary {
 public:
  // End tokens are special in any case; end tokens that are not in `bytes` are ignored.
  JsonVocabulary(const TokenBytes& bytes, std::span<const TokenId> end_tokens,
                 FunctionRef<bool(TokenId)> is_special);

  std::size_t size() const { return bytes_->size(); }

 private:
  friend class JsonObjectConstraint;

  struct Parts {
    std::vector<std::uint64_t> text, staying;  // one bit per token
    std::vector<TokenId> all, leaving;
  };
  static Parts divide(const TokenBytes& bytes, std::span<const TokenId> end_tokens,
                      FunctionRef<bool(TokenId)> is_special);
  JsonVocabulary(const TokenBytes& bytes, std::span<const TokenId> end_tokens, Parts parts);

  const TokenBytes* bytes_;
  std::vector<TokenId> end_tokens_;
  std::vector<std::uint64_t> text_;     // tokens that may be part of the text
  std::vector<std::uint64_t> staying_;  // tokens that leave an open string open
  TokenTrie all_;
  TokenTrie leaving_;  // tokens that close an open string
};

// Refers to the vocabulary, which outlives it. One thread at a time.
class JsonObjectConstraint final : public Constraint {
 public:
  explicit JsonObjectConstraint(const JsonVocabulary& vocabulary, JsonObjectLimits limits = {});

  bool allows(TokenId token) const override;
  void write_mask(std::span<std::uint64_t> mask) override;
  void accept(TokenId token) override;
  bool can_end() const override { return !ended_ && automaton_.complete(); }

  // Trie nodes that the last write_mask() visited.
  std::size_t nodes_visited() const { return nodes_visited_; }

 private:
  bool is_end(TokenId token) const;

  const JsonVocabulary* vocabulary_;
  JsonAutomaton automaton_;
  bool ended_ = false;
  std::size_t nodes_visited_ = 0;
};

}  // namespace moeflux
