#include "cli/commands/chat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <fstream>
#include <iterator>

#include "base/testing/states.h"
#include "cli/escape_controls.h"
#include "io/posix_file_system.h"
#include "io/testing/temporary_directory.h"

namespace moeflux::cli {
namespace {

using test::States;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// A terminal whose user types a fixed script.
class Script final : public ChatTerminal {
 public:
  Result<Line> read_line() override {
    if (lines.empty()) return Line{Line::Kind::end_of_input, ""};
    Line line = lines.front();
    lines.pop_front();
    return line;
  }
  bool shows_input() const override { return shows_what_is_typed; }
  Status write(std::string_view text, Style) override {
    written += text;
    if (!interrupt_after.empty() && written.find(interrupt_after) != std::string::npos) interrupted = true;
    return {};
  }
  void note(std::string_view line) override { notes.emplace_back(line); }
  void progress(std::string_view line) override { progress_lines.emplace_back(line); }
  int while_interruptible(FunctionRef<void(const std::atomic<bool>&)> work) override {
    interrupted = false;
    work(interrupted);
    return interrupted ? presses : 0;
  }

  void types(const std::string& text) { lines.push_back({Line::Kind::text, text}); }
  void presses_ctrl_c() { lines.push_back({Line::Kind::interrupted, ""}); }

  std::deque<Line> lines;
  std::string written, interrupt_after;
  std::vector<std::string> notes, progress_lines;
  std::atomic<bool> interrupted = false;
  bool shows_what_is_typed = true;
  int presses = 1;
};

struct Chatting : testing::Test {
  static std::filesystem::path packed_tern() {
    static const TemporaryDirectory temporary;
    static const std::filesystem::path packed = [] {
      PosixFileSystem disk;
      CollectingLog log;
      const std::string source = (std::filesystem::path(MOEFLUX_REPOSITORY) / "models" / "tern").string();
      Result<ChosenModel> chosen =
          choose_model(disk, {source, ""}, {temporary / "cache", {}, {}}, log, [](const PackProgress&) {});
      EXPECT_TRUE(chosen) << chosen.error().message();
      return chosen->packed;
    }();
    return packed;
  }

  TemporaryDirectory temporary;
  PosixFileSystem files;
  Script script;
  TalkFlags flags;
  std::unique_ptr<Chat> chat;

  Chatting() {
    flags.model.model = packed_tern().string();
    flags.sampling.temperature = 0;
    flags.engine.options.threads = 1;
    flags.engine.options.context = 512;
  }
  Chat& run(bool quiet = true) {
    CollectingLog log;
    Result<Talk> talk = Talk::open(files, flags, {}, log);
    EXPECT_TRUE(talk) << talk.error().message();
    chat = std::make_unique<Chat>(files, *std::move(talk), script, quiet);
    const Status done = chat->run();
    EXPECT_TRUE(done) << done.error().message();
    return *chat;
  }
};

TEST_F(Chatting, AnswersAndRemembers) {
  script.types("Hello!");
  script.types("What is 17 + 25?");
  run();
  EXPECT_EQ(script.written, "Hello! What would you like to hear about?\n17 + 25 = 42.\n");
  EXPECT_EQ(chat->conversation().messages().size(), 4u);
  EXPECT_GT(chat->last()->statistics.reused_tokens, 15u);
  EXPECT_THAT(script.notes, IsEmpty());
}

TEST_F(Chatting, GivesTheReferencesReplies) {
  std::ifstream in(std::filesystem::path(MOEFLUX_REPOSITORY) / "tests" / "goldens" / "tern" /
                   "golden_chat.json");
  const Json cases = Json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
  ASSERT_EQ(cases.size(), 25u);
  flags.engine[OptionId::precision] = "exact";
  std::vector<std::string> calls;
  for (const Json& expected : cases) {
    flags.rendering.tools =
        expected["tools"].is_null() ? "" : temporary.write("tools.json", expected["tools"].dump()).string();
    script.types("/load " + temporary.write("chat.json", expected["messages"].dump()).string());
    script.types("/regen");
    run();
    std::vector<std::uint32_t> ids;
    for (const TokenId token : chat->last()->tokens) ids.push_back(token.index());
    EXPECT_EQ(Json(ids), expected["greedy_ids"]) << expected["name"];
    const Json& said = chat->conversation().messages().back();
    EXPECT_EQ(said["role"], "assistant");
    const Json said_calls = said.value("tool_calls", Json::array());
    EXPECT_EQ(said["content"], said_calls.empty() ? expected["reply"] : Json("")) << expected["name"];
    for (const Json& call : said_calls) calls.push_back(call["function"].dump());
  }
  EXPECT_THAT(calls,
              testing::ElementsAre(R"({"name":"get_weather","arguments":{"city":"Lisbon"}})",
                                   R"({"name":"switch_light","arguments":{"room":"kitchen","on":false}})",
                                   R"({"name":"move_robot","arguments":{"direction":"north","steps":7}})",
                                   R"({"name":"get_weather","arguments":{"city":"Rome"}})"));
}

TEST_F(Chatting, UndoesAndRegenerates) {
  script.types("/undo");
  script.types("/regen");
  script.types("Hello!");
  script.types("/regen");
  script.types("/undo");
  run();
  EXPECT_THAT(script.notes.at(0), States("nothing", "undo"));
  EXPECT_THAT(script.notes.at(1), States("nothing", "answer"));
  EXPECT_TRUE(chat->conversation().is_empty());
  const std::string reply = "Hello! What would you like to hear about?\n";
  EXPECT_EQ(script.written, reply + reply);
}

TEST_F(Chatting, KeepsAnInterruptedAnswer) {
  script.interrupt_after = "brave fox";
  script.types("Tell me a story about a brave fox.");
  script.types("/stats");
  run(false);
  EXPECT_THAT(script.written, HasSubstr("brave fox"));
  EXPECT_THAT(script.written, Not(HasSubstr("will last.")));
  EXPECT_THAT(script.notes.at(0), States("tokens", "tok/s", "stopped"));
  EXPECT_THAT(chat->conversation().messages().back()["content"].get<std::string>(), HasSubstr("brave fox"));
  EXPECT_THAT(script.notes.at(1), States("positions", 512, "state", "memory", "experts", "stopped"));
}

TEST_F(Chatting, LeavesAtTheSecondCtrlC) {
  script.interrupt_after = "brave fox";
  script.types("Tell me a story about a brave fox.");
  script.presses_ctrl_c();
  script.types("this is not heard");
  run();
  EXPECT_EQ(script.lines.size(), 1u);
}

TEST_F(Chatting, LeavesAtTheSecondCtrlCInARow) {
  script.presses_ctrl_c();
  script.types("/undo");
  script.presses_ctrl_c();
  script.presses_ctrl_c();
  script.types("this is not heard");
  run();
  EXPECT_EQ(script.lines.size(), 1u);
  EXPECT_THAT(script.notes,
              testing::ElementsAre(States("Ctrl-C", "/quit"), States("undo"), States("Ctrl-C", "/quit")));
}

TEST_F(Chatting, LeavesAtTwoPressesDuringAnAnswer) {
  script.interrupt_after = "brave fox";
  script.presses = 2;
  script.types("Tell me a story about a brave fox.");
  script.types("this is not heard");
  run();
  EXPECT_EQ(script.lines.size(), 1u);
}

TEST_F(Chatting, RoundTripsThroughSaveAndLoad) {
  const std::string path = (temporary / "chat.json").string();
  script.types("Hello!");
  script.types("/save " + path);
  script.types("/clear");
  script.types("/load " + path);
  script.types("What is 17 + 25?");
  run();
  EXPECT_EQ(script.written, "Hello! What would you like to hear about?\n17 + 25 = 42.\n");
  EXPECT_THAT(script.notes.at(0), States("saved", "2 messages", path));
  EXPECT_THAT(script.notes.at(2), States("loaded", "2 messages", path, "state", "there"));
  EXPECT_GT(chat->last()->statistics.reused_tokens, 15u);
}

TEST_F(Chatting, SurvivesMissingAndWrongFiles) {
  const std::string path = temporary.write("chat.json", R"([{"role":"user","content":"Hello!"}])").string();
  temporary.write("chat.json.state", "not a state");
  script.types("/load " + (temporary / "nowhere").string());
  script.types("/load " + temporary.write("bad.json", "{").string());
  script.types("/load " + path);
  script.types("/regen");
  script.types("/save " + (temporary / "no" / "where").string());
  script.types("/save");
  run();
  EXPECT_THAT(script.notes.at(0), States("moeflux: ", (temporary / "nowhere").native()));
  EXPECT_THAT(script.notes.at(1), States("moeflux: ", (temporary / "bad.json").native()));
  EXPECT_THAT(script.notes.at(2), States("1 message", path, path + ".state", "computed again"));
  EXPECT_EQ(script.written, "Hello! What would you like to hear about?\n");
  EXPECT_THAT(script.notes.at(3), States("moeflux: ", (temporary / "no" / "where").native()));
  EXPECT_THAT(script.notes.at(4), States("/save", "file"));
}

TEST_F(Chatting, KnowsItsCommands) {
  script.types("/help");
  script.types("/nonsense");
  script.types("/system be kind");
  script.types("   ");
  script.types("/quit");
  script.types("this is not heard");
  run();
  for (const std::string& command : Chat::commands()) EXPECT_THAT(script.notes.at(0), States(command));
  EXPECT_THAT(script.notes.at(1), States("/nonsense", "/help"));
  EXPECT_THAT(script.notes.at(2), States("system", "be kind"));
  EXPECT_EQ(chat->conversation().system(), "be kind");
  EXPECT_EQ(script.lines.size(), 1u);
}

TEST_F(Chatting, TreatsOnlyOneLineOfOneWordAsACommand) {
  flags.reply.max_tokens = 1;
  script.types("/etc/passwd is a file");
  script.types("/help\nis what I need");
  script.types("//");
  run();
  EXPECT_THAT(script.notes, IsEmpty());
  EXPECT_EQ(chat->conversation().messages().size(), 6u);
}

TEST_F(Chatting, RegeneratesWithAnotherSeed) {
  flags.sampling.temperature = 1.5;
  flags.sampling.seed = "5";
  flags.reply.max_tokens = 30;
  script.types("Tell me a story about a brave fox.");
  script.types("/regen");
  run();
  const std::string both = script.written;
  EXPECT_EQ(chat->last()->seed, 6u);
  script.written.clear();
  script.types("Tell me a story about a brave fox.");
  script.types("/regen");
  run();
  EXPECT_EQ(script.written, both);  // reproducible nevertheless
}

TEST_F(Chatting, ReportsAQuestionThatIsTooLong) {
  flags.engine.options.context = 32;
  script.types(std::string(400, 'x'));
  script.types("Hello!");
  run();
  EXPECT_THAT(script.notes.at(0), States("prompt", "tokens", "context", 32));
  EXPECT_THAT(script.notes.at(1), States("question", "no answer", "forgotten"));
  EXPECT_EQ(script.written, "Hello! What would you like to hear about?\n");
}

TEST_F(Chatting, ShowsProgressOfALongPrompt) {
  flags.engine.options.step_rows = 4;
  script.types("Tell me a story about a brave fox.");
  run();
  EXPECT_THAT(script.progress_lines, testing::Contains(States("prompt", "4 of 17 tokens")));
  EXPECT_EQ(script.progress_lines.back(), "");
}

TEST_F(Chatting, EchoesInputFromAPipe) {
  script.types("What is\n17 + 25?");
  script.types("/undo");
  script.shows_what_is_typed = false;
  run(false);
  ASSERT_EQ(script.notes.size(), 4u);
  EXPECT_EQ(script.notes[0], "> What is\n... 17 + 25?");
  EXPECT_THAT(script.notes[1], States("tok/s"));
  EXPECT_EQ(script.notes[2], "> /undo");
  EXPECT_EQ(script.written, "17 + 25 = 42.\n");
}

TEST_F(Chatting, DoesNotEchoWhenItIsQuiet) {
  script.types("What is 17 + 25?");
  script.shows_what_is_typed = false;
  run();
  EXPECT_THAT(script.notes, IsEmpty());
}

TEST_F(Chatting, BeginsWithABanner) {
  script.types("/quit");
  CollectingLog log;
  Result<Talk> talk = Talk::open(files, flags, {}, log);
  ASSERT_TRUE(talk);
  Chat(files, *std::move(talk), script, false).show_banner();
  EXPECT_THAT(script.notes.at(0), States("1 thread", "fast", "8 layers", "64 experts", "4 per token"));
  EXPECT_THAT(script.notes.at(0), HasSubstr("memory  "));
}

TEST(EscapeControls, MakesControlCharactersVisible) {
  EXPECT_EQ(escape_controls("a\n\tb ü 🦊"), "a\n\tb ü 🦊");
  EXPECT_EQ(escape_controls("\x1b[2J\x07\x7f\r"), "\\x1b[2J\\x07\\x7f\\x0d");
  EXPECT_EQ(escape_controls("\xc2\x9b"
                            "2J\xc2\xa0"),
            "\\x9b2J\xc2\xa0");
}

}  // namespace
}  // namespace moeflux::cli
