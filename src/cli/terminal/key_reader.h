#pragma once
// Turns bytes from a terminal into keys.
//
// A state machine that takes bytes in pieces of any size; the split does not change the keys. It knows UTF-8,
// the sequences (CSI, SS3) of xterm and its relatives, of rxvt and of the Linux console, and bracketed paste,
// which becomes one key with the whole pasted text. Unknown sequences are ignored as a whole; bytes that are
// not UTF-8 become U+FFFD. The state between pieces is bounded.
//
// ESC alone and ESC at the start of a sequence differ only in what follows: while pending() is `sequence`,
// the caller waits briefly and calls flush() if nothing arrives.
//
// No input or output. One thread at a time.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cli/terminal/utf8.h"
#include "text/unicode/utf8_stream.h"

namespace moeflux::cli {

constexpr std::size_t kMaxPasteBytes = std::size_t{4} << 20;

enum class KeyName {
  character,  // `text` is one character; with ctrl or alt it is a command, otherwise it is typed
  paste,      // `text` is the whole paste, cleaned (clean_text); no modifiers
  enter,
  tab,
  escape,
  backspace,
  erase,  // the key named Delete
  insert,
  up,
  down,
  left,
  right,
  home,
  end,
  page_up,
  page_down,
};

struct Key {
  KeyName name = KeyName::character;
  std::string text;
  bool ctrl = false, alt = false, shift = false;
  bool was_cut = false;  // a paste longer than kMaxPasteBytes

  bool operator==(const Key&) const = default;
};

class KeyReader {
 public:
  enum class Pending { nothing, character, sequence, paste };

  // Appends the keys that `bytes` complete.
  void push(std::string_view bytes, std::vector<Key>& keys);
  // Completes a pending key: ESC becomes a key, ESC [ becomes Alt-[, half a character becomes U+FFFD, and a
  // paste ends here.
  void flush(std::vector<Key>& keys);
  Pending pending() const;

 private:
  enum class State { ground, escape, csi, csi_console_function, ss3, paste };

  void push_byte(char byte, std::vector<Key>& keys);
  void ground(char byte, std::vector<Key>& keys);
  void after_escape(char byte, std::vector<Key>& keys);
  void inside_csi(char byte, std::vector<Key>& keys);
  void inside_ss3(char byte, std::vector<Key>& keys);
  void inside_paste(char byte, std::vector<Key>& keys);
  void emit_characters(std::vector<Key>& keys);
  void emit_paste(std::vector<Key>& keys);
  void finish_csi(char final, std::vector<Key>& keys);

  State state_ = State::ground;
  bool second_escape_ = false;  // ESC ESC: Alt and a sequence (rxvt), or two keys
  Utf8Stream stream_;
  std::string characters_;  // scratch of emit_characters()
  std::string parameters_;  // of the CSI sequence; if longer than any known one, it is ignored
  std::string paste_;
  std::size_t paste_end_matched_ = 0;  // bytes of the closing sequence at the end of the paste
  bool paste_was_cut_ = false;
};

}  // namespace moeflux::cli
