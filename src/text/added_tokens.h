#pragma once
// Tokens that are found in a text before anything else looks at it: "<|im_start|>", "<think>".
//
// AddedTokenSet finds them from left to right, at each place the longest, and applies their flags as the
// reference does. Immutable after construction: any thread.

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
  bool special = false;      // control, not text: left out when decoding, on request
  bool normalized = false;   // is looked for in the normalized text, in its normalized form
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and after it
};

// A token in a text, or the text between two (`token` is nullptr). With lstrip and rstrip tokens a segment may
// overlap the next, as in the reference.
struct TextPart {
  const AddedToken* token;
  TextRange range;
};

class AddedTokenSet {
 public:
  struct Pattern {
    std::string text;  // not empty, and no other pattern's
    const AddedToken* token;
  };
  AddedTokenSet() = default;
  explicit AddedTokenSet(std::vector<Pattern> patterns);

  bool empty() const { return patterns_.empty(); }

  // Appends the segments of `text`, none of them empty but tokens. With `skip_special` a special token is
  // found and then left in its text. No token is found that shares a byte with a range of `data` (ascending),
  // nor does it take white space from there.
  void split(std::string_view text, bool skip_special, std::span<const TextRange> data,
             std::vector<TextPart>& segments) const;

 private:
  struct Match {
    const AddedToken* token;
    TextRange range;
  };
  // The first match that lies in [from, end) of the text.
  bool find(std::string_view text, std::size_t from, std::size_t end, Match& match) const;

  std::vector<Pattern> patterns_;  // by text
  std::array<std::pair<std::uint32_t, std::uint32_t>, 256>
      beginning_{};  // [first, last) of those with this first byte
};

}  // namespace moeflux
