#include "text/template/jinja/marked_text.h"

namespace moeflux::jinja {
namespace {

// The first range that ends after `byte`.
std::vector<TextRange>::const_iterator first_after(const MarkedText& text, std::size_t byte) {
  return std::upper_bound(text.data.begin(), text.data.end(), byte,
                          [](std::size_t at, const TextRange& range) { return at < range.end; });
}

}  // namespace

bool MarkedText::is_data(std::size_t byte) const {
  const auto range = first_after(*this, byte);
  return range != data.end() && range->begin <= byte;
}

std::size_t TextBuilder::left() const {
  // Ranges count too: alternating text and data would otherwise take many times the limit.
  const std::size_t taken = text_.bytes.size() + text_.data.size() * sizeof(TextRange);
  return over_ || taken > limit_ ? 0 : limit_ - taken;
}

bool TextBuilder::fits(std::size_t bytes) {
  if (bytes > left()) over_ = true;
  return !over_;
}

void TextBuilder::mark(std::size_t begin, std::size_t end) {
  if (begin == end) return;
  if (!text_.data.empty() && text_.data.back().end == begin)
    text_.data.back().end = end;
  else
    text_.data.push_back({begin, end});
}

void TextBuilder::add(std::string_view bytes, bool data) {
  if (!fits(bytes.size())) return;
  text_.bytes.append(bytes);
  if (data) mark(text_.bytes.size() - bytes.size(), text_.bytes.size());
}

void TextBuilder::add(const MarkedText& text, std::size_t begin, std::size_t end) {
  if (!fits(end - begin)) return;
  const std::size_t start = text_.bytes.size();
  text_.bytes.append(text.bytes, begin, end - begin);
  for (auto range = first_after(text, begin); range != text.data.end() && range->begin < end; ++range) {
    const std::size_t from = std::max(range->begin, begin) - begin;
    mark(start + from, start + std::min(range->end, end) - begin);
  }
}

MarkedText slice(const MarkedText& text, std::size_t begin, std::size_t end) {
  TextBuilder out(std::string::npos);
  out.add(text, begin, end);
  return out.take();
}

}  // namespace moeflux::jinja
