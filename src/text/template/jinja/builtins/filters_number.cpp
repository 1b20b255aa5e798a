// Filters that return numbers.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/template/jinja/binding.h"
#include "text/template/jinja/builtins/characters.h"
#include "text/template/jinja/builtins/filters.h"
#include "text/template/jinja/evaluation.h"
#include "text/template/jinja/operators.h"

namespace moeflux::jinja {
namespace {

// Parses a number as Python does: ignores surrounding whitespace and allows underscores between digits.
std::optional<std::string> number_text(std::string_view text) {
  while (!text.empty() && is_space(code_point_at(text, 0).value))
    text.remove_prefix(code_point_at(text, 0).bytes);
  while (!text.empty()) {
    const std::size_t last = previous_code_point(text, text.size());
    if (!is_space(code_point_at(text, last).value)) break;
    text = text.substr(0, last);
  }
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto is_digit_or_letter = [](char c) {
      return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
    };
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || i + 1 == text.size() || !is_digit_or_letter(text[i - 1]) ||
               !is_digit_or_letter(text[i + 1])) {
      return std::nullopt;
    }
  }
  return out;
}

std::optional<double> parse_real(std::string_view text) {
  const auto cleaned = number_text(text);
  if (!cleaned || cleaned->empty()) return std::nullopt;
  std::string_view digits = *cleaned;
  const bool is_negative = digits[0] == '-';
  if (digits[0] == '-' || digits[0] == '+') digits.remove_prefix(1);
  if (digits.empty() || digits[0] == '-' || digits[0] == '+') return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end != digits.data() + digits.size() || digits.find('(') != std::string_view::npos) return std::nullopt;
  if (error == std::errc::result_out_of_range) {
    // Underflow gives 0 and overflow infinity; the sign of the exponent distinguishes them.
    const std::size_t exponent = digits.find_first_of("eE");
    value = exponent != std::string_view::npos && digits.substr(exponent).find('-') != std::string_view::npos
                ? 0.0
                : HUGE_VAL;
  } else if (error != std::errc{}) {
    return std::nullopt;
  }
  return is_negative ? -value : value;
}

struct ParsedInteger {
  std::int64_t value = 0;
  bool is_integer = false;
  bool overflows = false;
};

ParsedInteger parse_integer(std::string_view text, int base) {
  ParsedInteger out;
  const auto cleaned = number_text(text);
  if (!cleaned || cleaned->empty()) return out;
  std::string digits = *cleaned;
  const bool is_negative = digits[0] == '-';
  if (digits[0] == '-' || digits[0] == '+') digits.erase(0, 1);
  const char prefix = digits.size() > 2 && digits[0] == '0' ? static_cast<char>(digits[1] | 0x20) : '\0';
  const int named = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 0;
  if (named != 0 && (base == named || base == 0)) {
    digits.erase(0, 2);
    base = named;
  }
  if (base == 0) base = 10;
  if (digits.empty() || digits[0] == '-') return out;
  if (is_negative) digits.insert(digits.begin(), '-');
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out.value, base);
  out.is_integer = error == std::errc{} && end == digits.data() + digits.size();
  out.overflows = error == std::errc::result_out_of_range && end == digits.data() + digits.size();
  return out;
}

bool is_all_data(const Value& value) {
  return value.is_string() ? !value.text().data.empty() : value.is_data();
}

Result<Value> truncated(double value, bool data) {
  if (std::isnan(value))
    return type_error("NaN has no integer value");  // Python's ValueError, handled by callers
  if (!(std::abs(value) < 9.2233720368547758e18))
    return Error(ErrorCode::unsupported, "an integer does not fit in 64 bits");
  return Value::integer(static_cast<std::int64_t>(value), data);
}

Result<Value> int_filter(Evaluation&, const Value& input, const Arguments& arguments) {
  MF_TRY(const Bound bound, bind("int", arguments, {"default", "base"}));
  const Value otherwise = bound[0].value_or(Value::integer(0));
  MF_TRY(const std::int64_t base, whole("int", bound[1].value_or(Value::integer(10))));
  if (input.is_undefined()) return undefined_error(input);
  const bool data = is_all_data(input);
  if (input.is_whole()) return Value::integer(input.as_integer(), data);
  if (input.is(Kind::real)) {
    if (std::isnan(input.as_real())) return otherwise;
    return truncated(input.as_real(), data);
  }
  if (!input.is_string()) return otherwise;
  if (base == 0 || (base >= 2 && base <= 36)) {
    const ParsedInteger parsed = parse_integer(input.bytes(), static_cast<int>(base));
    if (parsed.is_integer) return Value::integer(parsed.value, data);
    if (parsed.overflows) return Error(ErrorCode::unsupported, "an integer does not fit in 64 bits");
  }
  const std::optional<double> real = parse_real(input.bytes());
  if (!real || std::isnan(*real)) return otherwise;
  return truncated(*real, data);
}

Result<Value> float_filter(Evaluation&, const Value& input, const Arguments& arguments) {
  MF_TRY(const Bound bound, bind("float", arguments, {"default"}));
  const Value otherwise = bound[0].value_or(Value::real(0));
  if (input.is_undefined()) return undefined_error(input);
  if (input.is_number()) return Value::real(input.as_real(), input.is_data());
  if (!input.is_string()) return otherwise;
  const std::optional<double> real = parse_real(input.bytes());
  return real ? Value::real(*real, is_all_data(input)) : otherwise;
}

Result<Value> abs_filter(Evaluation&, const Value& input, const Arguments& arguments) {
  MF_TRY_STATUS(bind("abs", arguments, {}));
  if (input.is_undefined()) return undefined_error(input);
  if (!input.is_number())
    return type_error(fmt::format("abs() expects a number, not a '{}'", type_name(input)));
  if (input.is(Kind::real)) return Value::real(std::abs(input.as_real()), input.is_data());
  if (input.as_integer() < 0) return negative(input);
  return Value::integer(input.as_integer(), input.is_data());
}

// Rounds half to even in decimal, like round().
Result<Value> rounded(const Value& input, std::int64_t precision) {
  const bool data = input.is_data();
  if (input.is_whole()) {
    if (precision >= 0) return Value::integer(input.as_integer(), data);
    if (precision < -18) return Value::integer(0, data);
    std::int64_t unit = 1;
    for (std::int64_t i = precision; i < 0; ++i) unit *= 10;
    const std::int64_t value = input.as_integer();
    const std::int64_t rest = ((value % unit) + unit) % unit;
    std::int64_t down = 0;
    if (__builtin_sub_overflow(value, rest, &down))
      return Error(ErrorCode::unsupported, "a number does not fit in 64 bits");
    const bool up = rest * 2 > unit || (rest * 2 == unit && (down / unit) % 2 != 0);
    std::int64_t out = down;
    if (up && __builtin_add_overflow(down, unit, &out))
      return Error(ErrorCode::unsupported, "a number does not fit in 64 bits");
    return Value::integer(out, data);
  }
  const double value = input.as_real();
  if (!std::isfinite(value) || precision > 330) return input;
  if (precision < -330) return Value::real(std::copysign(0.0, value), data);
  if (precision < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-precision));
    return Value::real(std::nearbyint(value / unit) * unit, data);
  }
  const std::string digits = fmt::format("{:.{}f}", value, static_cast<int>(precision));
  double out = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), out);
  return Value::real(out, data);
}

Result<Value> round_filter(Evaluation&, const Value& input, const Arguments& arguments) {
  MF_TRY(const Bound bound, bind("round", arguments, {"precision", "method"}));
  MF_TRY(const std::int64_t precision, whole("round", bound[0].value_or(Value::integer(0))));
  std::string_view method = "common";
  if (bound[1]) {
    MF_TRY(method, text("round", *bound[1]));
  }
  if (method != "common" && method != "ceil" && method != "floor")
    return type_error("round(): expected the method common, ceil or floor");
  if (input.is_undefined()) return undefined_error(input);
  if (!input.is_number())
    return type_error(fmt::format("round() expects a number, not a '{}'", type_name(input)));
  if (method == "common") return rounded(input, precision);
  const double unit = std::pow(10.0, static_cast<double>(precision));
  const double scaled = input.as_real() * unit;
  if (!std::isfinite(scaled)) return type_error("round() is given a number that is too large");
  const double whole_part = method == "ceil" ? std::ceil(scaled) : std::floor(scaled);
  return Value::real((whole_part + 0.0) / unit, input.is_data());
}

}  // namespace

FilterFunction find_number_filter(std::string_view name) {
  static constexpr std::pair<std::string_view, FilterFunction> kFilters[] = {
      {"abs", abs_filter}, {"float", float_filter}, {"int", int_filter}, {"round", round_filter}};
  const auto* found = std::find_if(std::begin(kFilters), std::end(kFilters),
                                   [&](const auto& filter) { return filter.first == name; });
  return found == std::end(kFilters) ? nullptr : found->second;
}

}  // namespace moeflux::jinja
