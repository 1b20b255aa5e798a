#pragma once
// JSON mode: a generation that is exactly one JSON object.
//
// JsonVocabulary is what a vocabulary means to JSON; it is built once a model (0.1 s for 248,320 tokens)
// and shared. JsonObjectConstraint follows one generation by a JsonAutomaton over the bytes of its tokens.
// A mask is found by a walk over a tree of the vocabulary, which stops at bytes that JSON refuses: outside
// of strings it sees few nodes. Inside of strings nearly every token fits; those that stay inside are known
// beforehand, and only those that close the string are walked. docs/sampling.md says what is accepted.
//
// Special tokens never appear in the text. End tokens are allowed when the object is closed, and then
// nothing else is. Tokens without bytes are never allowed: they would be no progress.

#include <cstdint>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "base/ids.h"
#include "sampling/constraint.h"
#include "sampling/json_automaton.h"
#include "sampling/token_trie.h"
#include "text/token_bytes.h"

namespace moeflux {

// Immutable after construction; any thread. Refers to `bytes`, which outlives it.
class JsonVocabulary {
 public:
  // End tokens are special without being told; ids that are not in `bytes` are not looked at.
  JsonVocabulary(const TokenBytes& bytes, std::span<const TokenId> end_tokens,
                 FunctionRef<bool(TokenId)> is_special);

  std::size_t size() const { return bytes_->size(); }

 private:
  friend class JsonObjectConstraint;

  struct Parts {
    std::vector<std::uint64_t> text, staying;  // a bit for each token
    std::vector<TokenId> all, leaving;
  };
  static Parts divide(const TokenBytes& bytes, std::span<const TokenId> end_tokens,
                      FunctionRef<bool(TokenId)> is_special);
  JsonVocabulary(const TokenBytes& bytes, std::span<const TokenId> end_tokens, Parts parts);

  const TokenBytes* bytes_;
  std::vector<TokenId> end_tokens_;
  std::vector<std::uint64_t> text_;     // tokens that may be text
  std::vector<std::uint64_t> staying_;  // in a string, those after which it is still open
  TokenTrie all_;
  TokenTrie leaving_;  // in a string, those that close it
};

// Refers to the vocabulary, which outlives it.
class JsonObjectConstraint final : public Constraint {
 public:
  explicit JsonObjectConstraint(const JsonVocabulary& vocabulary, JsonObjectLimits limits = {});

  bool allows(TokenId token) const override;
  void write_mask(std::span<std::uint64_t> mask) override;
  void accept(TokenId token) override;
  bool can_end() const override { return !ended_ && automaton_.complete(); }

  // Bytes that the last write_mask() looked at.
  std::size_t nodes_visited() const { return nodes_visited_; }

 private:
  bool is_end(TokenId token) const;

  const JsonVocabulary* vocabulary_;
  JsonAutomaton automaton_;
  bool ended_ = false;
  std::size_t nodes_visited_ = 0;
};

}  // namespace moeflux
