#pragma once
// The terminal that `moeflux chat` runs in, or the pipes that stand for one.
//
// On a terminal notes are dimmed between the answers (unless NO_COLOR is set); where standard output is none, it gets
// the answers alone and notes go to standard error. Lines that were entered are kept in a file between runs.
// One thread at a time, and one at a time in a process.

#include <filesystem>
#include <string>

#include "cli/chatting.h"
#include "cli/terminal/history.h"
#include "cli/terminal/line_editor.h"

namespace moeflux::cli {

class StandardTerminal final : public ChatTerminal {
 public:
  // `history_file`: empty for none.
  explicit StandardTerminal(std::filesystem::path history_file);
  ~StandardTerminal() override;

  Result<Line> read_line() override;
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
};

}  // namespace moeflux::cli
