#include "cli/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/states.h"

namespace moeflux::cli {
namespace {

using test::States;

Json answer(std::string_view text) { return {{"role", "assistant"}, {"content", text}}; }

TEST(Conversation, AwaitsAnAnswerAfterAUserMessage) {
  Conversation conversation;
  EXPECT_FALSE(conversation.awaits_answer());
  conversation.set_system("be brief");
  EXPECT_FALSE(conversation.awaits_answer());
  conversation.say("hello");
  EXPECT_TRUE(conversation.awaits_answer());
  conversation.answer(answer("hi"));
  EXPECT_FALSE(conversation.awaits_answer());
  EXPECT_EQ(conversation.messages().dump(),
            R"([{"role":"system","content":"be brief"},{"role":"user","content":"hello"},)"
            R"({"role":"assistant","content":"hi"}])");
}

TEST(Conversation, UndoRemovesTheLastUserMessage) {
  Conversation conversation;
  conversation.say("one");
  conversation.answer(answer("1"));
  conversation.say("two");
  conversation.answer(answer("2"));
  EXPECT_TRUE(conversation.undo());
  EXPECT_EQ(conversation.messages().size(), 2u);
  EXPECT_TRUE(conversation.undo());
  EXPECT_TRUE(conversation.is_empty());
  EXPECT_FALSE(conversation.undo());
}

TEST(Conversation, CanTakeBackAnAnswer) {
  Conversation conversation;
  EXPECT_FALSE(conversation.take_back_answer());
  conversation.set_system("x");
  EXPECT_FALSE(conversation.take_back_answer());
  conversation.say("one");
  EXPECT_TRUE(conversation.take_back_answer());  // nothing to remove yet
  conversation.answer(answer("1"));
  EXPECT_TRUE(conversation.take_back_answer());
  EXPECT_TRUE(conversation.awaits_answer());
  EXPECT_EQ(conversation.messages().size(), 2u);
}

TEST(Conversation, KeepsItsOneSystemMessageWhenCleared) {
  Conversation conversation;
  conversation.say("hello");
  conversation.set_system("a");
  conversation.set_system("b");
  EXPECT_EQ(conversation.system(), "b");
  EXPECT_EQ(conversation.messages().size(), 2u);
  conversation.clear();
  EXPECT_EQ(conversation.messages().dump(), R"([{"role":"system","content":"b"}])");
  conversation.set_system("");
  EXPECT_TRUE(conversation.is_empty());
}

TEST(Conversation, RoundTripsThroughItsFile) {
  Conversation conversation;
  conversation.set_system("Übung \"1\"\n");
  conversation.say("hello");
  conversation.answer({{"role", "assistant"}, {"content", "hi"}, {"reasoning_content", "hm"}});
  const Result<Conversation> read = Conversation::parse(conversation.to_json(), "chat.json");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->messages(), conversation.messages());
}

TEST(Conversation, RejectsAnInvalidFileByName) {
  const Result<Conversation> read = Conversation::parse(R"({"role":"user"})", "chat.json");
  ASSERT_FALSE(read);
  EXPECT_THAT(read, States("chat.json"));
}

}  // namespace
}  // namespace moeflux::cli
