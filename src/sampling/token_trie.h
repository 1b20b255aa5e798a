#pragma once
// Tokens by the bytes that they begin with, so that what many share is looked at once.
//
// A tree whose nodes are bytes, stored as an array in the order of a depth-first walk; each node knows
// where its subtree ends, so a byte that is refused skips all tokens that go on from it.
//
// Immutable after construction; any thread. 12 bytes a node, 4 a token.

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "text/token_bytes.h"

namespace moeflux {

class TokenTrie {
 public:
  // Longer tokens are left out: the walk keeps a state for each byte of the longest.
  static constexpr std::size_t kLongestToken = 256;

  // Of those `tokens` that stand for 1 to kLongestToken bytes.
  TokenTrie(const TokenBytes& bytes, std::vector<TokenId> tokens);

  std::size_t nodes() const { return nodes_.size(); }

  // Walks from `start`: a copy of the state takes each byte by state.accept(byte), and where it takes all
  // bytes of a token, found(token, state) is called. Returns how many nodes were looked at.
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
    std::uint32_t first_token;  // its tokens are from here to the next node's first
    std::uint16_t depth;        // from 1
    unsigned char byte;
  };

  template <class State, std::size_t... I>
  static std::array<State, sizeof...(I)> filled(const State& state, std::index_sequence<I...>) {
    return {((void)I, state)...};
  }

  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;  // in order of their bytes
};

}  // namespace moeflux
