#pragma once
// States("file.bin", "tensor 'x'", 4, 3): a message states all of these facts, in any order and in any
// wording.
//
// Tests check what a message tells its reader (file, place, expected, found), not the words between, so that
// wording can change without changing tests. A fact that begins or ends with a letter or digit matches whole
// words only: States(3) is not satisfied by "13 rows". Matches a string, an Error, or a Result or Status that
// holds one. Test code only.
//
//   EXPECT_THAT(opened, States("model.safetensors", "4 rows", 3));

#include <gmock/gmock.h>

#include <concepts>
#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moeflux::test {

// Whether `message` contains `fact`, and not only as a part of a longer word or number.
inline bool states_fact(std::string_view message, std::string_view fact) {
  const auto is_word = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  for (std::size_t at = message.find(fact); at != std::string_view::npos && !fact.empty();
       at = message.find(fact, at + 1)) {
    const std::size_t end = at + fact.size();
    const bool begins = at == 0 || !is_word(fact.front()) || !is_word(message[at - 1]);
    const bool ends = end == message.size() || !is_word(fact.back()) || !is_word(message[end]);
    if (begins && ends) return true;
  }
  return false;
}

class StatesMatcher {
 public:
  explicit StatesMatcher(std::vector<std::string> facts) : facts_(std::move(facts)) {}

  template <class T>
  bool MatchAndExplain(const T& value, testing::MatchResultListener* why) const {
    if constexpr (std::convertible_to<const T&, std::string_view>) {
      return check(value, why);
    } else if constexpr (requires { value.message(); }) {
      return check(value.message(), why);
    } else {
      if (value) {
        *why << "which is no error";
        return false;
      }
      return check(value.error().message(), why);
    }
  }

  void DescribeTo(std::ostream* out) const { list(out, "states"); }
  void DescribeNegationTo(std::ostream* out) const { list(out, "does not state all of"); }

 private:
  bool check(std::string_view message, testing::MatchResultListener* why) const {
    bool all = true;
    for (const std::string& fact : facts_) {
      if (states_fact(message, fact)) continue;
      if (why != nullptr)
        *why << (all ? "whose message \"" + std::string(message) + "\" lacks \"" : ", \"") << fact << '"';
      all = false;
    }
    return all;
  }
  void list(std::ostream* out, const char* verb) const {
    *out << verb;
    for (const std::string& fact : facts_) *out << " \"" << fact << '"';
  }

  std::vector<std::string> facts_;
};

inline std::string fact_of(std::string_view text) { return std::string(text); }
template <std::integral T>
std::string fact_of(T number) {
  return std::to_string(number);
}

template <class... Facts>
testing::PolymorphicMatcher<StatesMatcher> States(const Facts&... facts) {
  return testing::MakePolymorphicMatcher(StatesMatcher({fact_of(facts)...}));
}

}  // namespace moeflux::test
