#include "sampling/token_trie.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "base/check.h"

namespace moeflux {

TokenTrie::TokenTrie(const TokenBytes& bytes, std::vector<TokenId> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_,
                [&](TokenId token) { return bytes[token].empty() || bytes[token].size() > kLongestToken; });
  std::sort(tokens_.begin(), tokens_.end(),
            [&](TokenId a, TokenId b) { return bytes[a] != bytes[b] ? bytes[a] < bytes[b] : a < b; });

  std::vector<std::uint32_t> path;  // from the root to the last node
  std::string_view previous;
  for (std::size_t t = 0; t < tokens_.size(); ++t) {
    const std::string_view token = bytes[tokens_[t]];
    const auto parting = std::mismatch(previous.begin(), previous.end(), token.begin(), token.end());
    const auto shared = static_cast<std::size_t>(parting.second - token.begin());
    const auto close = [&](std::size_t depth) {
      for (; path.size() > depth; path.pop_back())
        nodes_[path.back()].subtree_end = static_cast<std::uint32_t>(nodes_.size());
    };
    close(shared);
    for (std::size_t depth = shared; depth < token.size(); ++depth) {
      path.push_back(static_cast<std::uint32_t>(nodes_.size()));
      nodes_.push_back({0, static_cast<std::uint32_t>(t), static_cast<std::uint16_t>(depth + 1),
                        static_cast<unsigned char>(token[depth])});
    }
    previous = token;
  }
  for (const std::uint32_t node : path) nodes_[node].subtree_end = static_cast<std::uint32_t>(nodes_.size());
  MF_REQUIRE(nodes_.size() < std::numeric_limits<std::uint32_t>::max(), "a vocabulary is shorter than 4 GiB");
  nodes_.shrink_to_fit();
}

}  // namespace moeflux
