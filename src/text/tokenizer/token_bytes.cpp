#include "text/tokenizer/token_bytes.h"

#include <limits>

namespace moeflux {

TokenBytes::TokenBytes(std::span<const std::string> tokens) {
  std::size_t total = 0;
  for (const std::string& token : tokens) total += token.size();
  MF_REQUIRE(total <= std::numeric_limits<std::uint32_t>::max(), "a vocabulary is shorter than 4 GiB");
  blob_.reserve(total);
  ends_.reserve(tokens.size());
  for (const std::string& token : tokens) {
    blob_ += token;
    ends_.push_back(static_cast<std::uint32_t>(blob_.size()));
  }
}

}  // namespace moeflux
