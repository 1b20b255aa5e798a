#include "base/sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>

#include "base/arithmetic.h"

namespace moeflux {
namespace {

Error refuse(std::string_view text, std::string_view problem) {
  return Error(ErrorCode::invalid_argument,
               fmt::format("size '{}': {}; expected a number and optionally K, M, G or T (powers of 1024), "
                           "as in 4096, 64K or 1.5G",
                           text, problem));
}

// Removes the leading digits from `text` and returns them.
std::string_view take_digits(std::string_view& text) {
  const std::size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string_view digits = text.substr(0, end);
  text.remove_prefix(end);
  return digits;
}

// "" and "b" are 1; "k", "kb" and "kib" are 1024; and so on.
std::optional<std::uint64_t> unit_of(std::string_view suffix) {
  std::string lower(suffix);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (lower.empty() || lower == "b") return 1;
  const std::string_view tail = std::string_view(lower).substr(1);
  if (!tail.empty() && tail != "b" && tail != "ib") return std::nullopt;
  switch (lower.front()) {
    case 'k': return kKiB;
    case 'm': return kMiB;
    case 'g': return kGiB;
    case 't': return kTiB;
    default: return std::nullopt;
  }
}

// floor(unit * 0.digits) for any number of digits, computed from the last digit to the first with a division
// by ten per digit. Rounding down at each step rounds the result down, because floor((n + floor(y)) / m)
// equals floor((n + y) / m) for integers n and m.
std::uint64_t fraction_of(std::uint64_t unit, std::string_view digits) {
  std::uint64_t part = 0;
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit) {
    part = (static_cast<std::uint64_t>(*digit - '0') * unit + part) / 10;
  }
  return part;
}

// value / step, rounded to nearest, halves up. Requires: `step` is even.
std::uint64_t rounded(std::uint64_t value, std::uint64_t step) {
  return value / step + (value % step >= step / 2 ? 1 : 0);
}

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
  if (text.empty()) return refuse(text, "is empty");
  if (text.front() == '-') return refuse(text, "is negative");

  std::string_view rest = text;
  const std::string_view whole_digits = take_digits(rest);
  if (whole_digits.empty()) return refuse(text, "does not start with a digit");
  std::string_view fraction_digits;
  const bool has_point = !rest.empty() && rest.front() == '.';
  if (has_point) {
    rest.remove_prefix(1);
    fraction_digits = take_digits(rest);
    if (fraction_digits.empty()) return refuse(text, "has no digit after the point");
  }
  const std::optional<std::uint64_t> unit = unit_of(rest);
  if (!unit) return refuse(text, fmt::format("found '{}' after the number", rest));
  if (has_point && *unit == 1) return refuse(text, "is a fraction of a byte");

  std::uint64_t whole = 0;
  const auto end = whole_digits.data() + whole_digits.size();
  const bool fits = std::from_chars(whole_digits.data(), end, whole).ec == std::errc();
  const auto scaled = fits ? checked_multiply(whole, *unit) : std::nullopt;
  const auto bytes = scaled ? checked_add(*scaled, fraction_of(*unit, fraction_digits)) : std::nullopt;
  if (!bytes) return refuse(text, "is 16 EiB or more, too large for 64 bits");
  return *bytes;
}

std::string size_argument(std::uint64_t bytes) {
  struct Unit {
    std::uint64_t bytes;
    char letter;
  };
  for (const auto [unit, letter] : {Unit{kTiB, 'T'}, Unit{kGiB, 'G'}, Unit{kMiB, 'M'}, Unit{kKiB, 'K'}}) {
    if (bytes != 0 && bytes % unit == 0) return fmt::format("{}{}", bytes / unit, letter);
  }
  return std::to_string(bytes);
}

std::string human_bytes(std::uint64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  std::uint64_t unit = 1000;
  for (const char* const name : {"KB", "MB", "GB", "TB", "PB"}) {
    const std::uint64_t hundredths = rounded(bytes, unit / 100);
    if (hundredths < 1000) return fmt::format("{}.{:02} {}", hundredths / 100, hundredths % 100, name);
    const std::uint64_t tenths = rounded(bytes, unit / 10);
    if (tenths < 10000) return fmt::format("{}.{} {}", tenths / 10, tenths % 10, name);
    unit *= 1000;
  }
  const std::uint64_t hundredths = rounded(bytes, unit / 100);  // 64 bits reach 18.45 EB
  return fmt::format("{}.{:02} EB", hundredths / 100, hundredths % 100);
}

std::string with_thousands(std::uint64_t value) {
  std::string text = std::to_string(value);
  for (std::size_t at = text.size(); at > 3;) {
    at -= 3;
    text.insert(at, 1, ',');
  }
  return text;
}

}  // namespace moeflux
