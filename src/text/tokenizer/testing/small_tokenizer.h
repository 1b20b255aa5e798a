#pragma once
// A tokenizer.json for tests: the 256 bytes and a few merges, which tests can modify. Pure functions,
// thread-safe.

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode/utf8.h"

namespace moeflux {

using TestJson = nlohmann::ordered_json;

// Merged tokens have ids from 256.
inline TestJson small_tokenizer_json(const std::vector<std::pair<std::string, std::string>>& merges = {
                                         {"h", "e"}, {"l", "l"}, {"he", "ll"}, {"a", "a"}}) {
  TestJson vocabulary = TestJson::object(), pairs = TestJson::array();
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::string spelled;
    append_utf8(spelled, alphabet_character(static_cast<unsigned char>(byte)));
    vocabulary[spelled] = byte;
  }
  for (const auto& [left, right] : merges) {
    const auto id = vocabulary.size();
    vocabulary[left + right] = id;
    pairs.push_back({left, right});
  }
  const TestJson byte_level{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  return {{"version", "1.0"},
          {"added_tokens", TestJson::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", pairs}}}};
}

inline TestJson added_token(std::uint32_t id, std::string content, bool special = false,
                            bool normalized = false) {
  return {{"id", id},
          {"content", std::move(content)},
          {"special", special},
          {"normalized", normalized},
          {"single_word", false},
          {"lstrip", false},
          {"rstrip", false}};
}

inline Tokenizer parsed(const TestJson& json) {
  Result<Tokenizer> tokenizer = Tokenizer::parse(json.dump(), "tokenizer.json");
  if (!tokenizer) throw std::runtime_error(tokenizer.error().message());
  return *std::move(tokenizer);
}

inline std::vector<std::uint32_t> indices(const std::vector<TokenId>& tokens) {
  std::vector<std::uint32_t> all;
  for (const TokenId token : tokens) all.push_back(token.index());
  return all;
}

}  // namespace moeflux
