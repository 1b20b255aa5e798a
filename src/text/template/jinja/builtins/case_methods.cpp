// String methods that change or test the case or class of characters, or pad.

#include <algorithm>

#include "text/template/jinja/binding.h"
#include "text/template/jinja/builtins/characters.h"
#include "text/template/jinja/builtins/methods.h"
#include "text/template/jinja/evaluation.h"

namespace moeflux::jinja {
namespace {

enum class Case { upper, lower, title, swapped };

void append_case(std::string& out, std::string_view text, std::size_t at, char32_t value, Case to) {
  const bool ends_word = value == 0x3A3 && sigma_ends_word(text, at);
  switch (to) {
    case Case::upper: return append_upper(out, value);
    case Case::lower: return append_lower(out, value, ends_word);
    case Case::title: return append_title(out, value);
    case Case::swapped:
      if (is_upper(value)) return append_lower(out, value, ends_word);
      return append_upper(out, value);
  }
}

// Changes the case of each character as `choose` decides.
template <class Choose>
Result<Value> mapped(Evaluation& evaluation, const Value& self, Choose choose) {
  const std::string_view bytes = self.bytes();
  MF_TRY_STATUS(evaluation.budget().work(bytes.size() * 4));
  TextBuilder out = evaluation.heap().builder();
  std::string character;
  for (std::size_t at = 0; at < bytes.size();) {
    const CodePoint point = code_point_at(bytes, at);
    character.clear();
    append_case(character, bytes, at, point.value, choose(point.value));
    out.add(character, self.text().is_data(at));
    at += point.bytes;
  }
  return evaluation.heap().string(std::move(out));
}

template <Case to>
Result<Value> case_method(Evaluation& evaluation, const Value& self, const Arguments& arguments) {
  MF_TRY_STATUS(bind("upper", arguments, {}));
  return mapped(evaluation, self, [](char32_t) { return to; });
}

Result<Value> capitalize_method(Evaluation& evaluation, const Value& self, const Arguments& arguments) {
  MF_TRY_STATUS(bind("capitalize", arguments, {}));
  bool first = true;
  return mapped(evaluation, self,
                [&](char32_t) { return std::exchange(first, false) ? Case::title : Case::lower; });
}

Result<Value> title_method(Evaluation& evaluation, const Value& self, const Arguments& arguments) {
  MF_TRY_STATUS(bind("title", arguments, {}));
  bool in_word = false;
  return mapped(evaluation, self, [&](char32_t value) {
    const Case to = in_word ? Case::lower : Case::title;
    in_word = is_cased(value);
    return to;
  });
}

bool is_space_character(char32_t value) { return is_space(value); }
bool is_alphanumeric(char32_t value) { return is_alphabetic(value) || is_digit(value); }

template <bool (*is_one)(char32_t)>
Result<Value> all_method(Evaluation& evaluation, const Value& self, const Arguments& arguments) {
  MF_TRY_STATUS(bind("isalpha", arguments, {}));
  const std::string_view bytes = self.bytes();
  MF_TRY_STATUS(evaluation.budget().work(bytes.size()));
  for (std::size_t at = 0; at < bytes.size();) {
    const CodePoint point = code_point_at(bytes, at);
    if (!is_one(point.value)) return Value::boolean(false);
    at += point.bytes;
  }
  return Value::boolean(!bytes.empty());
}

template <bool (*is_one)(char32_t)>
Result<Value> cased_method(Evaluation& evaluation, const Value& self, const Arguments& arguments) {
  MF_TRY_STATUS(bind("isupper", arguments, {}));
  const std::string_view bytes = self.bytes();
  MF_TRY_STATUS(evaluation.budget().work(bytes.size()));
  bool any = false;
  for (std::size_t at = 0; at < bytes.size();) {
    const CodePoint point = code_point_at(bytes, at);
    if (is_cased(point.value)) {
      if (!is_one(point.value)) return Value::boolean(false);
      any = true;
    }
    at += point.bytes;
  }
  return Value::boolean(any);
}

// Pads `self` with `left` and `right` fill characters.
Result<Value> padded(Evaluation& evaluation, const Value& self, std::uint64_t left, std::uint64_t right,
                     const MarkedText& filling) {
  const std::uint64_t limit = evaluation.budget().limits().string_bytes;
  if (left > limit || right > limit) return evaluation.budget().too_long();
  TextBuilder out = evaluation.heap().builder();
  for (std::uint64_t i = 0; i < left; ++i) out.add(filling);
  out.add(self.text());
  for (std::uint64_t i = 0; i < right; ++i) out.add(filling);
  return evaluation.heap().string(std::move(out));
}

enum class Side { left, right, both };

template <Side side>
Result<Value> justify_method(Evaluation& evaluation, const Value& self, const Arguments& arguments) {
  MF_TRY(const Bound bound, bind("center", arguments, {"width", "fillchar"}, 1));
  MF_TRY(const std::int64_t width, whole("center", *bound[0]));
  MarkedText filling = MarkedText::from_template(" ");
  if (bound[1]) {
    MF_TRY_STATUS(text("center", *bound[1]));
    if (bound[1]->string().length != 1) return type_error("the fill must be exactly one character");
    filling = bound[1]->text();
  }
  const auto length = static_cast<std::int64_t>(self.string().length);
  if (width <= length) return self;
  const auto missing = static_cast<std::uint64_t>(width - length);
  if (side == Side::left) return padded(evaluation, self, 0, missing, filling);
  if (side == Side::right) return padded(evaluation, self, missing, 0, filling);
  // Python puts the odd fill character to the left if the text is even and the width is odd.
  const std::uint64_t left = missing / 2 + (missing & static_cast<std::uint64_t>(width) & 1);
  return padded(evaluation, self, left, missing - left, filling);
}

Result<Value> zfill_method(Evaluation& evaluation, const Value& self, const Arguments& arguments) {
  MF_TRY(const Bound bound, bind("zfill", arguments, {"width"}, 1));
  MF_TRY(const std::int64_t width, whole("zfill", *bound[0]));
  const auto length = static_cast<std::int64_t>(self.string().length);
  if (width <= length) return self;
  const auto missing = static_cast<std::uint64_t>(width - length);
  if (missing > evaluation.budget().limits().string_bytes) return evaluation.budget().too_long();
  const bool has_sign = self.bytes().starts_with('-') || self.bytes().starts_with('+');
  TextBuilder out = evaluation.heap().builder();
  out.add(self.text(), 0, has_sign ? 1 : 0);
  out.add(std::string(missing, '0'));
  out.add(self.text(), has_sign ? 1 : 0, self.bytes().size());
  return evaluation.heap().string(std::move(out));
}

}  // namespace

StringMethod find_case_method(std::string_view name) {
  static constexpr std::pair<std::string_view, StringMethod> kMethods[] = {
      {"capitalize", capitalize_method},        {"center", justify_method<Side::both>},
      {"isalnum", all_method<is_alphanumeric>}, {"isalpha", all_method<is_alphabetic>},
      {"isdecimal", all_method<is_decimal>},    {"isdigit", all_method<is_digit>},
      {"islower", cased_method<is_lower>},      {"isspace", all_method<is_space_character>},
      {"isupper", cased_method<is_upper>},      {"ljust", justify_method<Side::left>},
      {"lower", case_method<Case::lower>},      {"rjust", justify_method<Side::right>},
      {"swapcase", case_method<Case::swapped>}, {"title", title_method},
      {"upper", case_method<Case::upper>},      {"zfill", zfill_method},
  };
  const auto* found = std::find_if(std::begin(kMethods), std::end(kMethods),
                                   [&](const auto& method) { return method.first == name; });
  return found == std::end(kMethods) ? nullptr : found->second;
}

}  // namespace moeflux::jinja
