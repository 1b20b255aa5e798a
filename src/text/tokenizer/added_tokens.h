#pragma once
// Added tokens, such as "<|im_start|>" and "<think>", which are found in a text before any other step.
//
// AddedTokenSet finds them from left to right, the longest at each place, and applies their flags as the
// reference does. Immutable after construction, thread-safe.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/text_range.h"

namespace moeflux {

struct AddedToken {
  TokenId id;
  std::string content;
  bool special = false;      // control token: decoding can skip it
  bool normalized = false;   // is found in the normalized text by its normalized form
  bool single_word = false;  // is found only if no word character touches it
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // includes the white space after it
};

// A token in a text, or the text between two tokens (`token` is null). The range of an lstrip or rstrip token
// may overlap its neighbor, as in the reference; only the ranges of text are used.
struct TextPart {
  const AddedToken* token;
  TextRange range;
};

class AddedTokenSet {
 public:
  struct Pattern {
    std::string text;  // not empty, unique
    const AddedToken* token;
  };
  AddedTokenSet() = default;
  explicit AddedTokenSet(std::vector<Pattern> patterns);

  bool empty() const { return patterns_.empty(); }

  // Appends the parts of `text`; text parts are not empty. With `skip_special` special tokens are matched and
  // then left in the text. No token shares a byte with a range of `data` (ascending) or takes white space
  // from it.
  void split(std::string_view text, bool skip_special, std::span<const TextRange> data,
             std::vector<TextPart>& parts) const;

 private:
  struct Match {
    const AddedToken* token;
    TextRange range;
  };
  // The first match inside [from, end) of the text.
  bool find(std::string_view text, std::size_t from, std::size_t end, Match& match) const;

  std::vector<Pattern> patterns_;  // sorted by text
  // By first byte: the patterns [first, last).
  std::array<std::pair<std::uint32_t, std::uint32_t>, 256> beginning_{};
};

}  // namespace moeflux
