#include "cli/running.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cli/tokenizing.h"
#include "io/posix_file_system.h"
#include "io/temporary_directory.h"

namespace moeflux::cli {
namespace {

using testing::HasSubstr;

struct Running : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem files;
  CollectingLog log;
  RunCommand command;
  std::istringstream in{"from a pipe\n"};
  std::string out;
  std::string tern = (std::filesystem::path(MOEFLUX_REPOSITORY) / "models" / "tern").string();
  Places places{temporary / "cache", {}, {}};

  Running() {
    command.talk.model.model = tern;
    command.talk.sampling.temperature = 0;
    command.talk.engine.threads = 1;
  }
  Status run(const std::atomic<bool>* cancel = nullptr) {
    const Result<Question> question = question_of(files, command, in);
    if (!question) return question.error();
    MF_TRY(Talk talk, Talk::open(files, command.talk, places, log));
    return run_run(
        talk, command, *question,
        [&](std::string_view text) {
          out += text;
          return Status();
        },
        log, cancel);
  }
  std::string question() {
    const Result<Question> asked = question_of(files, command, in);
    EXPECT_TRUE(asked) << asked.error().message();
    return asked ? asked->messages.dump() : "";
  }
};

TEST_F(Running, AsksWhatItIsGiven) {
  command.prompt = "Hello!";
  command.system = "be brief";
  EXPECT_EQ(question(), R"([{"role":"system","content":"be brief"},{"role":"user","content":"Hello!"}])");
  command.prompt.reset();
  command.system.clear();
  EXPECT_EQ(question(), R"([{"role":"user","content":"from a pipe"}])");
  command.file = temporary.write("question.txt", "two\nlines\n").string();
  EXPECT_EQ(question(), R"([{"role":"user","content":"two\nlines"}])");
  command.file.clear();
  command.messages = temporary.write("chat.json", R"([{"role":"user","content":"x"}])").string();
  EXPECT_EQ(question(), R"([{"role":"user","content":"x"}])");
}

TEST_F(Running, RefusesTwoQuestionsAndNone) {
  command.prompt = "a";
  command.file = "b";
  EXPECT_EQ(question_of(files, command, in).error().code(), ErrorCode::invalid_argument);
  command.file.clear();
  command.prompt = "";
  EXPECT_THAT(question_of(files, command, in).error().message(), HasSubstr("nothing to ask"));
  command.prompt = "a";
  command.raw = true;
  command.system = "s";
  EXPECT_THAT(question_of(files, command, in).error().message(), HasSubstr("--raw"));
}

TEST_F(Running, PrintsTheReplyAndOneNewline) {
  command.prompt = "What is 17 + 25?";
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
  command.prompt = "What is 17 + 25?";
  command.json = true;
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

TEST_F(Running, GoesOnWithARawText) {
  command.prompt = "<|im_start|>user\nWhat is 17 + 25?<|im_end|>\n<|im_start|>assistant\n";
  command.raw = true;
  command.quiet = true;
  ASSERT_TRUE(run());
  EXPECT_EQ(out, "17 + 25 = 42.\n");
}

TEST_F(Running, EndsWhenNobodyListensAnyMore) {
  command.prompt = "Tell me a story about a brave fox.";
  int pieces = 0;
  Result<Talk> talk = Talk::open(files, command.talk, places, log);
  ASSERT_TRUE(talk);
  const Status done = run_run(
      *talk, command, *question_of(files, command, in),
      [&](std::string_view) -> Status {
        if (++pieces < 3) return {};
        return Error{ErrorCode::io_failed, "cannot write"};
      },
      log, nullptr);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code(), ErrorCode::io_failed);
  EXPECT_EQ(pieces, 3);
}

TEST_F(Running, SaysThatItWasStopped) {
  command.prompt = "Hello!";
  const std::atomic<bool> cancel = true;
  const Status done = run(&cancel);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code(), ErrorCode::cancelled);
  EXPECT_EQ(out, "\n");
}

TEST_F(Running, FindsAWrongFlagBeforeItPacksAnything) {
  command.prompt = "Hello!";
  command.talk.reasoning = "maybe";
  EXPECT_THAT(run().error().message(), HasSubstr("--reasoning"));
  command.talk.reasoning.clear();
  command.talk.template_kwargs = "[1]";
  EXPECT_THAT(run().error().message(), HasSubstr("--chat-template-kwargs"));
  command.talk.template_kwargs.clear();
  command.talk.sampling.top_p = 3;
  EXPECT_THAT(run().error().message(), HasSubstr("top_p"));
  command.talk.sampling.top_p.reset();
  command.talk.sampling.logit_bias = {"x"};
  EXPECT_THAT(run().error().message(), HasSubstr("--logit-bias"));
  command.talk.sampling.logit_bias.clear();
  command.talk.chat_template = temporary.write("mine.jinja", "{% if").string();
  EXPECT_THAT(run().error().message(), HasSubstr("mine.jinja:1"));
  EXPECT_TRUE(log.entries().empty());
}

struct Tokenizing : Running {
  static TokenizeCommand as_json() { return {.directory = "", .json = true}; }
  static TokenizeCommand as_lines() { return {.directory = "", .jsonl = true}; }
  static TokenizeCommand with_special() { return {.directory = "", .special = true, .json = true}; }
  static TokenizeCommand both() { return {.directory = "", .json = true, .jsonl = true}; }
  Status tokenize(TokenizeCommand asked, std::string_view text) {
    asked.directory = tern;
    std::istringstream input{std::string(text)};
    return run_tokenize(files, asked, input, [&](std::string_view piece) {
      out += piece;
      return Status();
    });
  }
  Status detokenize(DetokenizeCommand asked, std::string_view text) {
    asked.directory = tern;
    std::istringstream input{std::string(text)};
    return run_detokenize(files, asked, input, [&](std::string_view piece) {
      out += piece;
      return Status();
    });
  }
};

TEST_F(Tokenizing, GivesIdsOneALineOrAsJson) {
  ASSERT_TRUE(tokenize({}, "Hello, world!"));
  EXPECT_EQ(out, "843\n11\n1373\n0\n");
  out.clear();
  ASSERT_TRUE(tokenize(as_json(), "Hello, world!"));
  EXPECT_EQ(out, "[843,11,1373,0]\n");
  out.clear();
  ASSERT_TRUE(tokenize(as_lines(), "\"Hello, world!\"\n\"\"\n\"a\\u0000b\"\n"));
  EXPECT_EQ(out, "[843,11,1373,0]\n[]\n[64,188,65]\n");
}

TEST_F(Tokenizing, TakesSpecialTokensForTextUnlessTold) {
  ASSERT_TRUE(tokenize(with_special(), "<|im_end|>"));
  EXPECT_EQ(out, "[4034]\n");
  out.clear();
  ASSERT_TRUE(tokenize(as_json(), "<|im_end|>"));
  EXPECT_NE(out, "[4034]\n");
}

TEST_F(Tokenizing, NamesTheLineThatIsWrong) {
  EXPECT_THAT(tokenize(as_lines(), "\"a\"\n5\n").error().message(),
              HasSubstr("line 2: expected a JSON string"));
  EXPECT_THAT(tokenize(as_lines(), "\"a\"\n\"b\n").error().message(), HasSubstr("line 2:1:"));
  EXPECT_THAT(detokenize({.directory = "", .jsonl = true}, "[1]\n[9999]\n").error().message(),
              HasSubstr("line 2: token 9999"));
  EXPECT_THAT(detokenize({}, "99999999999").error().message(),
              HasSubstr("99999999999 is not the id of a token"));
  EXPECT_EQ(tokenize(both(), "").error().code(), ErrorCode::invalid_argument);
}

TEST_F(Tokenizing, UnderstandsWhatItPrinted) {
  for (const char* ids : {"843\n11\n1373\n0\n", "[843,11,1373,0]", "843 11 1373 0"}) {
    out.clear();
    ASSERT_TRUE(detokenize({}, ids));
    EXPECT_EQ(out, "Hello, world!");
  }
  out.clear();
  ASSERT_TRUE(detokenize({.directory = "", .skip_special = true, .jsonl = true}, "[843,4034]\n[]\n"));
  EXPECT_EQ(out, "\"Hello\"\n\"\"\n");
}

}  // namespace
}  // namespace moeflux::cli
