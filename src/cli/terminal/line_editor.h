#pragma once
// Reads user input: a prompt, an editable line, its history and completion. If input or output is not a
// terminal, it reads plain lines, without prompt and echo, with the same rules for texts of several lines
// (entry.h).
//
// The terminal is in raw mode only during read(); input typed ahead is kept. A text may have several lines:
// pasted, or typed with Alt-Enter, a backslash before Enter, or """. Submitted texts are added to the
// history. The descriptors and the History are borrowed and must outlive the editor. One thread at a time,
// and one read() at a time per process (terminal.h).

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/terminal/history.h"
#include "cli/terminal/key_reader.h"
#include "cli/terminal/line_reader.h"
#include "cli/terminal/line_session.h"
#include "cli/terminal/screen_line.h"

namespace moeflux::cli {

struct Line {
  enum class Kind {
    text,
    end_of_input,  // Ctrl-D on an empty line, the end of a file, a terminal that is gone
    interrupted,   // Ctrl-C on an empty line; otherwise Ctrl-C clears the line
  };
  Kind kind = Kind::text;
  std::string text;  // without the quotes of a block in """

  bool operator==(const Line&) const = default;
};

struct LinePrompt {
  std::string_view first = "> ";
  std::string_view continuation = "... ";  // before the later lines of a text
};

class RawTerminal;

class LineEditor {
 public:
  // `term`: the environment's TERM, or null. "dumb" terminals are read as plain lines, but with the prompt.
  LineEditor(int input, int output, const char* term, History& history, Completer completer = {});

  Result<Line> read(const LinePrompt& prompt);

  bool is_interactive() const { return is_interactive_; }

 private:
  Result<Line> read_plain(const LinePrompt& prompt);
  Result<Line> read_interactive(const LinePrompt& prompt);
  Status fill_keys(RawTerminal& terminal, ScreenLine& screen, const LinePrompt& prompt);
  Status read_keys(RawTerminal& terminal);
  Status draw(RawTerminal& terminal, ScreenLine& screen, const LinePrompt& prompt);
  Status leave_text(RawTerminal& terminal, ScreenLine& screen, const LinePrompt& prompt,
                    std::string_view after);

  int input_, output_;
  bool is_interactive_;
  bool shows_prompt_;
  History& history_;
  LineSession session_;
  LineReader lines_;
  KeyReader reader_;
  std::deque<Key> keys_;  // read but not handled: a line may arrive with the start of the next
  bool is_at_end_ = false;
};

}  // namespace moeflux::cli
