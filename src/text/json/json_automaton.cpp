#include "text/json/json_automaton.h"

#include "base/check.h"
#include "text/unicode/utf8.h"

namespace moeflux {
namespace {

bool is_digit(unsigned char byte) { return byte >= '0' && byte <= '9'; }

bool is_hex(unsigned char byte) {
  return is_digit(byte) || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
}

bool is_whitespace(unsigned char byte) { return is_json_whitespace(static_cast<char>(byte)); }

}  // namespace

static_assert(sizeof(JsonAutomaton) == 24);

JsonAutomaton::JsonAutomaton(JsonObjectLimits limits) : limits_(limits), is_object_mode_(true) {
  MF_REQUIRE(limits.depth >= 1 && limits.depth <= 64, "an object is 1 to 64 deep");
}

bool JsonAutomaton::accept(std::string_view bytes) {
  for (const char byte : bytes)
    if (!accept(byte)) return false;
  return true;
}

bool JsonAutomaton::accept(unsigned char byte) {
  if (state_ <= State::done) return structure_byte(byte);
  if (state_ <= State::exponent_digits) return number_byte(byte);
  if (state_ <= State::nul) return literal_byte(byte);
  if (state_ == State::string) return string_byte(byte);
  if (state_ == State::utf8_tail) return utf8_tail_byte(byte);
  return escape_byte(byte);
}

bool JsonAutomaton::to(State next) {
  state_ = next;
  run_ = 0;
  return true;
}

bool JsonAutomaton::in_object() const {
  return (objects_[(depth_ - 1u) / 64] >> ((depth_ - 1u) % 64) & 1) != 0;
}

bool JsonAutomaton::whitespace() {
  if (!is_object_mode_) return true;
  if (run_ == limits_.whitespace) return false;
  ++run_;
  return true;
}

bool JsonAutomaton::open(bool object) {
  if (depth_ == limits_.depth) return false;
  const std::uint64_t bit = std::uint64_t{1} << (depth_ % 64);
  std::uint64_t& objects = objects_[depth_ / 64u];
  objects = object ? objects | bit : objects & ~bit;
  ++depth_;
  return to(object ? State::key_or_close : State::value_or_close);
}

bool JsonAutomaton::close(bool object) {
  if (in_object() != object) return false;
  --depth_;
  return value_ended();
}

bool JsonAutomaton::begin_value(unsigned char byte) {
  switch (byte) {
    case '{': return open(true);
    case '[': return open(false);
    case '"': string_is_key_ = false; return to(State::string);
    case '-': return to(State::minus);
    case '0': return to(State::zero);
    case 't': return to(State::t);
    case 'f': return to(State::f);
    case 'n': return to(State::n);
    default: return is_digit(byte) && to(State::integer) && digit(byte, kMaxIntegerDigits, State::integer);
  }
}

// Also after a number, whose end only the next byte shows.
bool JsonAutomaton::after_value(unsigned char byte) {
  if (depth_ == 0) return is_whitespace(byte) && to(State::done);
  if (byte == ',') return to(in_object() ? State::key : State::value);
  if (byte == '}') return close(true);
  if (byte == ']') return close(false);
  if (!is_whitespace(byte)) return false;
  // run_ counts the digits of a number until the whitespace after it begins.
  const JsonAutomaton before = *this;
  if (state_ != State::after_value) to(State::after_value);
  if (whitespace()) return true;
  *this = before;
  return false;
}

bool JsonAutomaton::structure_byte(unsigned char byte) {
  if (state_ == State::after_value) return after_value(byte);
  if (state_ == State::done) return !is_object_mode_ && is_whitespace(byte);
  if (is_whitespace(byte)) return whitespace();
  switch (state_) {
    case State::begin: return is_object_mode_ ? byte == '{' && open(true) : begin_value(byte);
    case State::key_or_close:
      if (byte == '}') return close(true);
      [[fallthrough]];
    case State::key:
      if (byte != '"') return false;
      string_is_key_ = true;
      return to(State::string);
    case State::colon: return byte == ':' && to(State::value);
    case State::value_or_close:
      if (byte == ']') return close(false);
      [[fallthrough]];
    default: return begin_value(byte);
  }
}

bool JsonAutomaton::literal_byte(unsigned char byte) {
  switch (state_) {
    case State::t: return byte == 'r' && to(State::tr);
    case State::tr: return byte == 'u' && to(State::tru);
    case State::f: return byte == 'a' && to(State::fa);
    case State::fa: return byte == 'l' && to(State::fal);
    case State::fal: return byte == 's' && to(State::fals);
    case State::n: return byte == 'u' && to(State::nu);
    case State::nu: return byte == 'l' && to(State::nul);
    case State::nul: return byte == 'l' && value_ended();
    default: return byte == 'e' && value_ended();  // tru, fals
  }
}

bool JsonAutomaton::string_byte(unsigned char byte) {
  if (byte == '"') return string_is_key_ ? to(State::colon) : value_ended();
  if (byte == '\\') return to(State::escape);
  if (byte < 0x80 || !is_object_mode_) return byte >= 0x20;
  if (utf8_lead(byte).bytes == 0) return false;
  to(State::utf8_tail);
  utf8_lead_ = byte;
  run_ = 1;
  return true;
}

bool JsonAutomaton::utf8_tail_byte(unsigned char byte) {
  const Utf8Lead lead = utf8_lead(utf8_lead_);
  if (!lead.allows(run_, byte)) return false;
  if (++run_ == lead.bytes) {
    utf8_lead_ = 0;
    to(State::string);
  }
  return true;
}

// \uD800 to \uDBFF must be followed by \uDC00 to \uDFFF, and these stand nowhere else.
bool JsonAutomaton::escape_byte(unsigned char byte) {
  switch (state_) {
    case State::escape:
      if (byte == 'u') return to(State::hex1);
      return std::string_view("\"\\/bfnrt").find(static_cast<char>(byte)) != std::string_view::npos &&
             to(State::string);
    case State::low_backslash: return byte == '\\' && to(State::low_u);
    case State::low_u: return byte == 'u' && to(State::low_d);
    case State::low_d: return (byte | 0x20) == 'd' && to(State::low_hex2);
    default: break;
  }
  if (!is_hex(byte)) return false;
  const bool from_c = byte >= 'A' && (byte | 0x20) >= 'c';
  switch (state_) {
    case State::hex1: return to((byte | 0x20) == 'd' ? State::hex2_after_d : State::hex2);
    case State::hex2: return to(State::hex3);
    case State::hex2_after_d: return !from_c && to(byte <= '7' ? State::hex3 : State::high_hex3);
    case State::hex3: return to(State::hex4);
    case State::high_hex3: return to(State::high_hex4);
    case State::high_hex4: return to(State::low_backslash);
    case State::low_hex2: return from_c && to(State::hex3);
    default: return to(State::string);  // hex4
  }
}

bool JsonAutomaton::digit(unsigned char byte, std::uint8_t limit, State next) {
  if (!is_digit(byte) || (is_object_mode_ && run_ == limit)) return false;
  state_ = next;
  if (is_object_mode_) ++run_;
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

bool is_json(std::string_view text) {
  JsonAutomaton automaton;
  return automaton.accept(text) && automaton.complete();
}

}  // namespace moeflux
