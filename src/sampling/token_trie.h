#pragma once
// The tokens of a vocabulary as a trie over their bytes: a prefix that tokens share is visited once.
//
// The nodes are an array in depth-first order. Each node stores where its subtree ends, so a walk skips all
// tokens behind a refused byte at once.
//
// Immutable, thread-safe. 12 bytes per node, 4 per token.

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "text/tokenizer/token_bytes.h"

namespace moeflux {

class TokenTrie {
 public:
  // Longer tokens are left out, because the walk keeps one state per byte of the path.
  static constexpr std::size_t kLongestToken = 256;

  // Of the `tokens` of 1 to kLongestToken bytes.
  TokenTrie(const TokenBytes& bytes, std::vector<TokenId> tokens);

  std::size_t nodes() const { return nodes_.size(); }

  // Walks from `start`: copies of the state take each byte with state.accept(byte); found(token, state) is
  // called for each token whose bytes are all accepted. Returns the number of nodes visited.
  template <class State, class Found>
  std::size_t walk(const State& start, Found found) const {
    std::array<State, kLongestToken + 1> states =
        filled(start, std::make_index_sequence<kLongestToken + 1>());
    std::size_t visited = 0;
    for (std::size_t i = 0; i < nodes_.size(); ++visited) {
      const Node& node = nodes_[i];
      State& state = states[node.depth];
      state = states[node.depth - 1u];
      if (!state.accept(node.byte)) {
        i = node.subtree_end;
        continue;
      }
      ++i;
      const std::size_t end = i < nodes_.size() ? nodes_[i].first_token : tokens_.size();
      for (std::size_t t = node.first_token; t < end; ++t) found(tokens_[t], state);
    }
    return visited;
  }

 private:
  struct Node {
    std::uint32_t subtree_end;
    std::uint32_t first_token;  // its tokens: from here to the first of the next node
    std::uint16_t depth;        // from 1
    unsigned char byte;
  };

  template <class State, std::size_t... I>
  static std::array<State, sizeof...(I)> filled(const State& state, std::index_sequence<I...>) {
    return {((void)I, state)...};
  }

  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;  // sorted by their bytes
};

}  // namespace moeflux
