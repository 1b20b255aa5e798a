#include "text/json_scanner.h"

namespace moeflux {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

bool JsonScanner::push(char c) {
  switch (state_) {
    case State::string:
    case State::escape:
    case State::hex: return inside_string(c);
    case State::literal:
      if (c != literal_.front()) return false;
      literal_.remove_prefix(1);
      if (literal_.empty()) value_ended();
      return true;
    case State::minus:
    case State::zero:
    case State::whole:
    case State::point:
    case State::fraction:
    case State::exponent:
    case State::exponent_sign:
    case State::exponent_digits: {
      if (in_number(c)) return true;
      if (!number_may_end()) return false;
      const State before = state_;
      value_ended();  // nothing marks the end of a number but what follows it
      if (between(c)) return true;
      state_ = before;
      return false;
    }
    default: return between(c);
  }
}

bool JsonScanner::complete() const { return depth_ == 0 && (state_ == State::after || number_may_end()); }

// A byte outside strings, numbers and literals.
bool JsonScanner::between(char c) {
  if (is_json_whitespace(c)) return true;
  switch (state_) {
    case State::value: return begin_value(c);
    case State::element_or_end: return c == ']' ? close(false) : begin_value(c);
    case State::key_or_end:
      if (c == '}') return close(true);
      [[fallthrough]];
    case State::key:
      if (c != '"') return false;
      string_is_key_ = true;
      state_ = State::string;
      return true;
    case State::colon:
      if (c != ':') return false;
      state_ = State::value;
      return true;
    case State::comma_or_end: {
      const bool in_object = is_object_[depth_ - 1];
      if (c == (in_object ? '}' : ']')) return close(in_object);
      if (c != ',') return false;
      state_ = in_object ? State::key : State::value;
      return true;
    }
    default: return false;
  }
}

bool JsonScanner::begin_value(char c) {
  switch (c) {
    case '{': return open(true, State::key_or_end);
    case '[': return open(false, State::element_or_end);
    case '"':
      string_is_key_ = false;
      state_ = State::string;
      return true;
    case 't': literal_ = "rue"; break;
    case 'f': literal_ = "alse"; break;
    case 'n': literal_ = "ull"; break;
    default: return begin_number(c);
  }
  state_ = State::literal;
  return true;
}

bool JsonScanner::begin_number(char c) {
  if (c != '-' && !is_digit(c)) return false;
  state_ = c == '-' ? State::minus : c == '0' ? State::zero : State::whole;
  return true;
}

bool JsonScanner::in_number(char c) {
  const auto go = [&](State next) {
    state_ = next;
    return true;
  };
  const bool digit = is_digit(c);
  const bool e = c == 'e' || c == 'E';
  switch (state_) {
    case State::minus: return digit && go(c == '0' ? State::zero : State::whole);
    case State::zero:
    case State::whole:
      if (c == '.') return go(State::point);
      if (e) return go(State::exponent);
      return digit && state_ == State::whole;
    case State::point: return digit && go(State::fraction);
    case State::fraction: return digit || (e && go(State::exponent));
    case State::exponent:
      if (c == '+' || c == '-') return go(State::exponent_sign);
      [[fallthrough]];
    case State::exponent_sign: return digit && go(State::exponent_digits);
    case State::exponent_digits: return digit;
    default: return false;
  }
}

bool JsonScanner::number_may_end() const {
  return state_ == State::zero || state_ == State::whole || state_ == State::fraction ||
         state_ == State::exponent_digits;
}

bool JsonScanner::inside_string(char c) {
  if (state_ == State::hex) return hex_digit(c);
  if (state_ == State::escape) {
    if (c == 'u') {
      hex_digits_ = 0;
      hex_value_ = 0;
      state_ = State::hex;
      return true;
    }
    if (low_half_must_follow_ || std::string_view("\"\\/bfnrt").find(c) == std::string_view::npos)
      return false;
    state_ = State::string;
    return true;
  }
  if (c == '\\') {
    state_ = State::escape;
    return true;
  }
  if (low_half_must_follow_ || static_cast<unsigned char>(c) < 0x20) return false;
  if (c != '"') return true;
  if (string_is_key_) {
    state_ = State::colon;
  } else {
    value_ended();
  }
  return true;
}

bool JsonScanner::hex_digit(char c) {
  const int lower = c | 0x20;
  const bool letter = lower >= 'a' && lower <= 'f';
  if (!is_digit(c) && !letter) return false;
  const int value = hex_value_ * 16 + (letter ? lower - 'a' + 10 : c - '0');
  if (hex_digits_ == 3) {
    const bool low_half = value >= 0xDC00 && value <= 0xDFFF;
    if (low_half != low_half_must_follow_) return false;
    low_half_must_follow_ = value >= 0xD800 && value <= 0xDBFF;
    state_ = State::string;
  }
  ++hex_digits_;
  hex_value_ = static_cast<std::uint16_t>(value);
  return true;
}

bool JsonScanner::open(bool is_object, State inside) {
  if (depth_ == kMaxDepth) return false;
  is_object_[depth_++] = is_object;
  state_ = inside;
  return true;
}

bool JsonScanner::close(bool is_object) {
  if (depth_ == 0 || is_object_[depth_ - 1] != is_object) return false;
  --depth_;
  value_ended();
  return true;
}

bool is_json(std::string_view text) {
  JsonScanner scanner;
  for (const char c : text)
    if (!scanner.push(c)) return false;
  return scanner.complete();
}

}  // namespace moeflux
