#include "cli/commands/chat.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <fstream>
#include <initializer_list>
#include <iterator>

#include "base/hash.h"
#include "base/testing/states.h"
#include "cli/escape_controls.h"
#include "io/posix_file_system.h"
#include "io/testing/temporary_directory.h"
#include "model/testing/random_model.h"
#include "state/snapshot_file.h"

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
  void progress(std::string_view line) override {
    progress_lines.emplace_back(line);
    if (!interrupt_at_progress.empty() && line.find(interrupt_at_progress) != std::string_view::npos)
      interrupted = true;
  }
  int while_interruptible(FunctionRef<void(const std::atomic<bool>&)> work) override {
    interrupted = false;
    work(interrupted);
    return interrupted ? presses : 0;
  }

  void types(const std::string& text) { lines.push_back({Line::Kind::text, text}); }
  void presses_ctrl_c() { lines.push_back({Line::Kind::interrupted, ""}); }

  std::deque<Line> lines;
  std::string written, interrupt_after, interrupt_at_progress;
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

// ---- What a load saves ----

constexpr const char* kQuestion = "Tell me a story about a brave fox.";

struct LoadingAChat : Chatting {
  // A model without recurrent layers and with Tern's text. Its weights are random, and so are its replies.
  static std::filesystem::path packed_without_recurrence() {
    static const TemporaryDirectory temporary;
    static const std::filesystem::path packed = [] {
      const std::filesystem::path tern = std::filesystem::path(MOEFLUX_REPOSITORY) / "models" / "tern";
      ModelConfig config = tiny_deepseek_config();
      config.vocabulary = 4096;  // Tern's
      const std::filesystem::path model = write_random_model(temporary, config);
      for (const char* name :
           {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"})
        std::filesystem::copy_file(tern / name, model / name,
                                   std::filesystem::copy_options::overwrite_existing);
      return model;
    }();
    return packed;
  }

  LoadingAChat() {
    flags.reply.max_tokens = 12;
    flags.engine.options.step_rows = 8;
  }
  void says(std::initializer_list<std::string> lines) {
    script.lines.clear();
    script.written.clear();
    script.notes.clear();
    for (const std::string& line : lines) script.types(line);
    run();
  }
  // Overwrites a word in the header of the state, and its checksum.
  void set_word_of_state(std::size_t offset, std::uint32_t word) {
    std::string bytes = temporary.read("chat.json.state");
    std::memcpy(bytes.data() + offset, &word, sizeof word);
    const std::size_t end = bytes.size() - sizeof(std::uint64_t);
    const std::uint64_t checksum = checksum_of(std::as_bytes(std::span(bytes).first(end)));
    std::memcpy(bytes.data() + end, &checksum, sizeof checksum);
    temporary.write("chat.json.state", bytes);
  }
  std::uint64_t rows_of_the_prompt() const { return chat->last()->statistics.prompt_rows; }
  std::uint32_t reused() const { return chat->last()->statistics.reused_tokens; }

  const std::string path = (temporary / "chat.json").string();
};

class RegeneratingAfterALoad : public LoadingAChat, public testing::WithParamInterface<const char*> {
 protected:
  RegeneratingAfterALoad() {
    if (std::string(GetParam()) == "deepseek") flags.model.model = packed_without_recurrence().string();
  }
};
INSTANTIATE_TEST_SUITE_P(, RegeneratingAfterALoad, testing::Values("tern", "deepseek"),
                         [](const auto& name) { return std::string(name.param); });

TEST_P(RegeneratingAfterALoad, RunsTheTokensThatItWouldHaveRunWithoutTheSave) {
  says({"Hello!", kQuestion, "/save " + path, "/regen"});
  const std::string reply = chat->conversation().messages().back()["content"];
  const std::uint64_t rows = rows_of_the_prompt();
  const std::uint32_t kept = reused(), prompt = chat->last()->statistics.prompt_tokens;
  EXPECT_GT(prompt, 25u);
  // A checkpoint is at the end of the last message; what the template writes after it runs again.
  EXPECT_LE(rows, 4u);
  EXPECT_EQ(kept + rows, prompt);

  says({"/load " + path, "/regen"});
  EXPECT_THAT(script.notes.at(0), States("4 messages", "its state is there"));
  EXPECT_EQ(chat->conversation().messages().back()["content"], reply);
  EXPECT_EQ(rows_of_the_prompt(), rows);
  EXPECT_EQ(reused(), kept);
}

TEST_P(RegeneratingAfterALoad, GoesBackOverSeveralTurnsAsWell) {
  says({"Hello!", kQuestion, "What is 17 + 25?", "/save " + path, "/undo", "/regen"});
  const std::uint64_t rows = rows_of_the_prompt();
  EXPECT_LE(rows, 4u);
  says({"/load " + path, "/undo", "/regen"});
  EXPECT_EQ(rows_of_the_prompt(), rows);
}

TEST_F(LoadingAChat, ReadsTheTokensAgainIfAnotherLawComputedTheState) {
  says({"Hello!", kQuestion, "/save " + path, "/regen"});
  const std::uint64_t rows = rows_of_the_prompt();
  const std::string reply = chat->conversation().messages().back()["content"];
  set_word_of_state(32, kLawVersion - 1);
  says({"/load " + path, "/stats", "/regen"});
  EXPECT_THAT(script.notes.at(0),
              States("older version", fmt::format("law {}", kLawVersion - 1), "tokens again"));
  EXPECT_THAT(script.notes.at(1), States("4 messages", path, "its state is there again"));
  EXPECT_THAT(script.notes.at(2), States("2 checkpoints"));
  EXPECT_THAT(script.progress_lines, testing::Contains(States("reading: 7 of")));
  EXPECT_EQ(rows_of_the_prompt(), rows);
  EXPECT_EQ(chat->conversation().messages().back()["content"], reply);
}

TEST_F(LoadingAChat, ReadsTheTokensAgainIfOtherFlagsComputedTheState) {
  flags.engine[OptionId::kv_numbers] = "int8";
  says({"Hello!", kQuestion, "/save " + path});
  flags.engine[OptionId::kv_numbers] = "";
  flags.engine[OptionId::precision] = "exact";
  says({"/load " + path, "What is 17 + 25?"});
  EXPECT_THAT(script.notes.at(0), States("--precision fast", "--kv int8", "tokens again"));
  EXPECT_THAT(script.notes.at(1), States("its state is there again"));
  EXPECT_EQ(script.written, "17 + 25 = 42.\n");
  EXPECT_GT(reused(), 25u);
}

TEST_F(LoadingAChat, CanBeInterruptedWhileItReadsTheTokensAgain) {
  says({"Hello!", kQuestion, "/save " + path, "What is 17 + 25?"});
  const Json expected = chat->conversation().messages();
  set_word_of_state(32, kLawVersion - 1);
  script.interrupt_at_progress = "reading: 7 of";
  says({"/load " + path, "What is 17 + 25?"});
  EXPECT_THAT(script.notes.at(1), States("4 messages", "stopped after 7 of", "next answer"));
  EXPECT_EQ(reused(), 7u);
  EXPECT_EQ(chat->conversation().messages(), expected);
}

TEST_F(LoadingAChat, LeavesAtTwoPressesWhileItReadsTheTokensAgain) {
  says({"Hello!", "/save " + path});
  set_word_of_state(32, kLawVersion - 1);
  script.interrupt_at_progress = "reading: 7 of";
  script.presses = 2;
  says({"/load " + path, "this is not heard"});
  EXPECT_EQ(script.lines.size(), 1u);
}

TEST_F(LoadingAChat, ComputesTheStateOfAnotherModelOrADamagedOneAgain) {
  says({"Hello!", kQuestion, "/save " + path, "/regen"});
  const Json expected = chat->conversation().messages();
  set_word_of_state(16, 7);
  says({"/load " + path, "/regen"});
  EXPECT_THAT(script.notes.at(0), States("4 messages", path + ".state", "another model", "computed again"));
  EXPECT_EQ(chat->conversation().messages(), expected);
  EXPECT_EQ(reused(), 0u);
}

TEST_F(LoadingAChat, NeedsNoRoomForTheStateBeforeItAsWell) {
  const Result<PackedModel> model = PackedModel::open(files, packed_tern());
  ASSERT_TRUE(model);
  const StateShape shape = state_shape_of(model->config());
  // A session that runs a step and keeps one checkpoint, whose rows it has in other blocks.
  flags.engine.options.kv_budget_bytes = BlockPool::budget_for(
      shape.session_bytes(512) + 2 * shape.recurrent_block_bytes(), shape.block_sizes());
  says({"Hello!", "/save " + path, kQuestion, "/load " + path, "/regen"});
  EXPECT_THAT(script.notes.back(), States("2 messages", "its state is there"));
  EXPECT_LE(rows_of_the_prompt(), 4u);
}

TEST_F(LoadingAChat, DoesNotReadTheTokensOfADamagedState) {
  says({"Hello!", "/save " + path});
  set_word_of_state(32, kLawVersion + 1);
  std::string bytes = temporary.read("chat.json.state");
  bytes[bytes.size() / 2] ^= 1;
  temporary.write("chat.json.state", bytes);
  says({"/load " + path});
  EXPECT_THAT(script.notes.at(0), States("2 messages", path + ".state", "checksum", "computed again"));
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
