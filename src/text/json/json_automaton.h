#pragma once
// A JsonAutomaton reads JSON (RFC 8259) byte by byte and knows after each byte whether the text so far is a
// prefix of a document, and where in the document it ends.
//
// One automaton in two modes. A document is foreign text in a model's reply, which passes through unchanged.
// An object is what a model generates in JSON mode, which every strict reader must accept.
//
//   JsonAutomaton()        a document: any value, whitespace around it, at most kMaxDepth deep. Strings may
//                          hold any bytes.
//   JsonAutomaton(limits)  an object and nothing after its closing brace. Strings are valid UTF-8. Depth,
//                          consecutive whitespace and the digits of a number are bounded, so that a model
//                          cannot emit them forever and every number fits a double.
//
// Both modes refuse control characters in strings and halves of surrogate pairs, and allow duplicate keys. A
// byte is refused as soon as it makes every document impossible; a refused byte leaves the automaton
// unchanged.
//
// A value of 24 bytes that keeps nothing of the text; copy it to look ahead. Constant time per byte. One
// thread at a time.

#include <array>
#include <cstdint>
#include <string_view>

namespace moeflux {

constexpr bool is_json_whitespace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

struct JsonObjectLimits {
  std::uint8_t depth = 64;       // open arrays and objects: 1 to 64
  std::uint8_t whitespace = 20;  // bytes in a row: 0 to 255
  friend bool operator==(const JsonObjectLimits&, const JsonObjectLimits&) = default;
};

class JsonAutomaton {
 public:
  static constexpr std::uint8_t kMaxDepth = 128;  // of a document
  // Of a number in an object.
  static constexpr std::uint8_t kMaxIntegerDigits = 32;   // before the point
  static constexpr std::uint8_t kMaxFractionDigits = 32;  // after it
  static constexpr std::uint8_t kMaxExponentDigits = 2;

  // A document.
  JsonAutomaton() = default;
  // An object. Requires limits in their ranges.
  explicit JsonAutomaton(JsonObjectLimits limits);

  // Takes the next byte, or returns false if no document begins with the text so far and this byte.
  bool accept(unsigned char byte);
  bool accept(char byte) { return accept(static_cast<unsigned char>(byte)); }
  // Takes all bytes, or returns false at the first refused byte, with the automaton just before that byte.
  bool accept(std::string_view bytes);

  // Whether the text so far is a whole document. A number is whole after any digit. A complete object takes
  // no byte.
  bool complete() const { return depth_ == 0 && (state_ == State::done || number_may_end()); }

  // Open arrays and objects.
  std::uint32_t depth() const { return depth_; }
  // Whether the next byte that is not whitespace begins a value.
  bool expects_value() const {
    return state_ == State::begin || state_ == State::value || state_ == State::value_or_close;
  }
  // Whether the text ends between the quotes of a string.
  bool in_string() const { return state_ >= State::string; }
  // The same, but not inside an escape or a UTF-8 sequence.
  bool in_plain_string() const { return state_ == State::string; }
  // Whether the string that is open, or the last one, is the key of a member.
  bool string_is_key() const { return string_is_key_; }

  friend bool operator==(const JsonAutomaton&, const JsonAutomaton&) = default;

 private:
  enum class State : std::uint8_t {
    begin,           // before the document
    key_or_close,    // after {
    key,             // after , in an object
    colon,           // after a key
    value_or_close,  // after [
    value,           // after : or , in an array
    after_value,     // , or the closing bracket
    done,
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
    // All that follow are inside a string.
    string,
    escape,     // after a backslash
    utf8_tail,  // run_ bytes of the character that begins with utf8_lead_ were read
    // Digits of \uXXXX, of a high surrogate, and of the low one that must follow it.
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
  };

  bool to(State next);
  bool value_ended() { return to(depth_ == 0 ? State::done : State::after_value); }
  bool number_may_end() const {
    return state_ == State::zero || state_ == State::integer || state_ == State::fraction ||
           state_ == State::exponent_digits;
  }
  bool in_object() const;
  bool digit(unsigned char byte, std::uint8_t limit, State next);
  bool whitespace();
  bool open(bool object);
  bool close(bool object);
  bool begin_value(unsigned char byte);
  bool after_value(unsigned char byte);
  bool literal_byte(unsigned char byte);
  bool string_byte(unsigned char byte);
  bool utf8_tail_byte(unsigned char byte);
  bool escape_byte(unsigned char byte);
  bool number_byte(unsigned char byte);
  bool structure_byte(unsigned char byte);

  std::array<std::uint64_t, kMaxDepth / 64> objects_{};  // bit d: at depth d an object is open, not an array
  JsonObjectLimits limits_{.depth = kMaxDepth, .whitespace = 0};
  bool is_object_mode_ = false;
  State state_ = State::begin;
  bool string_is_key_ = false;
  std::uint8_t depth_ = 0;
  std::uint8_t run_ = 0;  // object mode: whitespace in a row, digits, or bytes of a character so far
  unsigned char utf8_lead_ = 0;
};

// Whether all of `text` is one document.
bool is_json(std::string_view text);

}  // namespace moeflux
