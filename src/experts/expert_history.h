#pragma once
// The experts that a session's last token chose in each layer, as a prediction of what the next token
// chooses.
//
// The order of the experts does not matter. A prediction may be out of date: a failed step may leave some of
// its choices here. Nothing allocates after construction. One thread at a time.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace moeflux {

class ExpertHistory {
 public:
  ExpertHistory(std::size_t layers, std::size_t per_token)
      : per_token_(per_token), counts_(layers), experts_(layers * per_token) {}

  void record(LayerId layer, std::span<const std::uint32_t> experts) {
    const std::size_t count = std::min(experts.size(), per_token_);
    std::ranges::copy(experts.first(count),
                      experts_.begin() + static_cast<std::ptrdiff_t>(layer.index() * per_token_));
    counts_[layer.index()] = static_cast<std::uint32_t>(count);
  }
  std::span<const std::uint32_t> of(LayerId layer) const {
    return std::span(experts_).subspan(layer.index() * per_token_, counts_[layer.index()]);
  }
  void forget() { std::ranges::fill(counts_, 0u); }

 private:
  std::size_t per_token_;
  std::vector<std::uint32_t> counts_;   // [layers]
  std::vector<std::uint32_t> experts_;  // [layers][per_token]
};

}  // namespace moeflux
