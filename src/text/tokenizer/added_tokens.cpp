#include "text/tokenizer/added_tokens.h"

#include <utf8proc.h>

#include <algorithm>

#include "text/unicode/utf8.h"

namespace moeflux {
namespace {

bool is_white_space(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F ||
         code == 0x205F || code == 0x3000;
}

// Alphabetic, a mark, a decimal digit, a connector or a joiner: \w of UTS 18, as in Rust's regex crate.
bool is_word(char32_t code) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    case UTF8PROC_CATEGORY_SO:  // circled and squared letters are Alphabetic symbols
      return (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
             (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189);
    default: return code == 0x200C || code == 0x200D;
  }
}

bool touches_word(std::string_view text, TextRange range) {
  return (range.begin > 0 && is_word(code_point_before(text, range.begin).value)) ||
         (range.end < text.size() && is_word(code_point_at(text, range.end).value));
}

std::size_t white_space_begin(std::string_view text, std::size_t end, std::size_t limit) {
  while (end > limit) {
    const CodePoint point = code_point_before(text, end);
    if (!is_white_space(point.value) || point.bytes > end - limit) break;
    end -= point.bytes;
  }
  return end;
}

std::size_t white_space_end(std::string_view text, std::size_t begin, std::size_t limit) {
  while (begin < limit) {
    const CodePoint point = code_point_at(text, begin);
    if (!is_white_space(point.value) || point.bytes > limit - begin) break;
    begin += point.bytes;
  }
  return begin;
}

}  // namespace

AddedTokenSet::AddedTokenSet(std::vector<Pattern> patterns) : patterns_(std::move(patterns)) {
  // In the order of unsigned bytes, as char_traits compares.
  std::ranges::sort(patterns_, {}, [](const Pattern& pattern) { return std::string_view(pattern.text); });
  for (std::uint32_t i = 0; i < patterns_.size(); ++i) {
    auto& [first, last] = beginning_[static_cast<unsigned char>(patterns_[i].text.front())];
    if (last == 0) first = i;
    last = i + 1;
  }
}

// The patterns are sorted, so those that match the text so far are adjacent, and a complete one comes first.
bool AddedTokenSet::find(std::string_view text, std::size_t from, std::size_t end, Match& match) const {
  for (std::size_t at = from; at < end; ++at) {
    auto [first, last] = beginning_[static_cast<unsigned char>(text[at])];
    const AddedToken* longest = nullptr;
    for (std::size_t length = 1; first < last; ++length) {
      if (patterns_[first].text.size() == length) {
        longest = patterns_[first].token;
        match = {longest, {at, at + length}};
        if (++first == last) break;
      }
      if (at + length >= end) break;
      const auto byte = static_cast<unsigned char>(text[at + length]);
      const auto next = [&](const Pattern& pattern) {
        return static_cast<unsigned char>(pattern.text[length]);
      };
      // Two searches, because clang 14 does not accept libstdc++'s subrange, which equal_range returns.
      const auto begin = patterns_.begin() + first, end_of_range = patterns_.begin() + last;
      const auto low = std::ranges::lower_bound(begin, end_of_range, byte, {}, next);
      const auto high = std::ranges::upper_bound(low, end_of_range, byte, {}, next);
      first = static_cast<std::uint32_t>(low - patterns_.begin());
      last = static_cast<std::uint32_t>(high - patterns_.begin());
    }
    if (longest != nullptr) return true;
  }
  return false;
}

void AddedTokenSet::split(std::string_view text, bool skip_special, std::span<const TextRange> data,
                          std::vector<TextPart>& parts) const {
  std::size_t done = 0;  // the text before it is in `parts`
  const auto search = [&](TextRange free) {
    Match match{};
    for (std::size_t from = free.begin; find(text, from, free.end, match); from = match.range.end) {
      const AddedToken& token = *match.token;
      if (skip_special && token.special) continue;
      if (token.single_word && touches_word(text, match.range)) continue;
      TextRange taken = match.range;
      if (token.lstrip) taken.begin = white_space_begin(text, taken.begin, free.begin);
      if (token.rstrip) taken.end = white_space_end(text, taken.end, free.end);
      if (done < taken.begin) parts.push_back({nullptr, {done, taken.begin}});
      parts.push_back({&token, taken});
      done = taken.end;
    }
  };
  std::size_t begin = 0;
  for (const TextRange& range : data) {
    if (range.begin == range.end) continue;
    if (begin < range.begin) search({begin, range.begin});
    begin = std::max(begin, range.end);
  }
  if (begin < text.size()) search({begin, text.size()});
  if (done != text.size()) parts.push_back({nullptr, {done, text.size()}});
}

}  // namespace moeflux
