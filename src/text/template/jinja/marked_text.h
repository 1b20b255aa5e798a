#pragma once
// MarkedText is a string that records which of its bytes came from data.
//
// The bytes, and the ranges of them that are data: sorted, disjoint, not adjacent. A text that is all data or
// all template has one range or none, so marking is cheap. A TextBuilder concatenates texts with their marks;
// at its limit it stops growing and over() becomes true. Plain values, one thread at a time while they
// change.

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "text/text_range.h"

namespace moeflux::jinja {

struct MarkedText {
  std::string bytes;
  std::vector<TextRange> data;

  static MarkedText from_template(std::string_view text) { return {std::string(text), {}}; }
  static MarkedText from_data(std::string_view text) {
    MarkedText out{std::string(text), {}};
    if (!text.empty()) out.data.push_back({0, text.size()});
    return out;
  }

  bool is_data(std::size_t byte) const;
};

class TextBuilder {
 public:
  explicit TextBuilder(std::size_t limit) : limit_(limit) {}

  void add(std::string_view bytes, bool data = false);
  void add(const MarkedText& text) { add(text, 0, text.bytes.size()); }
  // Adds bytes [begin, end) of `text`, which must be inside it.
  void add(const MarkedText& text, std::size_t begin, std::size_t end);

  std::size_t size() const { return text_.bytes.size(); }
  // The number of bytes that still fit.
  std::size_t left() const;
  // True after an addition did not fit; the text is then incomplete.
  bool over() const { return over_; }

  MarkedText take() { return std::move(text_); }

 private:
  bool fits(std::size_t bytes);
  void mark(std::size_t begin, std::size_t end);

  MarkedText text_;
  std::size_t limit_;
  bool over_ = false;
};

// Bytes [begin, end) of `text`, which must be inside it.
MarkedText slice(const MarkedText& text, std::size_t begin, std::size_t end);

}  // namespace moeflux::jinja
