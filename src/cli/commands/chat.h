#pragma once
// `moeflux chat`: a conversation in a terminal.
//
// The loop uses a ChatTerminal, which tests replace. Answers are written as they arrive, with control
// characters escaped; everything else is a note. /help lists the commands. One thread at a time.

#include <atomic>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/log.h"
#include "base/result.h"
#include "cli/commands/command.h"
#include "cli/conversation.h"
#include "cli/talk.h"
#include "cli/terminal/line_editor.h"
#include "io/file_system.h"

namespace moeflux::cli {

struct ChatFlags {
  TalkFlags talk;
  std::string system;
  bool quiet = false;  // no banner, no statistics lines
};

class ChatTerminal {
 public:
  virtual ~ChatTerminal() = default;
  virtual Result<Line> read_line() = 0;
  // True if the user sees what they type, as on a terminal.
  virtual bool shows_input() const = 0;
  // Shows a part of an answer at once; styles reasoning where the terminal can.
  enum class Style { text, reasoning };
  virtual Status write(std::string_view text, Style style = Style::text) = 0;
  // Shows a line that is not from the model. Without its newline.
  virtual void note(std::string_view line) = 0;
  // Shows a line that the next output replaces; an empty one removes it. A no-op without a terminal.
  virtual void progress(std::string_view line) = 0;
  // Calls `work` with a flag that Ctrl-C sets. Returns the number of Ctrl-C presses.
  virtual int while_interruptible(FunctionRef<void(const std::atomic<bool>&)> work) = 0;
};

class Chat {
 public:
  Chat(FileSystem& files, Talk talk, ChatTerminal& terminal, bool quiet);

  void set_system(std::string_view text) { conversation_.set_system(text); }
  void show_banner();
  // Runs until the end of the input, /quit, or Ctrl-C twice. An error means that the terminal is gone.
  Status run();

  const Conversation& conversation() const { return conversation_; }
  const std::optional<GenerationResult>& last() const { return last_; }

  const Talk& talk() const { return talk_; }

  // "/help", "/clear", ..., for completion.
  static std::vector<std::string> commands();

 private:
  enum class Next { go_on, leave };

  void echo(std::string_view line);
  Result<Next> take(const std::string& line);
  Result<Next> obey(std::string_view command, std::string_view argument);
  Result<Next> answer();
  void show_help();
  void show_statistics();
  Status save(const std::string& path);
  Result<Next> load(const std::string& path);
  // Loads or computes again the state in `path`, and returns what came of it.
  std::string load_state(const std::string& path, int& interrupts);
  std::string replay(const SnapshotTokens& saved, int& interrupts);
  void note_failure(const Error& error);

  FileSystem& files_;
  Talk talk_;
  ChatTerminal& terminal_;
  bool quiet_;
  bool was_interrupted_ = false;  // the last event was a Ctrl-C; another one leaves
  Conversation conversation_;
  std::optional<GenerationResult> last_;
};

// "moeflux 0.1.0 · avx512 · 2 threads · exact", and lines about the model and its memory.
std::string banner(Talk& talk);

Command add_chat(CLI::App& program);

}  // namespace moeflux::cli
