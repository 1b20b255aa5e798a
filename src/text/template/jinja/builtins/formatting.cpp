#include "text/template/jinja/builtins/formatting.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/template/jinja/builtins/characters.h"

namespace moeflux::jinja {
namespace {

// More than the nesting of values, because a namespace may contain itself.
constexpr std::uint32_t kDeepestShown = 200;

// Adds [begin, end) of `text`, each character as `escaped` returns it. Unescaped runs are added in one piece.
template <class Escape>
void add_escaped(TextBuilder& out, const MarkedText& text, Escape escape) {
  std::size_t plain = 0;
  std::string escaped;
  for (std::size_t at = 0; at < text.bytes.size();) {
    const CodePoint point = code_point_at(text.bytes, at);
    escaped.clear();
    escape(point.value, escaped);
    if (!escaped.empty()) {
      out.add(text, plain, at);
      out.add(escaped, text.is_data(at));
      plain = at + point.bytes;
    }
    at += point.bytes;
  }
  out.add(text, plain, text.bytes.size());
}

void add_quoted(TextBuilder& out, const MarkedText& text, bool data) {
  const bool has_single = text.bytes.find('\'') != std::string::npos;
  const bool has_double = text.bytes.find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out.add(std::string_view(&quote, 1), data);
  add_escaped(out, text, [&](char32_t value, std::string& escaped) {
    if (value == static_cast<char32_t>(quote) || value == U'\\') {
      escaped = {'\\', static_cast<char>(value)};
    } else if (value == U'\n') {
      escaped = "\\n";
    } else if (value == U'\r') {
      escaped = "\\r";
    } else if (value == U'\t') {
      escaped = "\\t";
    } else if (!is_printable(value)) {
      const auto number = static_cast<std::uint32_t>(value);
      escaped = value < 0x100     ? fmt::format("\\x{:02x}", number)
                : value < 0x10000 ? fmt::format("\\u{:04x}", number)
                                  : fmt::format("\\U{:08x}", number);
    }
  });
  out.add(std::string_view(&quote, 1), data);
}

class Writer {
 public:
  Writer(TextBuilder& out, Budget& budget) : out_(out), budget_(budget) {}

  // `inside`: the surrounding container is data.
  Status add(const Value& value, bool quoted, bool inside, std::uint32_t depth) {
    if (depth > kDeepestShown) return Error(ErrorCode::unsupported, "a value nests too deeply to be shown");
    MF_TRY_STATUS(budget_.work(sizeof(Value)));
    if (out_.over()) return budget_.too_long();
    const bool data = inside || value.is_data();
    switch (value.kind()) {
      case Kind::undefined: out_.add(quoted ? "Undefined" : "", data); return {};
      case Kind::none: out_.add("None", data); return {};
      case Kind::boolean: out_.add(value.as_boolean() ? "True" : "False", data); return {};
      case Kind::integer: out_.add(fmt::format("{}", value.as_integer()), data); return {};
      case Kind::real: out_.add(python_float(value.as_real()), data); return {};
      case Kind::string: return add_string(value, quoted, inside);
      case Kind::sequence: return add_sequence(value, data, depth);
      case Kind::dict: return add_dict(value, data, depth);
      case Kind::name_space: return add_namespace(value, depth);
      case Kind::loop:
        out_.add(fmt::format("<LoopContext {}/{}>", value.loop().at + 1, value.loop().items.size()));
        return {};
      case Kind::callable: return add_callable(value);
    }
    return {};
  }

 private:
  Status add_string(const Value& value, bool quoted, bool data) {
    MF_TRY_STATUS(budget_.work(value.bytes().size()));
    if (quoted)
      add_quoted(out_, value.text(), data);
    else
      out_.add(value.text());
    return {};
  }

  Status add_sequence(const Value& value, bool data, std::uint32_t depth) {
    const SequenceObject& sequence = value.sequence();
    if (sequence.kind == SequenceKind::range) {
      const std::string stride = sequence.stride == 1 ? "" : fmt::format(", {}", sequence.stride);
      out_.add(fmt::format("range({}, {}{})", sequence.start, sequence.stop, stride));
      return {};
    }
    if (sequence.kind == SequenceKind::generator) {
      out_.add("<generator object>");
      return {};
    }
    const bool is_view = sequence.kind >= SequenceKind::keys;
    const bool is_tuple = sequence.kind == SequenceKind::tuple;
    if (is_view) out_.add(fmt::format("{}(", type_name(value)));
    out_.add(is_tuple ? "(" : "[", data);
    for (std::size_t i = 0; i < sequence.items.size(); ++i) {
      if (i > 0) out_.add(", ", data);
      MF_TRY_STATUS(add(sequence.items[i], true, data, depth + 1));
    }
    if (is_tuple && sequence.items.size() == 1) out_.add(",", data);
    out_.add(is_tuple ? ")" : "]", data);
    if (is_view) out_.add(")");
    return {};
  }

  Status add_dict(const Value& value, bool data, std::uint32_t depth) {
    out_.add("{", data);
    bool first = true;
    for (const auto& [key, entry] : value.dict().entries) {
      if (!first) out_.add(", ", data);
      first = false;
      MF_TRY_STATUS(add(key, true, data, depth + 1));
      out_.add(": ", data);
      MF_TRY_STATUS(add(entry, true, data, depth + 1));
    }
    out_.add("}", data);
    return {};
  }

  Status add_namespace(const Value& value, std::uint32_t depth) {
    out_.add("<Namespace {");
    bool first = true;
    for (const auto& [name, entry] : value.name_space().entries) {
      if (!first) out_.add(", ");
      first = false;
      add_quoted(out_, MarkedText::from_template(name), false);
      out_.add(": ");
      MF_TRY_STATUS(add(entry, true, false, depth + 1));
    }
    out_.add("}>");
    return {};
  }

  Status add_callable(const Value& value) {
    const CallableObject& callable = value.callable();
    const bool is_macro = callable.type == CallableObject::Type::macro;
    out_.add(fmt::format("<{} '{}'>", is_macro ? "Macro" : "function", callable.name));
    return {};
  }

  TextBuilder& out_;
  Budget& budget_;
};

}  // namespace

std::string python_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  const std::size_t e = text.find('e');
  int exponent = 0;
  const char* digits_of_exponent = text.data() + e + (text[e + 1] == '+' ? 2 : 1);
  std::from_chars(digits_of_exponent, text.data() + text.size(), exponent);
  const bool is_negative = text[0] == '-';
  std::string digits;
  for (const char c : text.substr(0, e))
    if (c >= '0' && c <= '9') digits += c;
  std::string out = is_negative ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (digits.size() > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() < whole) digits.append(whole - digits.size(), '0');
  return out + digits.substr(0, whole) + "." + (digits.size() > whole ? digits.substr(whole) : "0");
}

Status add_str(TextBuilder& out, const Value& value, Budget& budget) {
  return Writer(out, budget).add(value, false, false, 0);
}

Status add_repr(TextBuilder& out, const Value& value, Budget& budget) {
  return Writer(out, budget).add(value, true, false, 0);
}

Result<Value> str(const Value& value, const Heap& heap) {
  if (value.is_string()) return value;
  TextBuilder out = heap.builder();
  MF_TRY_STATUS(add_str(out, value, heap.budget()));
  return heap.string(std::move(out));
}

namespace {

class JsonWriter {
 public:
  JsonWriter(TextBuilder& out, const JsonStyle& style, Budget& budget)
      : out_(out), style_(style), budget_(budget) {}

  Status add(const Value& value, bool inside, std::uint32_t level) {
    MF_TRY_STATUS(budget_.work(sizeof(Value)));
    if (out_.over()) return budget_.too_long();
    const bool data = inside || value.is_data();
    switch (value.kind()) {
      case Kind::string:
        MF_TRY_STATUS(budget_.work(value.bytes().size()));
        add_string(value.text(), data);
        return {};
      case Kind::sequence:
        if (value.sequence().kind == SequenceKind::list || value.sequence().kind == SequenceKind::tuple)
          return add_array(value.sequence(), data, level);
        break;
      case Kind::dict: return add_object(value.dict(), data, level);
      case Kind::none:
      case Kind::boolean:
      case Kind::integer:
      case Kind::real: out_.add(scalar(value), data); return {};
      default: break;
    }
    return type_error(fmt::format("a '{}' has no form in JSON", type_name(value)));
  }

 private:
  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is(Kind::boolean)) return value.as_boolean() ? "true" : "false";
    if (value.is(Kind::integer)) return fmt::format("{}", value.as_integer());
    if (std::isnan(value.as_real())) return "NaN";
    if (std::isinf(value.as_real())) return value.as_real() < 0 ? "-Infinity" : "Infinity";
    return python_float(value.as_real());
  }

  void add_string(const MarkedText& text, bool data) {
    out_.add("\"", data);
    add_escaped(out_, text, [&](char32_t value, std::string& escaped) {
      switch (value) {
        case U'"': escaped = "\\\""; return;
        case U'\\': escaped = "\\\\"; return;
        case U'\n': escaped = "\\n"; return;
        case U'\r': escaped = "\\r"; return;
        case U'\t': escaped = "\\t"; return;
        case U'\b': escaped = "\\b"; return;
        case U'\f': escaped = "\\f"; return;
        default: break;
      }
      const auto number = static_cast<std::uint32_t>(value);
      if (value < 0x20 || (style_.ensure_ascii && value > 0x7E && value < 0x10000)) {
        escaped = fmt::format("\\u{:04x}", number);
      } else if (style_.ensure_ascii && value >= 0x10000) {
        const std::uint32_t rest = number - 0x10000;
        escaped = fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
      }
    });
    out_.add("\"", data);
  }

  void new_line(std::uint32_t level, bool data) {
    if (!style_.indent) return;
    out_.add("\n", data);
    for (std::uint32_t i = 0; i < level; ++i) out_.add(*style_.indent, data);
  }

  Status add_array(const SequenceObject& sequence, bool data, std::uint32_t level) {
    if (sequence.items.empty()) {
      out_.add("[]", data);
      return {};
    }
    out_.add("[", data);
    for (std::size_t i = 0; i < sequence.items.size(); ++i) {
      if (i > 0) out_.add(style_.item_separator, data);
      new_line(level + 1, data);
      MF_TRY_STATUS(add(sequence.items[i], data, level + 1));
    }
    new_line(level, data);
    out_.add("]", data);
    return {};
  }

  Result<std::vector<const std::pair<Value, Value>*>> sorted_entries(const DictObject& dict) {
    std::vector<const std::pair<Value, Value>*> out;
    for (const auto& entry : dict.entries) {
      if (!entry.first.is_string() && style_.sort_keys && !dict.entries.front().first.is_number())
        return type_error("keys of several types have no order");
      out.push_back(&entry);
    }
    if (!style_.sort_keys) return out;
    MF_TRY_STATUS(budget_.work(out.size() * 64));
    const bool by_text = !out.empty() && out.front()->first.is_string();
    for (const auto* entry : out)
      if (entry->first.is_string() != by_text) return type_error("keys of several types have no order");
    std::stable_sort(out.begin(), out.end(), [&](const auto* a, const auto* b) {
      return by_text ? a->first.bytes() < b->first.bytes() : a->first.as_real() < b->first.as_real();
    });
    return out;
  }

  Status add_object(const DictObject& dict, bool data, std::uint32_t level) {
    if (dict.entries.empty()) {
      out_.add("{}", data);
      return {};
    }
    MF_TRY(const auto entries, sorted_entries(dict));
    out_.add("{", data);
    bool first = true;
    for (const auto* entry : entries) {
      if (!first) out_.add(style_.item_separator, data);
      first = false;
      new_line(level + 1, data);
      if (entry->first.is_string())
        add_string(entry->first.text(), data);
      else
        out_.add(fmt::format("\"{}\"", scalar(entry->first)), data);
      out_.add(style_.key_separator, data);
      MF_TRY_STATUS(add(entry->second, data, level + 1));
    }
    new_line(level, data);
    out_.add("}", data);
    return {};
  }

  TextBuilder& out_;
  const JsonStyle& style_;
  Budget& budget_;
};

}  // namespace

Result<Value> json_dump(const Value& value, const JsonStyle& style, const Heap& heap) {
  TextBuilder out = heap.builder();
  MF_TRY_STATUS(JsonWriter(out, style, heap.budget()).add(value, false, 0));
  return heap.string(std::move(out));
}

}  // namespace moeflux::jinja
