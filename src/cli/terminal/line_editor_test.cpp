#include "cli/terminal/line_editor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <string_view>
#include <vector>

#include "base/testing/states.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/terminal.h"
#include "cli/terminal/testing/emulated_screen.h"

namespace moeflux::cli {
namespace {

using test::States;

constexpr auto kPatience =
    std::chrono::seconds(60);  // the limit for a condition; a test continues as soon as it is true

Line text(std::string content) { return {Line::Kind::text, std::move(content)}; }

// Both ends of a pseudoterminal, and the screen that a user would see.
class Pty {
 public:
  explicit Pty(std::size_t columns = 40, std::size_t height = 10) : screen(columns, height) {
    const winsize size = window(columns, height);
    EXPECT_EQ(::openpty(&master_, &slave_, nullptr, nullptr, &size), 0);
    ::fcntl(master_, F_SETFL, O_NONBLOCK);
  }
  ~Pty() {
    ::close(master_);
    ::close(slave_);
  }

  int slave() const { return slave_; }
  void type(std::string_view bytes) const { ASSERT_TRUE(write_all(master_, bytes)); }

  // Reads the output of the terminal until the condition is true.
  [[nodiscard]] bool wait_until(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      pollfd poll_end = {.fd = master_, .events = POLLIN, .revents = 0};
      ::poll(&poll_end, 1, 10);
      char bytes[4096];
      const ssize_t got = ::read(master_, bytes, sizeof bytes);
      if (got > 0) screen.write({bytes, static_cast<std::size_t>(got)});
    }
    return true;
  }
  [[nodiscard]] bool wait_for(std::string_view shown) {
    return wait_until([&] { return screen.all() == shown; });
  }

  void resize(std::size_t columns, std::size_t height) {
    const winsize size = window(columns, height);
    screen.resize(columns);
    ASSERT_EQ(::ioctl(master_, TIOCSWINSZ, &size), 0);
    // The pseudoterminal is not the controlling terminal of the tests, so the kernel sends no signal.
    ::kill(::getpid(), SIGWINCH);
  }
  bool is_raw() const {
    termios state{};
    ::tcgetattr(slave_, &state);
    return (state.c_lflag & (ICANON | ECHO | ISIG)) == 0;
  }

  EmulatedScreen screen;

 private:
  static winsize window(std::size_t columns, std::size_t height) {
    winsize size{};
    size.ws_col = static_cast<unsigned short>(columns);
    size.ws_row = static_cast<unsigned short>(height);
    return size;
  }

  int master_ = -1, slave_ = -1;
};

struct LineEditors : testing::Test {
  Pty pty;
  History history;
  LineEditor editor{pty.slave(), pty.slave(), "xterm", history, [](std::string_view) {
                      return std::vector<std::string>{"/help", "/history"};
                    }};
  std::future<Result<Line>> result;

  // Starts a read() in another thread.
  void start() {
    result =
        std::async(std::launch::async, [this] { return editor.read({.first = "> ", .continuation = ". "}); });
  }
  // Like start(), and waits until the editor reads keys.
  void begin() {
    start();
    ASSERT_TRUE(pty.wait_until([&] { return pty.is_raw() && pty.screen.brackets_pastes(); }));
  }
  Line end() {
    const auto is_done = [&] {
      return result.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    };
    EXPECT_TRUE(pty.wait_until(is_done)) << pty.screen.all();
    const Result<Line> line = result.get();
    EXPECT_TRUE(line) << line.error().message();
    EXPECT_FALSE(pty.is_raw());
    EXPECT_EQ(pty.screen.problem(), "");
    return line ? *line : Line{};
  }
};

TEST_F(LineEditors, ReadTypedLines) {
  ASSERT_TRUE(editor.is_interactive());
  begin();
  pty.type("hello");
  EXPECT_TRUE(pty.wait_for("> hello"));
  pty.type("\r");
  EXPECT_EQ(end(), text("hello"));
  EXPECT_TRUE(pty.wait_until([&] { return !pty.screen.brackets_pastes(); }));
  EXPECT_EQ(pty.screen.cursor_row(), 1u);
  EXPECT_EQ(history.entries().back(), "hello");
}

TEST_F(LineEditors, ShowAPromptOfAnyBytes) {
  result = std::async(std::launch::async,
                      [this] { return editor.read({.first = "a\xFF\x1B[2J> ", .continuation = "\x07"}); });
  EXPECT_TRUE(pty.wait_for("a\uFFFD[2J> "));
  pty.type("\x04");
  EXPECT_EQ(end(), (Line{Line::Kind::end_of_input, {}}));
}

TEST_F(LineEditors, ObeyTheArrows) {
  begin();
  pty.type("held\x1B[D\x1BODl\x1B[C");
  EXPECT_TRUE(
      pty.wait_until([&] { return pty.screen.all() == "> helld" && pty.screen.cursor_column() == 6; }));
  pty.type("\x7Fo wor\x1B[F!\r");
  EXPECT_EQ(end(), text("helo word!"));
}

TEST_F(LineEditors, TakeTwoPastedLinesAsOneText) {
  begin();
  pty.type("\x1B[200~one\rtwo\x1B[201~");
  EXPECT_TRUE(pty.wait_for("> one\n. two"));
  pty.type("\r");
  EXPECT_EQ(end(), text("one\ntwo"));
  EXPECT_EQ(history.entries().size(), 1u);
}

TEST_F(LineEditors, WaitForTheRestOfACharacter) {
  begin();
  pty.type("a\xF0\x9F");
  EXPECT_TRUE(pty.wait_for("> a"));
  pty.type("\x98\x80");
  EXPECT_TRUE(pty.wait_for("> a\U0001F600"));
  pty.type("\r");
  EXPECT_EQ(end(), text("a\U0001F600"));
}

TEST_F(LineEditors, ClearTheLineOnCtrlCAndReportTheNext) {
  begin();
  pty.type("text");
  EXPECT_TRUE(pty.wait_for("> text"));
  pty.type("\x03");
  EXPECT_TRUE(pty.wait_for("> text^C\n> "));
  pty.type("\x03");
  EXPECT_EQ(end(), (Line{Line::Kind::interrupted, {}}));
}

TEST_F(LineEditors, TreatASignalAsCtrlC) {
  begin();
  ::kill(::getpid(), SIGINT);
  EXPECT_EQ(end(), (Line{Line::Kind::interrupted, {}}));
}

TEST_F(LineEditors, EndOnCtrlD) {
  begin();
  pty.type("a\x04\x7F\x04");
  EXPECT_EQ(end(), (Line{Line::Kind::end_of_input, {}}));
}

TEST_F(LineEditors, KeepInputTypedAhead) {
  begin();
  pty.type("one\rtwo\rthr");
  EXPECT_EQ(end(), text("one"));
  start();  // its line is there already
  EXPECT_EQ(end(), text("two"));
  begin();
  pty.type("ee\x1B[A\x1B[B\r");
  EXPECT_EQ(end(), text("three"));
}

TEST_F(LineEditors, IgnoreALoneEscape) {
  begin();
  pty.type("a\x1B");
  EXPECT_TRUE(pty.wait_for("> a"));
  pty.type("\x1B[D\r");
  EXPECT_EQ(end(), text("a"));
}

TEST_F(LineEditors, RedrawAfterAResize) {
  begin();
  pty.type("0123456789abcdef");
  EXPECT_TRUE(pty.wait_for("> 0123456789abcdef"));
  pty.resize(10, 10);
  EXPECT_TRUE(pty.wait_for("> 01234567\n89abcdef"));
  pty.type("g");
  EXPECT_TRUE(pty.wait_for("> 01234567\n89abcdefg"));
  pty.resize(30, 10);
  EXPECT_TRUE(pty.wait_for("> 0123456789abcdefg"));
  pty.type("\r");
  EXPECT_EQ(end(), text("0123456789abcdefg"));
}

TEST_F(LineEditors, ListCandidatesBelowTheLineAndClearTheScreen) {
  begin();
  pty.type("/h\t");
  EXPECT_TRUE(pty.wait_for("> /h\n/help  /history"));
  EXPECT_EQ(pty.screen.cursor_row(), 0u);
  pty.type("\t");
  EXPECT_TRUE(pty.wait_for("> /help\n/help  /history"));
  pty.type("\x0C");
  EXPECT_TRUE(pty.wait_for("> /help"));
  pty.type("\r");
  EXPECT_EQ(end(), text("/help"));
}

struct Pipe {
  explicit Pipe(std::string_view bytes) {
    EXPECT_EQ(::pipe(ends), 0);
    EXPECT_EQ(::write(ends[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    ::close(ends[1]);
  }
  ~Pipe() { ::close(ends[0]); }
  int ends[2];
};

TEST(LineEditorWithoutATerminal, ReadsPlainLines) {
  const Pipe pipe("one\r\n\ntwo \xFF\\\nmore\n\"\"\"a\nb\"\"\"\nlast");
  History history;
  LineEditor editor(pipe.ends[0], STDERR_FILENO, "xterm", history);
  EXPECT_FALSE(editor.is_interactive());
  for (const char* expected : {"one", "", "two \uFFFD\nmore", "a\nb", "last"}) {
    const Result<Line> line = editor.read({});
    ASSERT_TRUE(line) << line.error().message();
    EXPECT_EQ(*line, text(expected));
  }
  EXPECT_EQ(editor.read({})->kind, Line::Kind::end_of_input);
  EXPECT_EQ(editor.read({})->kind, Line::Kind::end_of_input);
}

TEST(LineReader, RejectsALineThatIsTooLongAndReadsTheNext) {
  const Pipe pipe("12345\n123456\n1234567\n" + std::string(30'000, 'x') + "\nend");
  LineReader reader(pipe.ends[0], 5);
  EXPECT_EQ(**reader.next(), "12345");
  for (int i = 0; i < 3; ++i) {
    const auto line = reader.next();
    ASSERT_FALSE(line);
    EXPECT_THAT(line, States("5 bytes"));
  }
  EXPECT_EQ(**reader.next(), "end");
  EXPECT_FALSE(reader.next()->has_value());
}

TEST(CanEditLines, RequiresACapableTerminal) {
  const Pty pty;
  const Pipe pipe("");
  EXPECT_TRUE(can_edit_lines(pty.slave(), pty.slave(), "xterm"));
  EXPECT_FALSE(can_edit_lines(pty.slave(), pty.slave(), "dumb"));
  EXPECT_FALSE(can_edit_lines(pty.slave(), pty.slave(), nullptr));
  EXPECT_FALSE(can_edit_lines(pipe.ends[0], pty.slave(), "xterm"));
  EXPECT_FALSE(can_edit_lines(pty.slave(), pipe.ends[0], "xterm"));
}

TEST(RawTerminal, IsRestoredWhenASignalEndsTheProcess) {
  Pty pty;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::signal(SIGTERM, SIG_DFL);
    const auto terminal = RawTerminal::enter(pty.slave(), pty.slave());
    for (;;) ::pause();
  }
  EXPECT_TRUE(pty.wait_until([&] { return pty.is_raw() && pty.screen.brackets_pastes(); }));
  ::kill(child, SIGTERM);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
  EXPECT_FALSE(pty.is_raw());
  EXPECT_TRUE(pty.wait_until([&] { return !pty.screen.brackets_pastes(); }));
}

TEST(InterruptGuard, CountsAndRestoresTheHandler) {
  static volatile sig_atomic_t before = 0;
  struct sigaction own {
  }, old{}, after{};
  own.sa_handler = [](int) { before = before + 1; };
  ASSERT_EQ(::sigaction(SIGINT, &own, &old), 0);
  {
    const InterruptGuard guard;
    EXPECT_FALSE(guard.requested());
    ::raise(SIGINT);
    EXPECT_TRUE(guard.requested());
    EXPECT_EQ(guard.count(), 1);
    std::async(std::launch::async, [] { ::raise(SIGINT); }).get();
    EXPECT_EQ(guard.count(), 2);
    EXPECT_EQ(before, 0);
  }
  ::raise(SIGINT);
  EXPECT_EQ(before, 1);
  {
    const InterruptGuard next;
    EXPECT_FALSE(next.requested()) << "each guard counts from its beginning";
  }
  ASSERT_EQ(::sigaction(SIGINT, &old, &after), 0);
  EXPECT_EQ(after.sa_handler, own.sa_handler);
}

TEST(InterruptGuard, LeavesAnIgnoredSignalIgnored) {
  struct sigaction ignored {
  }, old{};
  ignored.sa_handler = SIG_IGN;
  ASSERT_EQ(::sigaction(SIGINT, &ignored, &old), 0);
  {
    const InterruptGuard guard;
    ::raise(SIGINT);
    EXPECT_FALSE(guard.requested());
  }
  ASSERT_EQ(::sigaction(SIGINT, &old, nullptr), 0);
}

}  // namespace
}  // namespace moeflux::cli
