#include "cli/terminal/line_editor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "cli/terminal/entry.h"
#include "cli/terminal/terminal.h"
#include "cli/terminal/utf8.h"

namespace moeflux::cli {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kReadBytes = 4096;

// Terminals send a sequence at once, but a slow connection may split it. A paste over a network comes in
// pieces; if its end is lost, the editor must accept keys again.
std::optional<milliseconds> patience(KeyReader::Pending pending) {
  switch (pending) {
    case KeyReader::Pending::nothing: return std::nullopt;
    case KeyReader::Pending::character: return milliseconds(1000);
    case KeyReader::Pending::sequence: return milliseconds(100);
    case KeyReader::Pending::paste: return milliseconds(5000);
  }
  return std::nullopt;
}

Key control(char letter) {
  return {.name = KeyName::character, .text = std::string(1, letter), .ctrl = true};
}

}  // namespace

LineEditor::LineEditor(int input, int output, const char* term, History& history, Completer completer)
    : input_(input),
      output_(output),
      is_interactive_(can_edit_lines(input, output, term)),
      shows_prompt_(::isatty(input) == 1 && ::isatty(output) == 1),
      history_(history),
      session_(history, std::move(completer)),
      lines_(input, kMaxTextBytes) {}

Result<Line> LineEditor::read(const LinePrompt& prompt) {
  // A prompt may contain a name from a file, which must not disturb the terminal.
  const std::string first = clean_text(prompt.first), continuation = clean_text(prompt.continuation);
  const LinePrompt cleaned{.first = first, .continuation = continuation};
  return is_interactive_ ? read_interactive(cleaned) : read_plain(cleaned);
}

Result<Line> LineEditor::read_plain(const LinePrompt& prompt) {
  std::string text;
  for (bool is_first = true;; is_first = false) {
    if (shows_prompt_) MF_TRY_STATUS(write_all(output_, is_first ? prompt.first : prompt.continuation));
    MF_TRY(const std::optional<std::string> line, lines_.next());
    if (!line && is_first) return Line{Line::Kind::end_of_input, {}};
    if (!line) break;
    if (line->size() > kMaxTextBytes - std::min(text.size(), kMaxTextBytes)) {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("reading a text of several lines: expected at most {} bytes, found more",
                               kMaxTextBytes)};
    }
    text += *line;
    const EntryState state = entry_state(text);
    if (state == EntryState::complete) break;
    if (state == EntryState::ends_in_backslash) text.pop_back();
    text += '\n';
  }
  return Line{Line::Kind::text, entry_content(text)};
}

Result<Line> LineEditor::read_interactive(const LinePrompt& prompt) {
  MF_TRY(const std::unique_ptr<RawTerminal> terminal, RawTerminal::enter(input_, output_));
  ScreenLine screen(terminal->size());
  session_.begin();
  for (;;) {
    if (keys_.empty()) {
      MF_TRY_STATUS(draw(*terminal, screen, prompt));
      MF_TRY_STATUS(fill_keys(*terminal, screen, prompt));
      if (keys_.empty()) {
        MF_TRY_STATUS(leave_text(*terminal, screen, prompt, {}));
        return Line{Line::Kind::end_of_input, {}};
      }
    }
    const Key key = std::move(keys_.front());
    keys_.pop_front();
    const bool clears = key == control('c');
    if (clears) MF_TRY_STATUS(leave_text(*terminal, screen, prompt, "^C"));
    switch (session_.press(key)) {
      case LineSession::Action::none:
      case LineSession::Action::clear_line: break;
      case LineSession::Action::submit: {
        MF_TRY_STATUS(leave_text(*terminal, screen, prompt, {}));
        const std::string& text = session_.buffer().text();
        Line line{Line::Kind::text, entry_content(text)};
        history_.add(text);
        return line;
      }
      case LineSession::Action::end_of_input:
        MF_TRY_STATUS(leave_text(*terminal, screen, prompt, {}));
        return Line{Line::Kind::end_of_input, {}};
      case LineSession::Action::interrupt: return Line{Line::Kind::interrupted, {}};
      case LineSession::Action::clear_screen: MF_TRY_STATUS(terminal->write(screen.clear())); break;
      case LineSession::Action::suspend:
        MF_TRY_STATUS(leave_text(*terminal, screen, prompt, {}));
        MF_TRY_STATUS(terminal->suspend());
        screen.resize(terminal->size());
        break;
    }
  }
}

// Returns at least one key, or none at the end of the input. Handles events that are not keys meanwhile.
Status LineEditor::fill_keys(RawTerminal& terminal, ScreenLine& screen, const LinePrompt& prompt) {
  while (keys_.empty() && !is_at_end_) {
    MF_TRY(const RawTerminal::Event event, terminal.wait(patience(reader_.pending())));
    switch (event) {
      case RawTerminal::Event::input: MF_TRY_STATUS(read_keys(terminal)); break;
      case RawTerminal::Event::timed_out: {
        std::vector<Key> keys;
        reader_.flush(keys);
        keys_.insert(keys_.end(), std::make_move_iterator(keys.begin()), std::make_move_iterator(keys.end()));
        break;
      }
      case RawTerminal::Event::resized:
        screen.resize(terminal.size());
        MF_TRY_STATUS(draw(terminal, screen, prompt));
        break;
      case RawTerminal::Event::resumed:
        MF_TRY_STATUS(terminal.make_raw());
        screen = ScreenLine(terminal.size());
        MF_TRY_STATUS(draw(terminal, screen, prompt));
        break;
      case RawTerminal::Event::interrupted: keys_.push_back(control('c')); break;
    }
  }
  return {};
}

Status LineEditor::read_keys(RawTerminal& terminal) {
  char bytes[kReadBytes];
  MF_TRY(const std::size_t got, terminal.read(bytes));
  std::vector<Key> keys;
  if (got == 0) {
    is_at_end_ = true;
    reader_.flush(keys);
  } else {
    reader_.push({bytes, got}, keys);
  }
  keys_.insert(keys_.end(), std::make_move_iterator(keys.begin()), std::make_move_iterator(keys.end()));
  return {};
}

Status LineEditor::draw(RawTerminal& terminal, ScreenLine& screen, const LinePrompt& prompt) {
  return terminal.write(screen.draw({.prompt = prompt.first,
                                     .continuation = prompt.continuation,
                                     .text = session_.buffer().text(),
                                     .cursor = session_.buffer().cursor(),
                                     .below = session_.below()}));
}

// Leaves the text on the screen, followed by `after`; later output is drawn below.
Status LineEditor::leave_text(RawTerminal& terminal, ScreenLine& screen, const LinePrompt& prompt,
                              std::string_view after) {
  const std::string text = session_.buffer().text() + std::string(after);
  MF_TRY_STATUS(terminal.write(screen.draw({.prompt = prompt.first,
                                            .continuation = prompt.continuation,
                                            .text = text,
                                            .cursor = text.size(),
                                            .below = {}})));
  return terminal.write(screen.finish());
}

}  // namespace moeflux::cli
