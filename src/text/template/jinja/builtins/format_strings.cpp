// The operator % and str.format().

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/printable.h"
#include "text/template/jinja/builtins/characters.h"
#include "text/template/jinja/builtins/formatting.h"
#include "text/template/jinja/evaluation.h"

namespace moeflux::jinja {
namespace {

constexpr std::uint32_t kWidest = 1u << 20;

// Python's format specification of one value. Specifications of % are translated into it.
struct Specification {
  std::string fill = " ";
  char align = '\0';  // '<', '>', '=' or '^'; '\0': the default of the type
  char sign = '-';
  bool alternate = false;
  char grouping = '\0';
  std::uint32_t width = 0;
  std::optional<std::uint32_t> precision;
  char type = '\0';
};

bool is_digit_character(char c) { return c >= '0' && c <= '9'; }

Result<std::uint32_t> number(std::string_view text, std::size_t& at) {
  std::uint32_t out = 0;
  while (at < text.size() && is_digit_character(text[at])) {
    out = out * 10 + static_cast<std::uint32_t>(text[at++] - '0');
    if (out > kWidest) return Error(ErrorCode::unsupported, "a format asks for too many characters");
  }
  return out;
}

Result<Specification> parse_specification(std::string_view text) {
  Specification out;
  std::size_t at = 0;
  const auto is_align = [&](std::size_t i) {
    return i < text.size() && std::string_view("<>=^").find(text[i]) != text.npos;
  };
  if (!text.empty()) {
    const std::size_t first = code_point_at(text, 0).bytes;
    if (is_align(first)) {
      out.fill = text.substr(0, first);
      out.align = text[first];
      at = first + 1;
    } else if (is_align(0)) {
      out.align = text[at++];
    }
  }
  if (at < text.size() && std::string_view("+- ").find(text[at]) != std::string_view::npos)
    out.sign = text[at++];
  if (at < text.size() && text[at] == '#') out.alternate = ++at > 0;
  if (at < text.size() && text[at] == '0') {
    ++at;
    if (out.align == '\0') {
      out.fill = "0";
      out.align = '=';
    }
  }
  MF_TRY(out.width, number(text, at));
  if (at < text.size() && (text[at] == ',' || text[at] == '_')) out.grouping = text[at++];
  if (at < text.size() && text[at] == '.') {
    const std::size_t digits = ++at;
    MF_TRY(const std::uint32_t precision, number(text, at));
    if (at == digits) return type_error("a format lacks its precision");
    out.precision = precision;
  }
  if (at < text.size()) out.type = text[at++];
  if (at != text.size()) return type_error(fmt::format("'{}' is not a format", printable(text, 40)));
  return out;
}

std::string grouped(const std::string& digits, char separator) {
  const std::size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string out;
  for (std::size_t i = 0; i < end; ++i) {
    if (i > 0 && (end - i) % 3 == 0) out += separator;
    out += digits[i];
  }
  return out + digits.substr(end);
}

// The digits of a number, without its sign, in the type of the specification.
Result<std::string> digits_of(const Value& value, const Specification& how) {
  const std::uint64_t size =
      value.is_whole() ? (value.as_integer() < 0 ? 0 - static_cast<std::uint64_t>(value.as_integer())
                                                 : static_cast<std::uint64_t>(value.as_integer()))
                       : 0;
  if (value.is_whole()) {
    switch (how.type) {
      case '\0':
      case 'd':
      case 'n': return fmt::format("{}", size);
      case 'x': return how.alternate ? fmt::format("{:#x}", size) : fmt::format("{:x}", size);
      case 'X': return how.alternate ? fmt::format("{:#X}", size) : fmt::format("{:X}", size);
      case 'o': return how.alternate ? fmt::format("0o{:o}", size) : fmt::format("{:o}", size);
      case 'b': return how.alternate ? fmt::format("{:#b}", size) : fmt::format("{:b}", size);
      default: break;
    }
  }
  const double magnitude = std::abs(value.as_real());
  const int precision = static_cast<int>(std::min(how.precision.value_or(6), 400u));
  switch (how.type) {
    case '\0':
      if (!how.precision) return python_float(magnitude);
      return fmt::format("{:.{}g}", magnitude, precision);
    case 'f':
    case 'F': return fmt::format("{:.{}f}", magnitude, precision);
    case 'e': return fmt::format("{:.{}e}", magnitude, precision);
    case 'E': return fmt::format("{:.{}E}", magnitude, precision);
    case 'g':
    case 'n': return fmt::format("{:.{}g}", magnitude, std::max(precision, 1));
    case 'G': return fmt::format("{:.{}G}", magnitude, std::max(precision, 1));
    case '%': return fmt::format("{:.{}f}%", magnitude * 100, precision);
    default: break;
  }
  return type_error(fmt::format("'{}' is not a format of a '{}'", printable(std::string_view(&how.type, 1)),
                                type_name(value)));
}

void add_fill(TextBuilder& out, const std::string& fill, std::size_t count) {
  for (std::size_t i = 0; i < count && !out.over(); ++i) out.add(fill);
}

Status add_number(TextBuilder& out, const Value& value, const Specification& how) {
  if (how.type == 'c') return Error(ErrorCode::unsupported, "the format 'c' is not supported");
  MF_TRY(std::string digits, digits_of(value, how));
  if (how.grouping != '\0') digits = grouped(digits, how.grouping);
  const bool is_negative = value.is_whole() ? value.as_integer() < 0 : std::signbit(value.as_real());
  const std::string sign = is_negative ? "-" : how.sign == '-' ? "" : std::string(1, how.sign);
  const std::size_t taken = sign.size() + digits.size();
  const std::size_t missing = how.width > taken ? how.width - taken : 0;
  const char align = how.align == '\0' ? '>' : how.align;
  const std::size_t left = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  add_fill(out, how.fill, left);
  out.add(sign, value.is_data());
  if (align == '=') add_fill(out, how.fill, missing);
  out.add(digits, value.is_data());
  if (align == '<' || align == '^') add_fill(out, how.fill, missing - left);
  return {};
}

Status add_text(TextBuilder& out, const MarkedText& text, const Specification& how) {
  if (how.align == '=') return type_error("'=' does not align a string");
  std::size_t end = text.bytes.size();
  if (how.precision) end = byte_of_code_point(text.bytes, *how.precision);
  const std::size_t length = count_code_points(std::string_view(text.bytes).substr(0, end));
  const std::size_t missing = how.width > length ? how.width - length : 0;
  const std::size_t left = how.align == '>' ? missing : how.align == '^' ? missing / 2 : 0;
  add_fill(out, how.fill, left);
  out.add(text, 0, end);
  add_fill(out, how.fill, missing - left);
  return {};
}

// The operator %.
class Percent {
 public:
  Percent(const Value& format, const Value& values, const Heap& heap)
      : format_(format), text_(format.bytes()), values_(values), heap_(heap), out_(heap.builder()) {}

  Result<Value> run() {
    MF_TRY_STATUS(heap_.budget().work(text_.size()));
    while (at_ < text_.size()) {
      const std::size_t percent = std::min(text_.find('%', at_), text_.size());
      out_.add(format_.text(), at_, percent);
      at_ = percent;
      if (at_ < text_.size()) MF_TRY_STATUS(conversion());
      if (out_.over()) return heap_.budget().too_long();
    }
    const bool is_tuple = values_.is_sequence(SequenceKind::tuple);
    const bool all_used = is_tuple ? used_ == values_.sequence().items.size() : used_ > 0;
    const bool may_be_unused = values_.is_dict() || values_.is_sequence(SequenceKind::list) ||
                               values_.is_sequence(SequenceKind::range) || values_.is_undefined();
    if (!all_used && !(may_be_unused && !is_tuple))
      return type_error("the format before '%' does not use all values");
    return heap_.string(std::move(out_));
  }

 private:
  Result<Value> next_value() {
    if (values_.is_sequence(SequenceKind::tuple)) {
      if (used_ < values_.sequence().items.size()) return values_.sequence().items[used_++];
    } else if (used_ == 0) {
      ++used_;
      return values_;
    }
    return type_error("there are not enough values for the format before '%'");
  }

  Result<std::optional<Value>> named_value() {
    if (at_ >= text_.size() || text_[at_] != '(') return std::optional<Value>();
    const std::size_t end = text_.find(')', at_);
    if (end == std::string_view::npos || !values_.is_dict())
      return type_error("'%(name)' expects a dict of values");
    const Value* found = values_.dict().find(text_.substr(at_ + 1, end - at_ - 1));
    if (found == nullptr)
      return type_error(
          fmt::format("no value '{}' for a format", printable(text_.substr(at_ + 1, end - at_ - 1), 60)));
    at_ = end + 1;
    ++used_;
    return std::optional<Value>(*found);
  }

  Result<std::uint32_t> width_or_star() {
    if (at_ >= text_.size() || text_[at_] != '*') return number(text_, at_);
    ++at_;
    MF_TRY(const Value value, next_value());
    if (!value.is_whole()) return type_error("'*' in a format expects a whole number");
    if (value.as_integer() < 0 || value.as_integer() > kWidest)
      return Error(ErrorCode::unsupported, "a format asks for too many characters");
    return static_cast<std::uint32_t>(value.as_integer());
  }

  Status conversion() {
    ++at_;
    MF_TRY(std::optional<Value> value, named_value());
    Specification how;
    how.align = '>';
    for (; at_ < text_.size() && std::string_view("-+ #0").find(text_[at_]) != std::string_view::npos;
         ++at_) {
      const char flag = text_[at_];
      if (flag == '-') how.align = '<';
      if (flag == '+' || (flag == ' ' && how.sign != '+')) how.sign = flag;
      if (flag == '#') how.alternate = true;
      if (flag == '0' && how.align != '<') how.align = '=';
    }
    MF_TRY(how.width, width_or_star());
    if (at_ < text_.size() && text_[at_] == '.') {
      ++at_;
      MF_TRY(how.precision, width_or_star());
    }
    if (at_ >= text_.size()) return type_error("a format ends after '%'");
    how.type = text_[at_++];
    if (how.type == '%') {
      out_.add("%");
      return {};
    }
    if (!value) {
      MF_TRY(value, next_value());
    }
    return convert(*value, how);
  }

  Status convert(const Value& value, Specification how) {
    if (how.type == 's' || how.type == 'r' || how.type == 'a') {
      TextBuilder text = heap_.builder();
      if (how.type == 's')
        MF_TRY_STATUS(add_str(text, value, heap_.budget()));
      else
        MF_TRY_STATUS(add_repr(text, value, heap_.budget()));
      if (text.over()) return heap_.budget().too_long();
      if (how.align == '=') how.align = '>';
      return add_text(out_, text.take(), how);
    }
    if (value.is_undefined()) return undefined_error(value);
    if (!value.is_number()) {
      return type_error(fmt::format("'%{}' expects a number, not a '{}'",
                                    printable(std::string_view(&how.type, 1)), type_name(value)));
    }
    if (how.align == '=') how.fill = "0";
    if (how.type == 'd' || how.type == 'i' || how.type == 'u') {
      how.type = 'd';
      const double whole = std::trunc(value.as_real());
      if (!value.is_whole() && !(std::abs(whole) < 9.2e18))
        return type_error("'%d' expects a number that fits in 64 bits");
      const Value integer =
          value.is_whole() ? value : Value::integer(static_cast<std::int64_t>(whole), value.is_data());
      return add_number(out_, integer, how);
    }
    if (std::string_view("xXo").find(how.type) != std::string_view::npos) {
      if (!value.is_whole()) return type_error("'%x' expects a whole number");
      return add_number(out_, value, how);
    }
    if (std::string_view("eEfFgG").find(how.type) == std::string_view::npos)
      return type_error(fmt::format("'%{}' is not a format", printable(std::string_view(&how.type, 1))));
    return add_number(out_, Value::real(value.as_real(), value.is_data()), how);
  }

  const Value& format_;
  const std::string_view text_;
  const Value& values_;
  const Heap& heap_;
  TextBuilder out_;
  std::size_t at_ = 0;
  std::size_t used_ = 0;
};

// str.format().
class Brace {
 public:
  Brace(Evaluation& evaluation, const Value& format, const Arguments& arguments)
      : evaluation_(evaluation),
        format_(format),
        text_(format.bytes()),
        arguments_(arguments),
        out_(evaluation.heap().builder()) {}

  Result<Value> run() {
    MF_TRY_STATUS(evaluation_.budget().work(text_.size()));
    while (at_ < text_.size()) {
      const std::size_t brace = std::min(text_.find_first_of("{}", at_), text_.size());
      out_.add(format_.text(), at_, brace);
      at_ = brace;
      if (at_ >= text_.size()) break;
      if (at_ + 1 < text_.size() && text_[at_ + 1] == text_[at_]) {
        out_.add(format_.text(), at_, at_ + 1);
        at_ += 2;
      } else if (text_[at_] == '}') {
        return type_error("a single '}' in a format");
      } else {
        MF_TRY_STATUS(field());
      }
      if (out_.over()) return evaluation_.budget().too_long();
    }
    return evaluation_.heap().string(std::move(out_));
  }

 private:
  Status field() {
    const std::size_t end = text_.find_first_of("{}", at_ + 1);
    if (end == std::string_view::npos) return type_error("a '{' in a format is not closed");
    if (text_[end] == '{') return Error(ErrorCode::unsupported, "a nested format is not supported");
    std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    std::string_view specification;
    if (const std::size_t colon = inside.find(':'); colon != std::string_view::npos) {
      specification = inside.substr(colon + 1);
      inside = inside.substr(0, colon);
    }
    char conversion = '\0';
    if (const std::size_t mark = inside.find('!'); mark != std::string_view::npos) {
      if (inside.size() != mark + 2) return type_error("a conversion in a format is one character");
      conversion = inside[mark + 1];
      inside = inside.substr(0, mark);
    }
    MF_TRY(Value value, lookup(inside));
    if (conversion == 's' || conversion == 'r' || conversion == 'a') {
      TextBuilder shown = evaluation_.heap().builder();
      if (conversion == 's')
        MF_TRY_STATUS(add_str(shown, value, evaluation_.budget()));
      else
        MF_TRY_STATUS(add_repr(shown, value, evaluation_.budget()));
      MF_TRY(value, evaluation_.heap().string(std::move(shown)));
    } else if (conversion != '\0') {
      return type_error("a conversion in a format is 's', 'r' or 'a'");
    }
    return add_formatted(out_, value, specification, evaluation_.budget());
  }

  // The value of a field, such as "", "0", "name", "name.attribute" or "0[key]".
  Result<Value> lookup(std::string_view path) {
    const std::size_t end = std::min(path.find_first_of(".["), path.size());
    MF_TRY(Value value, argument(path.substr(0, end)));
    path = path.substr(end);
    while (!path.empty()) {
      MF_TRY_STATUS(evaluation_.budget().step());
      if (path[0] == '.') {
        const std::size_t stop = std::min(path.find_first_of(".[", 1), path.size());
        MF_TRY(value, evaluation_.attribute(value, path.substr(1, stop - 1)));
        path = path.substr(stop);
        continue;
      }
      const std::size_t close = path.find(']');
      if (path[0] != '[' || close == std::string_view::npos)
        return type_error("a field of a format has no ']'");
      const std::string_view key = path.substr(1, close - 1);
      const bool is_index =
          !key.empty() && key.size() < 10 && std::all_of(key.begin(), key.end(), is_digit_character);
      Value index;
      if (is_index) {
        std::size_t at = 0;
        MF_TRY(const std::uint32_t place, number(key, at));
        index = Value::integer(place);
      } else {
        MF_TRY(index, evaluation_.heap().string(key));
      }
      MF_TRY(value, evaluation_.item(value, index));
      path = path.substr(close + 1);
    }
    return value;
  }

  Result<Value> argument(std::string_view name) {
    const bool is_number = std::all_of(name.begin(), name.end(), is_digit_character);
    if (is_number) {
      std::size_t at = 0;
      std::size_t index = next_;
      if (name.empty()) {
        ++next_;
      } else {
        MF_TRY(index, number(name, at));
      }
      if (name.empty() ? numbered_ : next_ > 0)
        return type_error("a format numbers all of its fields or none");
      numbered_ |= !name.empty();
      if (index >= arguments_.positional.size())
        return type_error("there are not enough values for the format");
      return arguments_.positional[index];
    }
    for (const auto& [key, value] : arguments_.named)
      if (key == name) return value;
    return type_error(fmt::format("no value '{}' for a format", printable(name, 60)));
  }

  Evaluation& evaluation_;
  const Value& format_;
  const std::string_view text_;
  const Arguments& arguments_;
  TextBuilder out_;
  std::size_t at_ = 0;
  std::size_t next_ = 0;
  bool numbered_ = false;
};

}  // namespace

Status add_formatted(TextBuilder& out, const Value& value, std::string_view specification, Budget& budget) {
  if (specification.empty()) return add_str(out, value, budget);
  MF_TRY(Specification how, parse_specification(specification));
  if (value.is_string()) {
    if (how.type != '\0' && how.type != 's') return type_error("a string has no format but 's'");
    return add_text(out, value.text(), how);
  }
  if (!value.is_number())
    return type_error(fmt::format("a '{}' takes no format specification", type_name(value)));
  if (value.is(Kind::boolean) && how.type == '\0')
    return add_number(out, Value::integer(value.as_integer(), value.is_data()), how);
  return add_number(out, value, how);
}

Result<Value> percent_format(const Value& format, const Value& values, const Heap& heap) {
  return Percent(format, values, heap).run();
}

Result<Value> brace_format(Evaluation& evaluation, const Value& format, const Arguments& arguments) {
  return Brace(evaluation, format, arguments).run();
}

}  // namespace moeflux::jinja
