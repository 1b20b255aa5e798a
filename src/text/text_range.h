#pragma once
// A byte range of a text. Plain value.

#include <cstddef>

namespace moeflux {

struct TextRange {
  std::size_t begin, end;  // [begin, end)
  friend bool operator==(const TextRange&, const TextRange&) = default;
};

}  // namespace moeflux
