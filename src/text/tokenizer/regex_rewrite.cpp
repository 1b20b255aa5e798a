#include "text/tokenizer/regex_rewrite.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/printable.h"
#include "text/unicode/utf8.h"

namespace moeflux {
namespace {

// Contents of character classes.
constexpr std::string_view kSpace =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{"
    "3000}";
constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
constexpr std::string_view kDigit = "\\p{Nd}";
constexpr std::string_view kHexDigit = "0-9A-Fa-f";
constexpr std::string_view kAnyCharacter = "(?s:.)";

constexpr int kMaxClassDepth = 16;

// General categories by short and long name, without case, spaces and underscores.
constexpr std::pair<std::string_view, std::string_view> kCategories[] = {{"c", "other"},
                                                                         {"cc", "control"},
                                                                         {"cf", "format"},
                                                                         {"cn", "unassigned"},
                                                                         {"co", "privateuse"},
                                                                         {"cs", "surrogate"},
                                                                         {"l", "letter"},
                                                                         {"ll", "lowercaseletter"},
                                                                         {"lm", "modifierletter"},
                                                                         {"lo", "otherletter"},
                                                                         {"lt", "titlecaseletter"},
                                                                         {"lu", "uppercaseletter"},
                                                                         {"m", "mark"},
                                                                         {"mc", "spacingmark"},
                                                                         {"me", "enclosingmark"},
                                                                         {"mn", "nonspacingmark"},
                                                                         {"n", "number"},
                                                                         {"nd", "decimalnumber"},
                                                                         {"nl", "letternumber"},
                                                                         {"no", "othernumber"},
                                                                         {"p", "punctuation"},
                                                                         {"pc", "connectorpunctuation"},
                                                                         {"pd", "dashpunctuation"},
                                                                         {"pe", "closepunctuation"},
                                                                         {"pf", "finalpunctuation"},
                                                                         {"pi", "initialpunctuation"},
                                                                         {"po", "otherpunctuation"},
                                                                         {"ps", "openpunctuation"},
                                                                         {"s", "symbol"},
                                                                         {"sc", "currencysymbol"},
                                                                         {"sk", "modifiersymbol"},
                                                                         {"sm", "mathsymbol"},
                                                                         {"so", "othersymbol"},
                                                                         {"z", "separator"},
                                                                         {"zl", "lineseparator"},
                                                                         {"zp", "paragraphseparator"},
                                                                         {"zs", "spaceseparator"}};

std::string code_text(char32_t code) { return fmt::format("\\x{{{:x}}}", static_cast<std::uint32_t>(code)); }

bool is_ascii_alnum(char32_t code) {
  return (code >= '0' && code <= '9') || (code >= 'A' && code <= 'Z') || (code >= 'a' && code <= 'z');
}

// A literal character, for use inside and outside of classes.
std::string literal(char32_t code) {
  return is_ascii_alnum(code) ? std::string(1, static_cast<char>(code)) : code_text(code);
}

// The meaning of an escape.
struct Escape {
  enum class Kind { code, set, negated_set, assertion };
  Kind kind;
  char32_t code = 0;
  std::string text{};  // the content of a class, or the assertion
};

class Rewriter {
 public:
  Rewriter(std::string_view pattern, std::string_view what)
      : rest_(pattern), pattern_(pattern), what_(what) {}

  Result<std::string> run() {
    if (auto flags = leading_flags(); !flags) return std::move(flags).error();
    while (!rest_.empty()) MF_TRY_STATUS(element());
    return std::move(out_);
  }

 private:
  Error unsupported(std::string_view construct) const {
    return {ErrorCode::unsupported, fmt::format("{}: the pattern '{}' uses {}, which is not supported", what_,
                                                printable(pattern_), construct)};
  }
  Error broken(std::string_view why) const {
    return {ErrorCode::corrupt_data, fmt::format("{}: the pattern '{}' {}", what_, printable(pattern_), why)};
  }

  bool at(std::string_view text) const { return rest_.starts_with(text); }
  bool take(std::string_view text) {
    if (!at(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  char32_t take_code() {
    const CodePoint point = code_point_at(rest_, 0);
    rest_.remove_prefix(point.bytes);
    return point.value;
  }

  // (?i) and (?m) at the beginning. Later ones would contain an alternation in Ruby but not in PCRE2.
  Status leading_flags() {
    if (take("(?i)")) out_ += "(?i)";
    if (take("(?m)")) out_ += "(?s)";
    return {};
  }

  Status element() {
    switch (rest_.front()) {
      case '\\': return escape_outside();
      case '[': return character_class();
      case '(': return group();
      case ')':
      case '|':
      case '^':
      case '$':
      case '.':
        out_ += rest_.front();
        rest_.remove_prefix(1);
        return {};
      case '*':
      case '+':
      case '?': return quantifier();
      case '{': return interval();
      default: out_ += literal(take_code()); return {};
    }
  }

  Status quantifier() {
    out_ += rest_.front();
    rest_.remove_prefix(1);
    if (take("?"))
      out_ += '?';
    else if (take("+"))
      out_ += '+';
    return {};
  }

  // {n}, {n,}, {n,m}, {,m}; any other brace is literal.
  Status interval() {
    std::size_t i = 1;
    const auto digits = [&] {
      const std::size_t begin = i;
      while (i < rest_.size() && rest_[i] >= '0' && rest_[i] <= '9') ++i;
      return rest_.substr(begin, i - begin);
    };
    const std::string_view low = digits();
    const bool comma = i < rest_.size() && rest_[i] == ',';
    if (comma) ++i;
    const std::string_view high = comma ? digits() : std::string_view{};
    if (i >= rest_.size() || rest_[i] != '}' || (low.empty() && high.empty())) {
      out_ += literal(take_code());
      return {};
    }
    out_ += fmt::format("{{{}{}{}}}", low.empty() ? "0" : low, comma ? "," : "", high);
    rest_.remove_prefix(i + 1);
    // Ruby reads both as a repeated repetition; PCRE2 reads them as possessive and lazy.
    if (at("+")) return unsupported("'{n,m}+'");
    if (!comma && at("?")) return unsupported("'{n}?'");
    if (take("?")) out_ += '?';
    return {};
  }

  Status group() {
    rest_.remove_prefix(1);
    if (at("*")) return unsupported("'(*'");
    if (!take("?")) {
      out_ += "(?:";  // captures are not used
      return {};
    }
    for (const std::string_view opening : {":", "=", "!", ">", "<=", "<!"})
      if (take(opening)) {
        out_ += fmt::format("(?{}", opening);
        return {};
      }
    if (take("#")) {
      const std::size_t end = rest_.find(')');
      if (end == std::string_view::npos) return broken("has a comment without an end");
      rest_.remove_prefix(end + 1);
      return {};
    }
    return group_flags();
  }

  Status group_flags() {
    std::string flags;
    while (!rest_.empty() && (at("i") || at("m") || at("-"))) {
      flags += at("m") ? 's' : rest_.front();
      rest_.remove_prefix(1);
    }
    if (flags.empty() || !take(":"))
      return unsupported(fmt::format("'(?{}'", printable(flags + std::string(rest_.substr(0, 1)), 8)));
    out_ += fmt::format("(?{}:", flags);
    return {};
  }

  Status escape_outside() {
    MF_TRY(const Escape escape, take_escape(false));
    switch (escape.kind) {
      case Escape::Kind::code: out_ += literal(escape.code); break;
      case Escape::Kind::set: out_ += fmt::format("[{}]", escape.text); break;
      case Escape::Kind::negated_set: out_ += fmt::format("[^{}]", escape.text); break;
      case Escape::Kind::assertion: out_ += escape.text; break;
    }
    return {};
  }

  Result<Escape> take_escape(bool in_class) {
    rest_.remove_prefix(1);
    if (rest_.empty()) return broken("ends with a backslash");
    using Kind = Escape::Kind;
    const auto set = [](Kind kind, std::string_view text) { return Escape{kind, 0, std::string(text)}; };
    const auto code = [](char32_t value) { return Escape{Kind::code, value}; };
    const char32_t letter = take_code();
    switch (letter) {
      case 's': return set(Kind::set, kSpace);
      case 'S': return set(Kind::negated_set, kSpace);
      case 'w': return set(Kind::set, kWord);
      case 'W': return set(Kind::negated_set, kWord);
      case 'd': return set(Kind::set, kDigit);
      case 'D': return set(Kind::negated_set, kDigit);
      case 'h': return set(Kind::set, kHexDigit);
      case 'H': return set(Kind::negated_set, kHexDigit);
      case 'p':
      case 'P': return property(letter == 'P');
      case 't': return code('\t');
      case 'n': return code('\n');
      case 'r': return code('\r');
      case 'f': return code('\f');
      case 'v': return code('\v');
      case 'a': return code('\a');
      case 'e': return code(0x1B);
      case 'x':
      case 'u': return hexadecimal(letter);
      default: break;
    }
    if (in_class && letter == 'b') return code('\b');
    if (!in_class && is_ascii_alnum(letter)) {
      if (letter == 'A' || letter == 'z' || letter == 'Z' || letter == 'G')
        return set(Kind::assertion, fmt::format("\\{}", static_cast<char>(letter)));
      if (letter == 'b')
        return set(Kind::assertion, fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", kWord));
      if (letter == 'B')
        return set(Kind::assertion, fmt::format("(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))", kWord));
    }
    if (is_ascii_alnum(letter)) return unsupported(fmt::format("'\\{}'", static_cast<char>(letter)));
    return code(letter);
  }

  // \x7F, \x{1F600}, \uFFFD. In Oniguruma two digits are a byte, which is a character only in ASCII.
  Result<Escape> hexadecimal(char32_t letter) {
    std::string_view digits;
    if (letter == 'x' && take("{")) {
      const std::size_t end = rest_.find('}');
      if (end == std::string_view::npos) return broken("has '\\x{' without '}'");
      digits = rest_.substr(0, end);
      rest_.remove_prefix(end + 1);
    } else {
      digits = rest_.substr(0, letter == 'x' ? 2 : 4);
      if (digits.size() < (letter == 'x' ? 2u : 4u)) return broken("has an escape with too few digits");
      rest_.remove_prefix(digits.size());
      if (letter == 'x' && digits[0] > '7') return unsupported(fmt::format("'\\x{}'", printable(digits, 8)));
    }
    std::uint32_t code = 0;
    if (digits.empty() || digits.size() > 6) return broken("has an escape that is not a code point");
    for (const char digit : digits) {
      const std::string_view all = "0123456789abcdef";
      const std::size_t value =
          all.find(digit >= 'A' && digit <= 'F' ? static_cast<char>(digit + 32) : digit);
      if (value == std::string_view::npos) return broken("has an escape that is not a code point");
      code = code * 16 + static_cast<std::uint32_t>(value);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
      return broken("has an escape that is not a code point");
    return Escape{Escape::Kind::code, code};
  }

  // \p{Lu}, \p{Letter}, \p{Han}, \p{^L}.
  Result<Escape> property(bool negated) {
    if (!take("{")) return unsupported("'\\p' without braces");
    const std::size_t end = rest_.find('}');
    if (end == std::string_view::npos) return broken("has '\\p{' without '}'");
    std::string_view name = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    std::string plain;
    for (const char c : name) {
      if (c == '_' || c == ' ' || c == '-') continue;
      if (!is_ascii_alnum(static_cast<unsigned char>(c)))
        return unsupported(fmt::format("the property '{}'", printable(name, 40)));
      plain += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    }
    const auto* category = std::ranges::find_if(
        kCategories, [&](const auto& names) { return plain == names.first || plain == names.second; });
    if (category == std::end(kCategories)) {
      plain.insert(0, "sc:");  // the script without its extensions; PCRE2 checks the name
    } else {
      plain = category->first;
      plain[0] = static_cast<char>(plain[0] - 32);
    }
    return Escape{Escape::Kind::set, 0, fmt::format("\\{}{{{}}}", negated ? 'P' : 'p', plain)};
  }

  Status character_class() {
    MF_TRY(const std::string text, take_class(0));
    out_ += text;
    return {};
  }

  // A union of class contents that PCRE2 can express and of further sets, each an expression that matches one
  // character.
  struct Union {
    std::string content;
    std::vector<std::string> others;

    std::string expression() const {
      if (others.empty()) return fmt::format("[{}]", content);
      if (content.empty() && others.size() == 1) return others.front();
      std::string all = content.empty() ? "" : fmt::format("[{}]|", content);
      return fmt::format("(?:{}{})", all, fmt::join(others, "|"));
    }
    bool empty() const { return content.empty() && others.empty(); }
  };

  // Reads from '[' to its ']' and returns an expression that matches one character.
  Result<std::string> take_class(int depth) {
    if (depth == kMaxClassDepth)
      return unsupported(fmt::format("sets nested deeper than {}", kMaxClassDepth));
    rest_.remove_prefix(1);
    const bool negated = take("^");
    std::vector<Union> operands(1);
    if (take("]")) operands.back().content += literal(']');  // a ']' at the beginning is literal
    while (!take("]")) {
      if (rest_.empty()) return broken("has a '[' without its ']'");
      if (take("&&")) {
        if (operands.back().empty()) return unsupported("an empty operand of '&&'");
        operands.emplace_back();
      } else {
        MF_TRY_STATUS(class_item(operands.back(), depth));
      }
    }
    if (operands.back().empty()) return unsupported("an empty set");
    if (operands.size() == 1 && operands[0].others.empty())
      return fmt::format("[{}{}]", negated ? "^" : "", operands[0].content);
    std::string all;
    for (std::size_t i = 1; i < operands.size(); ++i) all += fmt::format("(?={})", operands[i].expression());
    all += operands[0].expression();
    return negated ? fmt::format("(?:(?!{}){})", all, kAnyCharacter) : fmt::format("(?:{})", all);
  }

  Status class_item(Union& into, int depth) {
    if (at("[:")) return unsupported("'[:'");
    if (at("[")) {
      MF_TRY(std::string nested, take_class(depth + 1));
      into.others.push_back(std::move(nested));
      return {};
    }
    MF_TRY(const Escape first, class_character());
    if (first.kind == Escape::Kind::set) {
      into.content += first.text;
    } else if (first.kind == Escape::Kind::negated_set) {
      into.others.push_back(fmt::format("[^{}]", first.text));
    } else if (at("-") && rest_.size() > 1 && rest_[1] != ']') {
      rest_.remove_prefix(1);
      if (at("[") || at("&&")) return unsupported("a range that ends with a set");
      MF_TRY(const Escape last, class_character());
      if (last.kind != Escape::Kind::code) return unsupported("a range that ends with a set");
      if (last.code < first.code) return broken("has a range in descending order");
      into.content += fmt::format("{}-{}", literal(first.code), literal(last.code));
    } else {
      into.content += literal(first.code);
    }
    return {};
  }

  Result<Escape> class_character() {
    if (rest_.empty()) return broken("has a '[' without its ']'");
    if (at("\\")) return take_escape(true);
    return Escape{Escape::Kind::code, take_code()};
  }

  std::string_view rest_, pattern_, what_;
  std::string out_;
};

}  // namespace

Result<std::string> rewrite_regex(std::string_view pattern, std::string_view what) {
  return Rewriter(pattern, what).run();
}

std::string regex_of_literal(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    out += literal(point.value);
    at += point.bytes;
  }
  return out;
}

}  // namespace moeflux
