#pragma once
// Accepts, byte by byte, exactly one JSON object.
//
// RFC 8259 as strict parsers read it: UTF-8 without overlong forms and surrogates, no control characters in
// strings, \u escapes of surrogates only in pairs. Whitespace may stand before the object, none after it.
// Some things are bounded, so that neither a model nor a reader of its text loses itself in them: depth,
// whitespace in a row, digits of a number (which then also fits a double). Keys may repeat.
//
// A value of 16 bytes; copying it is how one looks ahead. No byte is taken back: one that is refused leaves
// the automaton as it was. Any thread, one at a time.

#include <cstdint>
#include <string_view>

namespace moeflux {

struct JsonObjectLimits {
  std::uint8_t depth = 64;       // arrays and objects inside each other: 1 to 64
  std::uint8_t whitespace = 20;  // bytes in a row: 0 to 255
  friend bool operator==(const JsonObjectLimits&, const JsonObjectLimits&) = default;
};

class JsonAutomaton {
 public:
  static constexpr std::uint8_t kMaxIntegerDigits = 32;   // before the point
  static constexpr std::uint8_t kMaxFractionDigits = 32;  // after it
  static constexpr std::uint8_t kMaxExponentDigits = 2;

  // Requires limits in their ranges.
  explicit JsonAutomaton(JsonObjectLimits limits = {});

  // Takes the next byte, if the text can go on with it.
  bool accept(unsigned char byte);
  // Takes all of them; false where one is refused, and then the automaton is at that byte.
  bool accept(std::string_view bytes);

  // The object is closed; no byte is accepted any more.
  bool complete() const { return state_ == State::done; }

  // Inside a string, where any character may come next: not within an escape or a UTF-8 sequence.
  bool in_plain_string() const { return state_ == State::string; }

  friend bool operator==(const JsonAutomaton&, const JsonAutomaton&) = default;

 private:
  enum class State : std::uint8_t {
    begin,           // before the object
    key_or_close,    // after {
    key,             // after , in an object
    colon,           // after a key
    value_or_close,  // after [
    value,           // after : or , in an array
    after_value,     // , or the closing bracket
    done,
    string,
    escape,  // after a backslash
    // Digits of \uXXXX, of a high surrogate, and the low one that must follow that.
    hex1,
    hex2,
    hex2_after_d,
    hex3,
    hex4,
    high_hex3,
    high_hex4,
    low_backslash,
    low_u,
    low_d,
    low_hex2,
    // How many bytes of a UTF-8 sequence are missing; after E0, ED, F0 and F4 the next has a narrower range.
    tail1,
    tail2,
    tail3,
    tail_e0,
    tail_ed,
    tail_f0,
    tail_f4,
    // Numbers, by what came last.
    minus,
    zero,
    integer,
    point,
    fraction,
    exponent,
    exponent_sign,
    exponent_digits,
    // Beginnings of true, false and null.
    t,
    tr,
    tru,
    f,
    fa,
    fal,
    fals,
    n,
    nu,
    nul,
  };

  bool to(State next);
  bool to_tail(unsigned char byte, unsigned char low, unsigned char high, State next);
  bool digit(unsigned char byte, std::uint8_t limit, State next);
  bool whitespace();
  bool open(bool object);
  bool close(bool object);
  bool begin_value(unsigned char byte);
  bool after_value(unsigned char byte);
  bool string_byte(unsigned char byte);
  bool hex_byte(unsigned char byte);
  bool number_byte(unsigned char byte);
  bool structure_byte(unsigned char byte);

  std::uint64_t objects_ = 0;  // bit d: what is open at depth d is an object, not an array
  State state_ = State::begin;
  bool in_key_ = false;  // the string is a key
  std::uint8_t depth_ = 0;
  std::uint8_t run_ = 0;  // whitespace in a row, or digits so far
  JsonObjectLimits limits_;
};

}  // namespace moeflux
