// The documents within the default limits that take the most memory to parse.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "base/json/json.h"
#include "base/sizes.h"
#include "base/testing/allocation_counter.h"

namespace moeflux {
namespace {

// An array or object filled with as many parts as the limits allow.
struct Filling {
  const char* name;
  std::uint32_t values_per_part;
  std::string (*part)(std::uint32_t number);
  bool in_object = false;
};

// Four characters, distinct for numbers below 64^4: the shortest keys without duplicates.
std::string key(std::uint32_t number) {
  std::string text;
  for (int i = 0; i < 4; ++i, number /= 64) {
    const char digit = static_cast<char>('0' + number % 64);
    text += digit == '\\' ? '!' : digit;
  }
  return text;
}

std::string nest(std::string_view opening, std::string_view closing) {
  std::string text = "[]";
  for (int i = 0; i < 62; ++i) text = std::string(opening) + text + std::string(closing);
  return text;
}

const Filling kFillings[] = {
    {"Zeros", 1, [](std::uint32_t) -> std::string { return "0"; }},
    {"EmptyStrings", 1, [](std::uint32_t) -> std::string { return "\"\""; }},
    {"LongStrings", 1, [](std::uint32_t) -> std::string { return "\"0123456789abcdef\""; }},
    {"EmptyArrays", 1, [](std::uint32_t) -> std::string { return "[]"; }},
    {"EmptyObjects", 1, [](std::uint32_t) -> std::string { return "{}"; }},
    {"SmallArrays", 2, [](std::uint32_t) -> std::string { return "[\"\"]"; }},
    {"SmallObjects", 2, [](std::uint32_t) -> std::string { return "{\"\":\"\"}"; }},
    {"NestedArrays", 63, [](std::uint32_t) { return nest("[", "]"); }},
    {"NestedObjects", 63, [](std::uint32_t) { return nest("{\"\":", "}"); }},
    {"NestedLongKeys", 63, [](std::uint32_t) { return nest("{\"0123456789abcdef\":", "}"); }},
    {"Members", 1, [](std::uint32_t i) { return "\"" + key(i) + "\":0"; }, true},
    {"StringMembers", 1, [](std::uint32_t i) { return "\"" + key(i) + "\":\"\""; }, true},
    {"LongMembers", 1, [](std::uint32_t i) { return "\"0123456789ab" + key(i) + "\":\"\""; }, true},
};

std::string document_of(const Filling& filling, const JsonLimits& limits) {
  std::string text = filling.in_object ? "{" : "[";
  std::uint64_t values = 1;
  for (std::uint32_t number = 0;; ++number) {
    const std::string part = filling.part(number);
    if (text.size() + part.size() + 2 > limits.bytes || values + filling.values_per_part > limits.values)
      break;
    if (number != 0) text += ',';
    text += part;
    values += filling.values_per_part;
  }
  return text + (filling.in_object ? "}" : "]");
}

class LargestJson : public testing::TestWithParam<Filling> {};

INSTANTIATE_TEST_SUITE_P(, LargestJson, testing::ValuesIn(kFillings),
                         [](const auto& i) { return i.param.name; });

TEST_P(LargestJson, StaysWithinItsMemoryBound) {
  const std::string text = document_of(GetParam(), {});
  const AllocationCounter counter;
  {
    const auto json = parse_json(text, "a.json");
    ASSERT_TRUE(json) << json.error().message();
  }
  RecordProperty("peak", human_bytes(counter.peak_bytes()));
  // malloc also uses a header of 8 bytes per allocation, which the counter does not include.
  EXPECT_LE(counter.peak_bytes(), 90'000'000) << human_bytes(text.size()) << " of text";
}

}  // namespace
}  // namespace moeflux
