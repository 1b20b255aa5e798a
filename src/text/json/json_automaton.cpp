#include "sampling/json_automaton.h"

#include "base/check.h"

namespace moeflux {
namespace {

bool is_digit(unsigned char byte) { return byte >= '0' && byte <= '9'; }

bool is_hex(unsigned char byte) {
  return is_digit(byte) || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
}

bool is_whitespace(unsigned char byte) { return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t'; }

}  // namespace

JsonAutomaton::JsonAutomaton(JsonObjectLimits limits) : limits_(limits) {
  MF_REQUIRE(limits.depth >= 1 && limits.depth <= 64, "an object is 1 to 64 deep");
}

bool JsonAutomaton::accept(std::string_view bytes) {
  for (const char byte : bytes)
    if (!accept(static_cast<unsigned char>(byte))) return false;
  return true;
}

bool JsonAutomaton::accept(unsigned char byte) {
  switch (state_) {
    case State::begin:
    case State::key_or_close:
    case State::key:
    case State::colon:
    case State::value_or_close:
    case State::value:
    case State::after_value: return structure_byte(byte);
    case State::done: return false;
    case State::string: return string_byte(byte);
    case State::escape:
      if (byte == 'u') return to(State::hex1);
      return std::string_view("\"\\/bfnrt").find(static_cast<char>(byte)) != std::string_view::npos &&
             to(State::string);
    case State::hex1:
    case State::hex2:
    case State::hex2_after_d:
    case State::hex3:
    case State::hex4:
    case State::high_hex3:
    case State::high_hex4:
    case State::low_hex2: return hex_byte(byte);
    case State::low_backslash: return byte == '\\' && to(State::low_u);
    case State::low_u: return byte == 'u' && to(State::low_d);
    case State::low_d: return (byte == 'D' || byte == 'd') && to(State::low_hex2);
    case State::tail1: return to_tail(byte, 0x80, 0xBF, State::string);
    case State::tail2: return to_tail(byte, 0x80, 0xBF, State::tail1);
    case State::tail3: return to_tail(byte, 0x80, 0xBF, State::tail2);
    case State::tail_e0: return to_tail(byte, 0xA0, 0xBF, State::tail1);
    case State::tail_ed: return to_tail(byte, 0x80, 0x9F, State::tail1);
    case State::tail_f0: return to_tail(byte, 0x90, 0xBF, State::tail2);
    case State::tail_f4: return to_tail(byte, 0x80, 0x8F, State::tail2);
    case State::minus:
    case State::zero:
    case State::integer:
    case State::point:
    case State::fraction:
    case State::exponent:
    case State::exponent_sign:
    case State::exponent_digits: return number_byte(byte);
    case State::t: return byte == 'r' && to(State::tr);
    case State::tr: return byte == 'u' && to(State::tru);
    case State::f: return byte == 'a' && to(State::fa);
    case State::fa: return byte == 'l' && to(State::fal);
    case State::fal: return byte == 's' && to(State::fals);
    case State::n: return byte == 'u' && to(State::nu);
    case State::nu: return byte == 'l' && to(State::nul);
    case State::tru:
    case State::fals: return byte == 'e' && to(State::after_value);
    case State::nul: return byte == 'l' && to(State::after_value);
  }
  return false;
}

bool JsonAutomaton::to(State next) {
  state_ = next;
  run_ = 0;
  return true;
}

bool JsonAutomaton::to_tail(unsigned char byte, unsigned char low, unsigned char high, State next) {
  return byte >= low && byte <= high && to(next);
}

bool JsonAutomaton::whitespace() {
  if (run_ == limits_.whitespace) return false;
  ++run_;
  return true;
}

bool JsonAutomaton::open(bool object) {
  if (depth_ == limits_.depth) return false;
  const std::uint64_t bit = std::uint64_t{1} << depth_;
  objects_ = object ? objects_ | bit : objects_ & ~bit;
  ++depth_;
  return to(object ? State::key_or_close : State::value_or_close);
}

bool JsonAutomaton::close(bool object) {
  if (((objects_ >> (depth_ - 1) & 1) != 0) != object) return false;
  --depth_;
  objects_ &= ~(std::uint64_t{1} << depth_);  // equal texts are equal automata
  return to(depth_ == 0 ? State::done : State::after_value);
}

bool JsonAutomaton::begin_value(unsigned char byte) {
  switch (byte) {
    case '{': return open(true);
    case '[': return open(false);
    case '"': in_key_ = false; return to(State::string);
    case '-': return to(State::minus);
    case '0': return to(State::zero);
    case 't': return to(State::t);
    case 'f': return to(State::f);
    case 'n': return to(State::n);
    default: return is_digit(byte) && to(State::integer) && digit(byte, kMaxIntegerDigits, State::integer);
  }
}

bool JsonAutomaton::after_value(unsigned char byte) {
  const bool object = (objects_ >> (depth_ - 1) & 1) != 0;
  if (byte == ',') return to(object ? State::key : State::value);
  if (byte == '}') return close(true);
  if (byte == ']') return close(false);
  if (!is_whitespace(byte)) return false;
  // After a number whitespace begins here, not in a run of digits.
  const JsonAutomaton before = *this;
  if (state_ != State::after_value) to(State::after_value);
  if (whitespace()) return true;
  *this = before;
  return false;
}

bool JsonAutomaton::structure_byte(unsigned char byte) {
  if (state_ == State::after_value) return after_value(byte);
  if (is_whitespace(byte)) return whitespace();
  switch (state_) {
    case State::begin: return byte == '{' && open(true);
    case State::key_or_close:
      if (byte == '}') return close(true);
      [[fallthrough]];
    case State::key:
      if (byte != '"') return false;
      in_key_ = true;
      return to(State::string);
    case State::colon: return byte == ':' && to(State::value);
    case State::value_or_close:
      if (byte == ']') return close(false);
      [[fallthrough]];
    default: return begin_value(byte);
  }
}

bool JsonAutomaton::string_byte(unsigned char byte) {
  if (byte == '"') {
    const State next = in_key_ ? State::colon : State::after_value;
    in_key_ = false;
    return to(next);
  }
  if (byte == '\\') return to(State::escape);
  if (byte < 0x80) return byte >= 0x20;
  if (byte < 0xC2) return false;
  if (byte < 0xE0) return to(State::tail1);
  if (byte == 0xE0) return to(State::tail_e0);
  if (byte == 0xED) return to(State::tail_ed);
  if (byte < 0xF0) return to(State::tail2);
  if (byte == 0xF0) return to(State::tail_f0);
  if (byte < 0xF4) return to(State::tail3);
  return byte == 0xF4 && to(State::tail_f4);
}

// \uD800 to \uDBFF must be followed by \uDC00 to \uDFFF, and these stand nowhere else.
bool JsonAutomaton::hex_byte(unsigned char byte) {
  if (!is_hex(byte)) return false;
  const bool from_c = byte >= 'A' && (byte | 0x20) >= 'c';
  switch (state_) {
    case State::hex1: return to((byte | 0x20) == 'd' ? State::hex2_after_d : State::hex2);
    case State::hex2: return to(State::hex3);
    case State::hex2_after_d:
      if (from_c) return false;
      return to(byte <= '7' ? State::hex3 : State::high_hex3);
    case State::hex3: return to(State::hex4);
    case State::high_hex3: return to(State::high_hex4);
    case State::high_hex4: return to(State::low_backslash);
    case State::low_hex2: return from_c && to(State::hex3);
    default: return to(State::string);
  }
}

bool JsonAutomaton::digit(unsigned char byte, std::uint8_t limit, State next) {
  if (!is_digit(byte) || run_ == limit) return false;
  state_ = next;
  ++run_;
  return true;
}

bool JsonAutomaton::number_byte(unsigned char byte) {
  const bool is_e = (byte | 0x20) == 'e';
  switch (state_) {
    case State::minus: return byte == '0' ? to(State::zero) : digit(byte, kMaxIntegerDigits, State::integer);
    case State::zero:
    case State::integer:
      if (byte == '.') return to(State::point);
      if (is_e) return to(State::exponent);
      if (state_ == State::integer && is_digit(byte)) return digit(byte, kMaxIntegerDigits, State::integer);
      return after_value(byte);
    case State::point: return digit(byte, kMaxFractionDigits, State::fraction);
    case State::fraction:
      if (is_e) return to(State::exponent);
      if (is_digit(byte)) return digit(byte, kMaxFractionDigits, State::fraction);
      return after_value(byte);
    case State::exponent:
      if (byte == '+' || byte == '-') return to(State::exponent_sign);
      [[fallthrough]];
    case State::exponent_sign: return digit(byte, kMaxExponentDigits, State::exponent_digits);
    default:
      if (is_digit(byte)) return digit(byte, kMaxExponentDigits, State::exponent_digits);
      return after_value(byte);
  }
}

}  // namespace moeflux
