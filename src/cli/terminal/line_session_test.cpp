#include "cli/terminal/line_session.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace moeflux::cli {
namespace {

using Action = LineSession::Action;

struct LineSessions : testing::Test {
  History history;
  LineSession session{history, [](std::string_view) {
                        return std::vector<std::string>{"/help", "/history", "/quit"};
                      }};

  // The action of the last key in `bytes`.
  Action type(std::string_view bytes) {
    KeyReader reader;
    std::vector<Key> keys;
    reader.push(bytes, keys);
    reader.flush(keys);
    Action action = Action::none;
    for (const Key& key : keys) action = session.press(key);
    return action;
  }
  const std::string& text() const { return session.buffer().text(); }
};

TEST_F(LineSessions, SubmitACompleteText) {
  EXPECT_EQ(type("hello"), Action::none);
  EXPECT_EQ(type("\r"), Action::submit);
  EXPECT_EQ(text(), "hello");
}

TEST_F(LineSessions, ContinueAfterABackslashAltEnterAndInABlock) {
  EXPECT_EQ(type("one\\\rtwo\x1B\rthree"), Action::none);
  EXPECT_EQ(text(), "one\ntwo\nthree");
  session.begin();
  EXPECT_EQ(type("\"\"\"a\rb"), Action::none);
  EXPECT_EQ(type("\"\"\"\r"), Action::submit);
  EXPECT_EQ(text(), "\"\"\"a\nb\"\"\"");
}

TEST_F(LineSessions, TakeAPasteAsText) {
  EXPECT_EQ(type("\x1B[200~one\r\ntwo\r\n\x1B[201~"), Action::none);
  EXPECT_EQ(text(), "one\ntwo\n");
}

TEST_F(LineSessions, ReportACutPaste) {
  type("\x1B[200~" + std::string(kMaxPasteBytes + 1, 'x') + "\x1B[201~");
  EXPECT_NE(session.below().find("too long"), std::string::npos);
  type("x");
  EXPECT_EQ(session.below(), "");
}

TEST_F(LineSessions, HandleEveryKeyOfTheTable) {
  type("one two\x01X\x05Y");
  EXPECT_EQ(text(), "Xone twoY");
  type(
      "\x1B"
      "b\x0B");
  EXPECT_EQ(text(), "Xone ");
  type("\x19\x17");
  EXPECT_EQ(text(), "Xone ");
  type(
      "\x1B[1;5D\x1B"
      "d");
  EXPECT_EQ(text(), " ");
  type("\x1F");
  EXPECT_EQ(text(), "Xone ");
  type("\x15");
  EXPECT_EQ(text(), "Xone ") << "nothing is before the cursor";
  type("\x1B[3~\x1B[C\x06\x7F\x14");
  EXPECT_EQ(text(), "eo ");
}

TEST_F(LineSessions, WalkThroughTheHistoryAndKeepTheDraft) {
  history.add("first");
  history.add("second\nline");
  session.begin();
  type("draft\x1B[A");
  EXPECT_EQ(text(), "second\nline");
  type("\x1B[A");
  EXPECT_EQ(text(), "second\nline") << "up is first a line of the text";
  type("\x1B[A");
  EXPECT_EQ(text(), "first");
  type("\x1B[A");
  EXPECT_EQ(text(), "first");
  type("\x0E");
  EXPECT_EQ(text(), "second\nline");
  type("\x1B[B");
  EXPECT_EQ(text(), "draft");
}

TEST_F(LineSessions, ClearTheLineBeforeInterrupting) {
  EXPECT_EQ(type("text\x03"), Action::clear_line);
  EXPECT_EQ(text(), "");
  EXPECT_EQ(type("\x03"), Action::interrupt);
}

TEST_F(LineSessions, EndOnlyOnAnEmptyLine) {
  EXPECT_EQ(type("ab\x01\x04"), Action::none);
  EXPECT_EQ(text(), "b");
  EXPECT_EQ(type("\x04"), Action::none);
  EXPECT_EQ(type("\x04"), Action::end_of_input);
}

TEST_F(LineSessions, CompleteACommand) {
  type("/q\t");
  EXPECT_EQ(text(), "/quit ");
  session.begin();
  type("/\t");
  EXPECT_EQ(text(), "/");
  EXPECT_EQ(session.below(), "/help  /history  /quit");
  type("h\t");
  EXPECT_EQ(text(), "/h");
  EXPECT_EQ(session.below(), "/help  /history");
  type("\t");
  EXPECT_EQ(text(), "/help");
  type("\t");
  EXPECT_EQ(text(), "/history");
  type("\t");
  EXPECT_EQ(text(), "/help");
  type("\x1B[Z");
  EXPECT_EQ(text(), "/history");
  type("x");
  EXPECT_EQ(session.below(), "");
}

TEST_F(LineSessions, LeaveOtherWordsAlone) {
  type("help\t");
  EXPECT_EQ(text(), "help");
  type(" /x\t");
  EXPECT_EQ(text(), "help /x");
  EXPECT_EQ(session.below(), "");
}

TEST_F(LineSessions, IgnoreOtherKeys) {
  EXPECT_EQ(type("\x0C"), Action::clear_screen);
  EXPECT_EQ(type("\x1A"), Action::suspend);
  EXPECT_EQ(type("\x1B\x1B[5~\x1B[2~\x18"), Action::none);
  EXPECT_EQ(text(), "");
}

}  // namespace
}  // namespace moeflux::cli
