#pragma once
// A Normalizer applies Unicode normalization: NFC, NFD, NFKC, NFKD, in any sequence.
//
// Only parts of the text that may change are processed. A part is a character that no form changes and that
// does not compose with anything before it, followed by characters that may change or compose. Linear except
// for sorting runs of combining marks, which is O(n log n). Immutable, thread-safe.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/text_range.h"

namespace moeflux {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

class Normalizer {
 public:
  Normalizer() = default;  // changes nothing
  explicit Normalizer(std::vector<NormalForm> forms) : forms_(std::move(forms)) {}

  bool changes_nothing() const { return forms_.empty(); }

  // Normalizes `text` (valid UTF-8) in place and adjusts the ranges of `data`, which are sorted and disjoint:
  // a range that begins or ends inside a changed part covers all of it.
  void normalize(std::string& text, std::vector<TextRange>& data) const;

  std::string normalized(std::string_view text) const;

 private:
  std::vector<NormalForm> forms_;
};

}  // namespace moeflux
