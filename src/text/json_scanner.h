#pragma once
// Reads JSON text one byte at a time and says where in it one is, without keeping any of it.
//
// For documents that arrive in pieces and are passed on as they are: after each byte the text so far is the
// beginning of a document, or it is not JSON. RFC 8259, with halves of surrogate pairs refused and at most
// 128 arrays and objects inside each other. Not looked at: whether strings are UTF-8, whether a key comes
// twice, whether a double holds a number. Constant memory, constant time a byte. One thread at a time.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace moeflux {

constexpr bool is_json_whitespace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

class JsonScanner {
 public:
  static constexpr std::uint32_t kMaxDepth = 128;

  // False when the text so far and `c` begin no document; the scanner is then as it was before.
  bool push(char c);

  // The text so far is a whole document, perhaps with whitespace after it. A number is whole at any digit.
  bool complete() const;

  // Arrays and objects that are open.
  std::uint32_t depth() const { return depth_; }
  // Between the quotes of a string: the opening one was read, the closing one was not.
  bool in_string() const { return state_ >= State::string; }
  // Whether that string, or the last one, is the key of a member.
  bool string_is_key() const { return string_is_key_; }
  // A value begins at the next byte that is not whitespace.
  bool expects_value() const { return state_ == State::value || state_ == State::element_or_end; }

 private:
  enum class State : std::uint8_t {
    value,           // a value must come
    element_or_end,  // after [
    key_or_end,      // after {
    key,             // after a comma in an object
    colon,
    comma_or_end,  // after a value inside an array or object
    after,         // the document is over
    literal,       // inside true, false, null
    minus,         // the parts of a number, by what was read last
    zero,
    whole,
    point,
    fraction,
    exponent,
    exponent_sign,
    exponent_digits,
    string,  // the last three are inside a string
    escape,
    hex,
  };

  bool begin_value(char c);
  bool begin_number(char c);
  bool in_number(char c);
  bool number_may_end() const;
  bool between(char c);
  bool inside_string(char c);
  bool hex_digit(char c);
  bool open(bool is_object, State inside);
  bool close(bool is_object);
  void value_ended() { state_ = depth_ == 0 ? State::after : State::comma_or_end; }

  State state_ = State::value;
  bool string_is_key_ = false;
  bool low_half_must_follow_ = false;  // of a surrogate pair
  std::uint8_t hex_digits_ = 0;
  std::uint16_t hex_value_ = 0;
  std::string_view literal_;  // what is still to come of it
  std::uint32_t depth_ = 0;
  std::array<bool, kMaxDepth> is_object_{};
};

// Whether all of `text` is one document.
bool is_json(std::string_view text);

}  // namespace moeflux
