#include "sampling/json_object.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace moeflux {
namespace {

void set(std::span<std::uint64_t> mask, TokenId token) {
  mask[token.index() / 64] |= std::uint64_t{1} << (token.index() % 64);
}

bool has(std::span<const std::uint64_t> mask, TokenId token) {
  return (mask[token.index() / 64] >> (token.index() % 64) & 1) != 0;
}

// Just inside a string, with room for any nesting after it.
JsonAutomaton inside_string() {
  JsonAutomaton automaton(JsonObjectLimits{});
  MF_REQUIRE(automaton.accept("{\""), "a key may begin");
  return automaton;
}

// What a token does inside a string. Whether a token that closes the string fits depends on what surrounds
// it.
enum class InString { refused, stays, leaves };

InString in_string(JsonAutomaton automaton, std::string_view bytes) {
  for (const char byte : bytes) {
    const bool closes = automaton.in_plain_string() && byte == '"';
    if (closes) return InString::leaves;
    if (!automaton.accept(static_cast<unsigned char>(byte))) return InString::refused;
  }
  return InString::stays;
}

}  // namespace

JsonVocabulary::JsonVocabulary(const TokenBytes& bytes, std::span<const TokenId> end_tokens,
                               FunctionRef<bool(TokenId)> is_special)
    : JsonVocabulary(bytes, end_tokens, divide(bytes, end_tokens, is_special)) {}

JsonVocabulary::JsonVocabulary(const TokenBytes& bytes, std::span<const TokenId> end_tokens, Parts parts)
    : bytes_(&bytes),
      text_(std::move(parts.text)),
      staying_(std::move(parts.staying)),
      all_(bytes, std::move(parts.all)),
      leaving_(bytes, std::move(parts.leaving)) {
  for (const TokenId token : end_tokens)
    if (token.index() < bytes.size()) end_tokens_.push_back(token);
}

JsonVocabulary::Parts JsonVocabulary::divide(const TokenBytes& bytes, std::span<const TokenId> end_tokens,
                                             FunctionRef<bool(TokenId)> is_special) {
  Parts parts;
  parts.text.resize((bytes.size() + 63) / 64);
  parts.staying.resize(parts.text.size());
  const JsonAutomaton inside = inside_string();
  for (std::uint32_t i = 0; i < bytes.size(); ++i) {
    const TokenId token{i};
    const std::string_view text = bytes[token];
    if (text.empty() || text.size() > TokenTrie::kLongestToken) continue;
    if (std::find(end_tokens.begin(), end_tokens.end(), token) != end_tokens.end() || is_special(token))
      continue;
    set(parts.text, token);
    parts.all.push_back(token);
    const InString kind = in_string(inside, text);
    if (kind == InString::stays) set(parts.staying, token);
    if (kind == InString::leaves) parts.leaving.push_back(token);
  }
  return parts;
}

JsonObjectConstraint::JsonObjectConstraint(const JsonVocabulary& vocabulary, JsonObjectLimits limits)
    : vocabulary_(&vocabulary), automaton_(limits) {}

bool JsonObjectConstraint::is_end(TokenId token) const {
  const auto& ends = vocabulary_->end_tokens_;
  return std::find(ends.begin(), ends.end(), token) != ends.end();
}

bool JsonObjectConstraint::allows(TokenId token) const {
  if (ended_ || token.index() >= vocabulary_->size()) return false;
  if (is_end(token)) return can_end();
  if (!has(vocabulary_->text_, token)) return false;
  JsonAutomaton ahead = automaton_;
  return ahead.accept((*vocabulary_->bytes_)[token]);
}

void JsonObjectConstraint::write_mask(std::span<std::uint64_t> mask) {
  MF_REQUIRE(mask.size() >= vocabulary_->text_.size(), "the mask has a bit for each token of the vocabulary");
  std::fill(mask.begin(), mask.end(), 0);
  nodes_visited_ = 0;
  if (ended_) return;
  if (automaton_.complete()) {
    for (const TokenId token : vocabulary_->end_tokens_) set(mask, token);
    return;
  }
  const bool plain = automaton_.in_plain_string();
  if (plain) std::copy(vocabulary_->staying_.begin(), vocabulary_->staying_.end(), mask.begin());
  const TokenTrie& trie = plain ? vocabulary_->leaving_ : vocabulary_->all_;
  nodes_visited_ = trie.walk(automaton_, [mask](TokenId token, const JsonAutomaton&) { set(mask, token); });
}

void JsonObjectConstraint::accept(TokenId token) {
  MF_REQUIRE(allows(token), "the token is one that the constraint allows");
  if (is_end(token)) {
    ended_ = true;
    return;
  }
  (void)automaton_.accept((*vocabulary_->bytes_)[token]);
}

}  // namespace moeflux
