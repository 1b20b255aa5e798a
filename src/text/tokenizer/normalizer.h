#pragma once
// Unicode normalization: NFC, NFD, NFKC, NFKD, in any sequence.
//
// Only the parts of a text that can change are looked at: a part is a character that no form changes and that
// joins with nothing before it, followed by characters that might. Linear but for sorting runs of combining
// marks, which takes O(n log n) however many there are. Immutable: any thread.

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

  // `text` (valid UTF-8) in its form; `data`, sorted and disjoint, moves along: a range that begins or ends
  // inside of a part that changed takes all of it. The result is in `text`.
  void normalize(std::string& text, std::vector<TextRange>& data) const;

  std::string normalized(std::string_view text) const;

 private:
  std::vector<NormalForm> forms_;
};

}  // namespace moeflux
