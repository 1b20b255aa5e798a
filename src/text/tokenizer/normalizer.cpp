#include "text/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/check.h"
#include "text/unicode/utf8.h"

namespace moeflux {
namespace {

struct Block {
  char32_t first, last;
};

// Common ranges of characters that NFC never changes and that do not compose with anything before them (what
// follows may compose with them). Not complete: other characters are looked up. A test compares each
// character with utf8proc.
constexpr Block kNfcStarters[] = {{0x0000, 0x02FF}, {0x0400, 0x0482}, {0x048A, 0x052F},   {0x05D0, 0x05EA},
                                  {0x0621, 0x064A}, {0x0E01, 0x0E30}, {0x2010, 0x2027},   {0x2030, 0x205E},
                                  {0x2190, 0x21FF}, {0x2500, 0x27BF}, {0x3001, 0x3029},   {0x3041, 0x3096},
                                  {0x30A0, 0x30FF}, {0x3400, 0x9FFF}, {0xAC00, 0xD7A3},   {0xE000, 0xF8FF},
                                  {0xFF01, 0xFFDC}, {0xFFFD, 0xFFFD}, {0x1F000, 0x1FAFF}, {0x20000, 0x2A6DF}};

// The reference normalizes with the tables of Unicode 9. There the characters of Unicode 10 to 16 that have a
// combining class or a decomposition or take part in a composition are unassigned: they do not change, and
// nothing is reordered across them.
constexpr Block kAfterUnicode9[] = {
    {0x07FD, 0x07FD},   {0x0897, 0x089F},   {0x08CA, 0x08D3},   {0x09FE, 0x09FE},   {0x0C3C, 0x0C3C},
    {0x0D3B, 0x0D3C},   {0x0EBA, 0x0EBA},   {0x0ECE, 0x0ECE},   {0x1715, 0x1715},   {0x1ABF, 0x1ACE},
    {0x1DF6, 0x1DFA},   {0x32FF, 0x32FF},   {0xA7F1, 0xA7F4},   {0xA82C, 0xA82C},   {0xAB69, 0xAB69},
    {0x105C0, 0x105FF}, {0x10781, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}, {0x10D24, 0x10D27},
    {0x10D40, 0x10D8F}, {0x10EAB, 0x10EAC}, {0x10EFC, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85},
    {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x11380, 0x113E2}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
    {0x11930, 0x11930}, {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0},
    {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
    {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16100, 0x1613F}, {0x16D40, 0x16D7F}, {0x16FF0, 0x16FF1},
    {0x1CCD6, 0x1CCF9}, {0x1E030, 0x1E06D}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE},
    {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}, {0x1E5D0, 0x1E5FF}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9}};

bool is_after_unicode_9(char32_t code) {
  if (code < kAfterUnicode9[0].first) return false;
  const auto* block = std::ranges::lower_bound(kAfterUnicode9, code, {}, &Block::last);
  return block != std::end(kAfterUnicode9) && code >= block->first;
}

bool stays(NormalForm form, char32_t code) {
  if (code < 0x80) return true;
  if (form != NormalForm::nfc) return false;
  if (code < 0x300) return true;
  for (const Block& block : kNfcStarters)
    if (code <= block.last) return code >= block.first;
  return false;
}

struct Marked {
  std::int32_t code;
  std::uint8_t combining;
};

// Converts parts to their normal form; reuses its memory between parts.
class Part {
 public:
  explicit Part(NormalForm form) {
    const bool compose = form == NormalForm::nfc || form == NormalForm::nfkc;
    const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
    decompose_ = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
    finish_ = UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : 0);
  }

  // Appends the normal form of `part` to `out`.
  void append(std::string_view part, std::string& out) {
    for (std::size_t at = 0; at < part.size();) {
      const CodePoint point = code_point_at(part, at);
      if (is_after_unicode_9(point.value)) {
        flush(out);
        out += part.substr(at, point.bytes);
      } else {
        decompose(static_cast<std::int32_t>(point.value));
      }
      at += point.bytes;
    }
    flush(out);
  }

 private:
  // Appends the normal form of the decomposed characters.
  void flush(std::string& out) {
    if (decomposed_.empty()) return;
    order_marks();
    codes_.clear();
    for (const Marked& marked : decomposed_) codes_.push_back(marked.code);
    decomposed_.clear();
    codes_.push_back(0);  // the library overwrites the code points with UTF-8 and a final zero
    const utf8proc_ssize_t bytes =
        utf8proc_reencode(codes_.data(), static_cast<utf8proc_ssize_t>(codes_.size() - 1),
                          static_cast<utf8proc_option_t>(finish_));
    MF_REQUIRE(bytes >= 0, "code points of valid text can be written");
    out.append(reinterpret_cast<const char*>(codes_.data()), static_cast<std::size_t>(bytes));
  }

  // A character decomposes into at most 18 (U+FDFA in NFKD).
  void decompose(std::int32_t code) {
    std::int32_t parts[32];
    int boundary = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(code, parts, 32, static_cast<utf8proc_option_t>(decompose_), &boundary);
    MF_REQUIRE(count >= 0 && count <= 32, "a character has a decomposition of few characters");
    for (utf8proc_ssize_t i = 0; i < count; ++i)
      decomposed_.push_back(
          {parts[i], static_cast<std::uint8_t>(utf8proc_get_property(parts[i])->combining_class)});
  }

  // The sort of the library is quadratic in the length of a run of marks.
  void order_marks() {
    for (std::size_t begin = 0; begin < decomposed_.size();) {
      std::size_t end = begin;
      while (end < decomposed_.size() && decomposed_[end].combining != 0) ++end;
      if (end - begin > 1)
        std::stable_sort(decomposed_.begin() + static_cast<std::ptrdiff_t>(begin),
                         decomposed_.begin() + static_cast<std::ptrdiff_t>(end),
                         [](const Marked& a, const Marked& b) { return a.combining < b.combining; });
      begin = end + 1;
    }
  }

  int decompose_, finish_;
  std::vector<Marked> decomposed_;
  std::vector<std::int32_t> codes_;
};

// A part that changed or moved.
struct Change {
  TextRange before, after;
};

// The end of the part that begins at `at`: before the next character that stays.
std::size_t end_of_part(NormalForm form, std::string_view text, std::size_t at) {
  do at += code_point_at(text, at).bytes;
  while (at < text.size() && !stays(form, code_point_at(text, at).value));
  return at;
}

// The length in bytes of the common prefix of whole characters.
std::size_t common_characters(std::string_view a, std::string_view b) {
  std::size_t same = 0;
  while (same < a.size() && same < b.size()) {
    const std::size_t bytes = code_point_at(a, same).bytes;
    if (a.substr(same, bytes) != b.substr(same, bytes)) break;
    same += bytes;
  }
  return same;
}

// Returns false and leaves `out` unchanged if nothing changes.
bool apply(NormalForm form, std::string_view text, std::string& out, std::vector<Change>& changes) {
  std::size_t copied = 0;  // the text before it is in `out`
  std::size_t last = 0;    // the beginning of the last character that stays
  std::optional<Part> part;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    if (stays(form, point.value)) {
      last = at;
      at += point.bytes;
      continue;
    }
    const std::size_t end = end_of_part(form, text, last);
    if (!part) part.emplace(form);
    out += text.substr(copied, last - copied);
    const std::size_t begin = out.size();
    part->append(text.substr(last, end - last), out);
    const std::string_view before = text.substr(last, end - last),
                           after = std::string_view(out).substr(begin);
    if (before != after) {
      const std::size_t same = common_characters(before, after);
      changes.push_back({{last + same, end}, {begin + same, out.size()}});
    }
    copied = at = last = end;
  }
  if (!part) return false;
  out += text.substr(copied);
  return true;
}

// Maps a position of the old text to the new text. A position inside a change maps to its begin or end.
std::size_t moved(std::size_t position, bool is_end, const std::vector<Change>& changes) {
  const auto after =
      std::ranges::upper_bound(changes, position, {}, [](const Change& c) { return c.before.begin; });
  if (after == changes.begin()) return position;
  const Change& change = *std::prev(after);
  if (position >= change.before.end) return position - change.before.end + change.after.end;
  if (position == change.before.begin || !is_end) return change.after.begin;
  return change.after.end;
}

}  // namespace

void Normalizer::normalize(std::string& text, std::vector<TextRange>& data) const {
  std::string out;
  std::vector<Change> changes;
  for (const NormalForm form : forms_) {
    out.clear();
    changes.clear();
    if (!apply(form, text, out, changes)) continue;
    text.swap(out);
    if (changes.empty()) continue;
    for (TextRange& range : data)
      range = {moved(range.begin, false, changes), moved(range.end, true, changes)};
  }
}

std::string Normalizer::normalized(std::string_view text) const {
  std::string out(text);
  std::vector<TextRange> none;
  normalize(out, none);
  return out;
}

}  // namespace moeflux
