#pragma once
// The bytes of every token of a vocabulary, such as " the" or half of an emoji.
//
// One blob and its offsets: the 151,669 tokens of Qwen3 take 1.5 MB. Ids without a token (holes, padding of
// the model's head) have no bytes. Immutable after construction, thread-safe.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/ids.h"

namespace moeflux {

class TokenBytes {
 public:
  // tokens[i] belongs to TokenId{i}. Requires: all together are shorter than 4 GiB.
  explicit TokenBytes(std::span<const std::string> tokens);

  std::size_t size() const { return ends_.size(); }

  // Requires: token.index() < size().
  std::string_view operator[](TokenId token) const {
    MF_REQUIRE(token.index() < ends_.size(), "the token is one of the vocabulary");
    const std::uint32_t begin = token.index() == 0 ? 0 : ends_[token.index() - 1];
    return std::string_view(blob_).substr(begin, ends_[token.index()] - begin);
  }

 private:
  std::string blob_;
  std::vector<std::uint32_t> ends_;  // ends_[i]: the end of token i in blob_
};

}  // namespace moeflux
