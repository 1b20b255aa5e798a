#include "cli/terminal/key_reader.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>

namespace moeflux::cli {
namespace {

constexpr char kEscape = '\x1B';
constexpr std::string_view kPasteEnd = "\x1B[201~";
constexpr std::size_t kMaxParameterBytes = 32;

unsigned char value_of(char byte) { return static_cast<unsigned char>(byte); }

Key named(KeyName name) { return {.name = name, .text = {}}; }
Key character(std::string text) { return {.name = KeyName::character, .text = std::move(text)}; }

Key with_alt(Key key) {
  key.alt = true;
  return key;
}

// A key that is one ASCII byte, control characters included.
Key key_of_ascii(char byte) {
  switch (byte) {
    case '\r':
    case '\n': return named(KeyName::enter);
    case '\t': return named(KeyName::tab);
    case '\x08':
    case '\x7F': return named(KeyName::backspace);
    case kEscape: return named(KeyName::escape);
    default: break;
  }
  if (value_of(byte) >= 0x20) return character(std::string(1, byte));
  // Ctrl-A is 1; Ctrl-@ and Ctrl-_ are the ends of the range.
  const auto letter = static_cast<char>(byte + (byte >= 1 && byte <= 26 ? 0x60 : 0x40));
  Key key = character(std::string(1, letter));
  key.ctrl = true;
  return key;
}

std::optional<KeyName> name_of_letter(char letter) {
  switch (letter) {
    case 'A': return KeyName::up;
    case 'B': return KeyName::down;
    case 'C': return KeyName::right;
    case 'D': return KeyName::left;
    case 'H': return KeyName::home;
    case 'F': return KeyName::end;
    case 'M': return KeyName::enter;  // of the keypad
    default: return std::nullopt;
  }
}

std::optional<KeyName> name_of_number(std::uint32_t number) {
  switch (number) {
    case 1:
    case 7: return KeyName::home;
    case 2: return KeyName::insert;
    case 3: return KeyName::erase;
    case 4:
    case 8: return KeyName::end;
    case 5: return KeyName::page_up;
    case 6: return KeyName::page_down;
    default: return std::nullopt;
  }
}

struct Parameters {
  std::array<std::uint32_t, 3> values{};
  std::size_t count = 0;
};

// "1;5": numbers separated by semicolons, absent ones 0. nullopt if no key has them.
std::optional<Parameters> parse_parameters(std::string_view bytes) {
  Parameters parameters;
  if (bytes.empty()) return parameters;
  parameters.count = 1;
  for (const char byte : bytes) {
    if (byte == ';') {
      if (parameters.count++ == parameters.values.size()) return std::nullopt;
    } else if (byte >= '0' && byte <= '9') {
      std::uint32_t& value = parameters.values[parameters.count - 1];
      value = value * 10 + static_cast<std::uint32_t>(byte - '0');
      if (value > 0x10FFFF) return std::nullopt;
    } else {
      return std::nullopt;
    }
  }
  return parameters;
}

// xterm's modifiers: 1 and bits for shift, alt and ctrl; Meta (8) counts as Alt.
Key with_modifiers(Key key, std::uint32_t code) {
  const std::uint32_t bits = code == 0 ? 0 : code - 1;
  key.shift = (bits & 1) != 0;
  key.alt = (bits & 2) != 0 || (bits & 8) != 0;
  key.ctrl = (bits & 4) != 0;
  return key;
}

// Keys that are sent as their code point (CSI u, modifyOtherKeys): Shift-Enter and the like. ASCII is enough:
// terminals send other characters unencoded.
std::optional<Key> key_of_code_point(std::uint32_t code_point, std::uint32_t modifiers) {
  if (code_point == 0 || code_point >= 0x80) return std::nullopt;
  Key key = with_modifiers(key_of_ascii(static_cast<char>(code_point)), modifiers);
  if (key.name == KeyName::character && key.ctrl && key.text[0] >= 'A' && key.text[0] <= 'Z') {
    key.text[0] = static_cast<char>(key.text[0] + 0x20);
  }
  return key;
}

std::optional<Key> key_of_csi(const Parameters& parameters, char final) {
  const auto& [first, second, third] = parameters.values;
  const auto modified = [](std::optional<KeyName> name, std::uint32_t code) {
    return name ? std::optional(with_modifiers(named(*name), code)) : std::nullopt;
  };
  switch (final) {
    case '~':
      return first == 27 && parameters.count == 3 ? key_of_code_point(third, second)
                                                  : modified(name_of_number(first), second);
    case '^': return modified(name_of_number(first), 5);  // rxvt: Ctrl
    case 'u': return key_of_code_point(first, second);
    case 'Z': return with_modifiers(named(KeyName::tab), 2);
    case 'a':
    case 'b':
    case 'c':
    case 'd': return modified(name_of_letter(static_cast<char>(final - 0x20)), 2);  // rxvt: Shift
    default: break;
  }
  // "1;5C", and the older "5C".
  return modified(name_of_letter(final), parameters.count >= 2 ? second : first > 1 ? first : 0);
}

}  // namespace

void KeyReader::push(std::string_view bytes, std::vector<Key>& keys) {
  for (const char byte : bytes) push_byte(byte, keys);
}

void KeyReader::push_byte(char byte, std::vector<Key>& keys) {
  switch (state_) {
    case State::ground: return ground(byte, keys);
    case State::escape: return after_escape(byte, keys);
    case State::csi: return inside_csi(byte, keys);
    case State::csi_console_function: state_ = State::ground; return;  // ESC [ [ A: a function key
    case State::ss3: return inside_ss3(byte, keys);
    case State::paste: return inside_paste(byte, keys);
  }
}

void KeyReader::ground(char byte, std::vector<Key>& keys) {
  if (value_of(byte) >= 0x80) {
    stream_.push({&byte, 1}, characters_);
    return emit_characters(keys);
  }
  stream_.finish(characters_);
  emit_characters(keys);
  if (byte == kEscape) {
    state_ = State::escape;
    second_escape_ = false;
    return;
  }
  keys.push_back(key_of_ascii(byte));
}

void KeyReader::emit_characters(std::vector<Key>& keys) {
  for (std::size_t at = 0; at < characters_.size();) {
    const CodePoint code_point = code_point_at(characters_, at);
    // No key sends a C1 control.
    if (!is_control(code_point.value)) keys.push_back(character(characters_.substr(at, code_point.bytes)));
    at += code_point.bytes;
  }
  characters_.clear();
}

void KeyReader::after_escape(char byte, std::vector<Key>& keys) {
  if (byte == kEscape) {
    if (second_escape_) keys.push_back(named(KeyName::escape));
    second_escape_ = true;
    return;
  }
  if (byte == '[' || byte == 'O') {
    state_ = byte == '[' ? State::csi : State::ss3;
    parameters_.clear();
    return;
  }
  state_ = State::ground;
  if (second_escape_) keys.push_back(named(KeyName::escape));
  if (value_of(byte) >= 0x80) {
    // Alt and a letter beyond ASCII: the letter may not be complete yet, and no command has one.
    keys.push_back(named(KeyName::escape));
    return ground(byte, keys);
  }
  keys.push_back(with_alt(key_of_ascii(byte)));
}

void KeyReader::inside_csi(char byte, std::vector<Key>& keys) {
  if (value_of(byte) < 0x20 || value_of(byte) >= 0x7F) {
    // No sequence contains these bytes. The sequence was cut short, and the byte is a key (it may be Ctrl-C).
    state_ = State::ground;
    return ground(byte, keys);
  }
  if (byte == '[' && parameters_.empty()) {
    state_ = State::csi_console_function;
    return;
  }
  if (value_of(byte) < 0x40) {
    if (parameters_.size() <= kMaxParameterBytes) parameters_ += byte;
    return;
  }
  state_ = State::ground;
  finish_csi(byte, keys);
}

void KeyReader::finish_csi(char final, std::vector<Key>& keys) {
  if (parameters_.size() > kMaxParameterBytes) return;
  if (final == '~' && parameters_ == "200") {
    state_ = State::paste;
    return;
  }
  const std::optional<Parameters> parameters = parse_parameters(parameters_);
  if (!parameters) return;
  std::optional<Key> key = key_of_csi(*parameters, final);
  if (!key) return;
  key->alt = key->alt || second_escape_;
  keys.push_back(*std::move(key));
}

void KeyReader::inside_ss3(char byte, std::vector<Key>& keys) {
  state_ = State::ground;
  if (value_of(byte) < 0x20 || value_of(byte) >= 0x7F) return ground(byte, keys);
  // rxvt sends ESC O a for Ctrl-Up.
  const bool is_ctrl = byte >= 'a' && byte <= 'd';
  const std::optional<KeyName> name = name_of_letter(is_ctrl ? static_cast<char>(byte - 0x20) : byte);
  if (!name) return;
  Key key = named(*name);
  key.ctrl = is_ctrl;
  key.alt = second_escape_;
  keys.push_back(std::move(key));
}

void KeyReader::inside_paste(char byte, std::vector<Key>& keys) {
  // A false start of the closing sequence is part of the text. ESC occurs in that sequence only as its first
  // byte, so a new match can begin only with `byte` itself.
  if (byte != kPasteEnd[paste_end_matched_]) {
    const std::string_view almost = kPasteEnd.substr(0, std::exchange(paste_end_matched_, 0));
    const std::size_t room = kMaxPasteBytes - paste_.size();
    paste_.append(almost.substr(0, room));
    paste_was_cut_ = paste_was_cut_ || almost.size() > room;
  }
  if (byte == kPasteEnd[paste_end_matched_]) {
    if (++paste_end_matched_ == kPasteEnd.size()) emit_paste(keys);
  } else if (paste_.size() < kMaxPasteBytes) {
    paste_ += byte;
  } else {
    paste_was_cut_ = true;
  }
}

void KeyReader::emit_paste(std::vector<Key>& keys) {
  Key key = named(KeyName::paste);
  key.text = clean_text(paste_);
  key.was_cut = std::exchange(paste_was_cut_, false);
  keys.push_back(std::move(key));
  std::string().swap(paste_);  // release the memory of a large paste
  paste_end_matched_ = 0;
  state_ = State::ground;
}

void KeyReader::flush(std::vector<Key>& keys) {
  const State state = std::exchange(state_, State::ground);
  switch (state) {
    case State::ground: stream_.finish(characters_); return emit_characters(keys);
    case State::escape:
      if (second_escape_) keys.push_back(named(KeyName::escape));
      keys.push_back(named(KeyName::escape));
      return;
    case State::csi:
      if (parameters_.empty()) keys.push_back(with_alt(character("[")));
      return;
    case State::csi_console_function: return;
    case State::ss3: keys.push_back(with_alt(character("O"))); return;
    case State::paste: return emit_paste(keys);
  }
}

KeyReader::Pending KeyReader::pending() const {
  switch (state_) {
    case State::ground: return stream_.held_back() > 0 ? Pending::character : Pending::nothing;
    case State::paste: return Pending::paste;
    default: return Pending::sequence;
  }
}

}  // namespace moeflux::cli
