#pragma once
// What keys do while a line is read: the buffer, the history and completion behind one function, press(). The
// keys are listed in docs/chat.md.
//
// States: editing, until press() gives an Action that ends the line; begin() starts the next. The history
// outlives the session and is added to only between end and begin. No input or output. One thread at a time.

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

// All words that could stand for one that begins with '/', for instance all commands; those that do not begin
// as the word does are left out by the session.
using Completer = std::function<std::vector<std::string>(std::string_view word)>;

class LineSession {
 public:
  enum class Action {
    none,
    submit,        // text() is complete
    end_of_input,  // Ctrl-D on an empty line
    clear_line,    // Ctrl-C on a text, which is gone
    interrupt,     // Ctrl-C on an empty line
    clear_screen,
    suspend,  // Ctrl-Z
  };

  explicit LineSession(const History& history, Completer completer = {});

  void begin();  // an empty text; what was killed can still be yanked
  Action press(const Key& key);

  const EditBuffer& buffer() const { return buffer_; }
  // What is shown below the text: the candidates of a completion, or why a paste was cut; may be empty.
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
