#pragma once
// The effect of keys while a line is read: buffer, history and completion behind one function, press().
// docs/chat.md lists the keys.
//
// States: editing, until press() returns an Action that ends the line; begin() starts the next. The history
// outlives the session and changes only between end and begin. No input or output. One thread at a time.

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/terminal/edit_buffer.h"
#include "cli/terminal/history.h"
#include "cli/terminal/key_reader.h"

namespace moeflux::cli {

// All candidates for a word that begins with '/', such as all commands; the session filters those with the
// right prefix.
using Completer = std::function<std::vector<std::string>(std::string_view word)>;

class LineSession {
 public:
  enum class Action {
    none,
    submit,        // text() is complete
    end_of_input,  // Ctrl-D on an empty line
    clear_line,    // Ctrl-C on a text, which is cleared
    interrupt,     // Ctrl-C on an empty line
    clear_screen,
    suspend,  // Ctrl-Z
  };

  explicit LineSession(const History& history, Completer completer = {});

  void begin();  // starts an empty text; killed text can still be yanked
  Action press(const Key& key);

  const EditBuffer& buffer() const { return buffer_; }
  // Shown below the text: candidates of a completion, or why a paste was cut; may be empty.
  const std::string& below() const { return below_; }
  void go_to_end() { buffer_.text_end(); }  // before the text is left on the screen

 private:
  struct Completion {
    std::size_t begin = 0;  // of the word
    std::vector<std::string> candidates;
    std::optional<std::size_t> shown;  // the candidate that is in the text
  };

  Action press_control(char letter);
  void press_alt(const Key& key);
  void press_arrow(const Key& key);
  Action enter(bool is_newline);
  void paste(const Key& key);
  void complete(bool backwards);
  void start_completion();
  void older();
  void newer();

  const History& history_;
  Completer completer_;
  EditBuffer buffer_;
  HistoryWalk walk_;
  Completion completion_;
  std::string below_;
};

}  // namespace moeflux::cli
