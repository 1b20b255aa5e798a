#include "cli/commands/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/testing/states.h"
#include "cli/commands/detokenize.h"
#include "cli/commands/tokenize.h"
#include "cli/exit_code.h"
#include "io/posix_file_system.h"
#include "io/testing/temporary_directory.h"

namespace moeflux::cli {
namespace {

using test::States;
using testing::HasSubstr;

struct Running : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem files;
  CollectingLog log;
  RunFlags flags;
  std::istringstream in{"from a pipe\n"};
  std::string out;
  std::string tern = (std::filesystem::path(MOEFLUX_REPOSITORY) / "models" / "tern").string();
  Places places{temporary / "cache", {}, {}};

  Running() {
    flags.talk.model.model = tern;
    flags.talk.sampling.temperature = 0;
    flags.talk.engine.options.threads = 1;
  }
  Status run(const std::atomic<bool>* cancel = nullptr) {
    const Result<Question> question = question_of(files, flags, in);
    if (!question) return question.error();
    MF_TRY(Talk talk, Talk::open(files, flags.talk, places, log));
    return answer_once(
        talk, flags, *question,
        [&](std::string_view text) {
          out += text;
          return Status();
        },
        log, cancel);
  }
  std::string question() {
    const Result<Question> asked = question_of(files, flags, in);
    EXPECT_TRUE(asked) << asked.error().message();
    return asked ? asked->messages.dump() : "";
  }
};

TEST_F(Running, AsksTheGivenQuestion) {
  flags.prompt = "Hello!";
  flags.system = "be brief";
  EXPECT_EQ(question(), R"([{"role":"system","content":"be brief"},{"role":"user","content":"Hello!"}])");
  flags.prompt.reset();
  flags.system.clear();
  EXPECT_EQ(question(), R"([{"role":"user","content":"from a pipe"}])");
  flags.file = temporary.write("question.txt", "two\nlines\n").string();
  EXPECT_EQ(question(), R"([{"role":"user","content":"two\nlines"}])");
  flags.file.clear();
  flags.messages = temporary.write("chat.json", R"([{"role":"user","content":"x"}])").string();
  EXPECT_EQ(question(), R"([{"role":"user","content":"x"}])");
}

TEST_F(Running, RefusesTwoQuestionsAndNone) {
  flags.prompt = "a";
  flags.file = "b";
  EXPECT_EQ(question_of(files, flags, in).error().code(), ErrorCode::invalid_argument);
  flags.file.clear();
  flags.prompt = "";
  EXPECT_THAT(question_of(files, flags, in), States("-p", "-f", "standard input"));
  flags.prompt = "a";
  flags.raw = true;
  flags.system = "s";
  EXPECT_THAT(question_of(files, flags, in), States("--raw"));
}

TEST_F(Running, PrintsTheReplyAndOneNewline) {
  flags.prompt = "What is 17 + 25?";
  const Status done = run();
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_EQ(out, "17 + 25 = 42.\n");
  ASSERT_EQ(log.entries().size(), 4u);
  EXPECT_THAT(log.entries()[0].message, HasSubstr("packing"));
  EXPECT_THAT(log.entries()[1].message, HasSubstr("memory: "));
  EXPECT_THAT(log.entries()[2].message, HasSubstr("experts: room for all "));
  EXPECT_THAT(log.entries()[3].message, HasSubstr("11 tokens · "));
}

TEST_F(Running, PrintsJsonWhenAsked) {
  flags.prompt = "What is 17 + 25?";
  flags.json = true;
  ASSERT_TRUE(run());
  const Json json = Json::parse(out);
  EXPECT_EQ(json["text"], "17 + 25 = 42.");
  EXPECT_EQ(json["finish_reason"], "end_of_text");
  EXPECT_EQ(json["ids"].size(), 11u);
  EXPECT_EQ(json["reply_tokens"], 11);
  EXPECT_GT(json["experts"]["hits"].get<int>() + json["experts"]["misses"].get<int>() +
                json["experts"]["late"].get<int>(),
            0);
}

TEST_F(Running, ContinuesARawText) {
  flags.prompt = "<|im_start|>user\nWhat is 17 + 25?<|im_end|>\n<|im_start|>assistant\n";
  flags.raw = true;
  flags.quiet = true;
  ASSERT_TRUE(run());
  EXPECT_EQ(out, "17 + 25 = 42.\n");
}

TEST_F(Running, EndsWhenItsOutputFails) {
  flags.prompt = "Tell me a story about a brave fox.";
  int pieces = 0;
  Result<Talk> talk = Talk::open(files, flags.talk, places, log);
  ASSERT_TRUE(talk);
  const Status done = answer_once(
      *talk, flags, *question_of(files, flags, in),
      [&](std::string_view) -> Status {
        if (++pieces < 3) return {};
        return Error{ErrorCode::io_failed, "cannot write"};
      },
      log, nullptr);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code(), ErrorCode::io_failed);
  EXPECT_EQ(pieces, 3);
}

TEST_F(Running, ReportsACancellation) {
  flags.prompt = "Hello!";
  const std::atomic<bool> cancel = true;
  const Status done = run(&cancel);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code(), ErrorCode::cancelled);
  EXPECT_EQ(out, "\n");
}

TEST_F(Running, RejectsAMissingFileAsAUsageError) {
  const std::string missing = (temporary / "missing.txt").string();
  flags.file = missing;
  Result<Question> asked = question_of(files, flags, in);
  ASSERT_FALSE(asked);
  EXPECT_EQ(exit_code_of(asked.error()), ExitCode::usage);
  EXPECT_THAT(asked, States("-f", missing));
  flags.file.clear();
  flags.messages = missing;
  asked = question_of(files, flags, in);
  ASSERT_FALSE(asked);
  EXPECT_EQ(exit_code_of(asked.error()), ExitCode::usage);
  EXPECT_THAT(asked, States("--messages", missing));
  flags.messages.clear();
  flags.prompt = "Hello!";
  for (const auto& [flag, path] : {std::pair("--tools", &flags.talk.rendering.tools),
                                   std::pair("--chat-template", &flags.talk.rendering.chat_template)}) {
    *path = missing;
    const Status done = run();
    ASSERT_FALSE(done);
    EXPECT_EQ(exit_code_of(done.error()), ExitCode::usage);
    EXPECT_THAT(done, States(flag, missing));
    path->clear();
  }
}

TEST_F(Running, FindsAWrongFlagBeforeItPacksAnything) {
  flags.prompt = "Hello!";
  flags.talk.reasoning = "maybe";
  EXPECT_THAT(run(), States("--reasoning", "'maybe'"));
  flags.talk.reasoning.clear();
  flags.talk.rendering.kwargs = "[1]";
  EXPECT_THAT(run(), States("--chat-template-kwargs", "'[1]'"));
  flags.talk.rendering.kwargs = "{";
  const Status cut = run();
  ASSERT_FALSE(cut);
  EXPECT_EQ(exit_code_of(cut.error()), ExitCode::usage);
  EXPECT_THAT(cut, States("--chat-template-kwargs"));
  flags.talk.rendering.kwargs.clear();
  flags.talk.sampling.top_p = 3;
  EXPECT_THAT(run(), States("--top-p", 0, 1, 3));
  flags.talk.sampling.top_p.reset();
  flags.talk.sampling.logit_bias = {"x"};
  EXPECT_THAT(run(), States("--logit-bias", "'x'"));
  flags.talk.sampling.logit_bias.clear();
  flags.talk.rendering.chat_template = temporary.write("mine.jinja", "{% if").string();
  EXPECT_THAT(run(), States("mine.jinja:1"));
  EXPECT_TRUE(log.entries().empty());
}

struct Tokenizing : Running {
  static TokenizeFlags as_json() { return {.directory = "", .json = true}; }
  static TokenizeFlags as_lines() { return {.directory = "", .jsonl = true}; }
  static TokenizeFlags with_special() { return {.directory = "", .special = true, .json = true}; }
  static TokenizeFlags both() { return {.directory = "", .json = true, .jsonl = true}; }
  Status tokenize(TokenizeFlags asked, std::string_view text) {
    asked.directory = tern;
    std::istringstream input{std::string(text)};
    return run_tokenize(files, asked, input, [&](std::string_view piece) {
      out += piece;
      return Status();
    });
  }
  Status detokenize(DetokenizeFlags asked, std::string_view text) {
    asked.directory = tern;
    std::istringstream input{std::string(text)};
    return run_detokenize(files, asked, input, [&](std::string_view piece) {
      out += piece;
      return Status();
    });
  }
};

TEST_F(Tokenizing, PrintsIdsOnePerLineOrAsJson) {
  ASSERT_TRUE(tokenize({}, "Hello, world!"));
  EXPECT_EQ(out, "916\n11\n1541\n0\n");
  out.clear();
  ASSERT_TRUE(tokenize(as_json(), "Hello, world!"));
  EXPECT_EQ(out, "[916,11,1541,0]\n");
  out.clear();
  ASSERT_TRUE(tokenize(as_lines(), "\"Hello, world!\"\n\"\"\n\"a\\u0000b\"\n"));
  EXPECT_EQ(out, "[916,11,1541,0]\n[]\n[64,188,65]\n");
}

TEST_F(Tokenizing, TreatsSpecialTokensAsTextByDefault) {
  ASSERT_TRUE(tokenize(with_special(), "<|im_end|>"));
  EXPECT_EQ(out, "[4034]\n");
  out.clear();
  ASSERT_TRUE(tokenize(as_json(), "<|im_end|>"));
  EXPECT_NE(out, "[4034]\n");
}

TEST_F(Tokenizing, NamesTheWrongLine) {
  EXPECT_THAT(tokenize(as_lines(), "\"a\"\n5\n"), States("line 2", "JSON string", 5));
  EXPECT_THAT(tokenize(as_lines(), "\"a\"\n\"b\n"), States("line 2:1"));
  EXPECT_THAT(detokenize({.directory = "", .jsonl = true}, "[1]\n[9999]\n"), States("line 2", "token 9999"));
  EXPECT_THAT(detokenize({}, "99999999999"), States("99999999999"));
  EXPECT_EQ(tokenize(both(), "").error().code(), ErrorCode::invalid_argument);
}

TEST_F(Tokenizing, ReadsEveryFormThatTokenizePrints) {
  for (const char* ids : {"916\n11\n1541\n0\n", "[916,11,1541,0]", "916 11 1541 0"}) {
    out.clear();
    ASSERT_TRUE(detokenize({}, ids));
    EXPECT_EQ(out, "Hello, world!");
  }
  out.clear();
  ASSERT_TRUE(detokenize({.directory = "", .skip_special = true, .jsonl = true}, "[916,4034]\n[]\n"));
  EXPECT_EQ(out, "\"Hello\"\n\"\"\n");
}

}  // namespace
}  // namespace moeflux::cli
