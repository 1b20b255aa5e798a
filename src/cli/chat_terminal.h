#pragma once
// The terminal of `moeflux chat`, or the pipes in its place.
//
// On a terminal, output is wrapped at words and notes are dimmed unless NO_COLOR is set. If standard output
// is not a terminal, it gets the answers alone and notes go to standard error. Entered lines are kept in a
// file between runs. One thread at a time, and one object per process.

#include <filesystem>
#include <string>

#include "cli/commands/chat.h"
#include "cli/terminal/history.h"
#include "cli/terminal/line_editor.h"
#include "cli/terminal/wrapped_output.h"

namespace moeflux::cli {

class StandardTerminal final : public ChatTerminal {
 public:
  // `history_file`: empty for none.
  explicit StandardTerminal(std::filesystem::path history_file);
  ~StandardTerminal() override;

  Result<Line> read_line() override;
  bool shows_input() const override { return is_terminal_; }
  Status write(std::string_view text, Style style) override;
  void note(std::string_view line) override;
  void progress(std::string_view line) override;
  int while_interruptible(FunctionRef<void(const std::atomic<bool>&)> work) override;

 private:
  std::string dimmed(std::string_view text) const;

  std::filesystem::path history_file_;
  bool is_terminal_, has_style_;
  bool has_progress_ = false;
  History history_;
  LineEditor editor_;
  WrappedOutput output_;
};

}  // namespace moeflux::cli
