#pragma once
// One reply, token by token: logits in, the next token and its meaning out.
//
// A Generation is the part of the generation loop that does not run the model: it chooses tokens, turns them
// into text, finds stop strings, parses reasoning and tool calls, and decides when the reply ends. generate()
// drives one over a session; a server drives many, one batch at a time.
//
//   MF_TRY(Generation generation, Generation::begin(setting, options, prompt, workspace));
//   while (true) {
//     MF_TRY(const std::optional<TokenId> token, generation.next(logits, listener));
//     if (!token) break;                  // finished; see reason()
//     ...the model runs *token and computes new logits...
//   }
//
// States: running -> finished (by next() or stop()). What the listener receives depends on the prompt, the
// options, the seed and the logits alone. Borrows the setting's model text and tools, and the workspace. One
// thread at a time.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "generation/model_text.h"
#include "generation/prompt.h"
#include "sampling/constraint.h"
#include "sampling/sampler.h"
#include "text/reply/reply_parser.h"
#include "text/reply/stop_strings.h"
#include "text/reply/tool_schemas.h"
#include "text/tokenizer/detokenizer.h"

namespace moeflux {

struct GenerationOptions {
  static constexpr std::uint32_t kNoLimit = ~std::uint32_t{0};

  SamplingOptions sampling;
  std::uint32_t max_tokens = kNoLimit;  // of the reply; the context limits it as well
  std::vector<std::string> stop;        // the reply ends before the first of them
  bool json_object = false;             // the reply is one JSON object
  bool ignores_end = false;             // end tokens do not end the reply
};

enum class FinishReason {
  end_of_text,   // the model wrote an end token, or its JSON object is complete
  tool_calls,    // the same, and the reply calls tools
  stop_string,   // one of GenerationOptions::stop
  length,        // max_tokens
  context_full,  // the session has no room for another token
  cancelled,
};
// "end_of_text", ...
std::string_view name_of(FinishReason reason);

// A chosen token.
struct ChosenToken {
  TokenId token;
  std::string_view bytes;             // its text; may end within a character
  float logprob;                      // of the model's own distribution
  std::span<const TokenLogprob> top;  // its most probable tokens: SamplingOptions::top_logprobs of them
};

// Receives the events of a generation, in order, on the thread that calls next(), stop() or generate().
class GenerationListener {
 public:
  virtual ~GenerationListener() = default;
  // `done` of `total` prompt tokens have run or were reused.
  virtual void read_prompt(std::uint32_t /*done*/, std::uint32_t /*total*/) {}
  virtual void chose(const ChosenToken& /*token*/) {}
  virtual void said(const ReplyEvent& event) = 0;
  // Called after each reply token and each step of the prompt; false cancels the generation.
  virtual bool wants_more() const { return true; }

 protected:
  GenerationListener() = default;
  GenerationListener(const GenerationListener&) = default;
  GenerationListener& operator=(const GenerationListener&) = default;
};

// The inputs of a generation besides its options. All of them must outlive the generation.
struct GenerationSetting {
  const ModelText& text;
  std::span<const TokenId> end_tokens;  // ascending
  const ToolSchemas& tools;
};

class Generation {
 public:
  // `workspace` has the size of the model's vocabulary. Refuses invalid options by name, and tokens outside
  // the vocabulary.
  static Result<Generation> begin(const GenerationSetting& setting, const GenerationOptions& options,
                                  const Prompt& prompt, SamplingWorkspace& workspace);

  Generation(Generation&&) noexcept;
  Generation& operator=(Generation&&) = delete;
  ~Generation();

  // Chooses the next token from `logits`. Returns nullopt when the reply is finished. Requires: not finished.
  Result<std::optional<TokenId>> next(std::span<const float> logits, GenerationListener& listener);

  // Finishes the reply from outside: cancelled, context_full or length. No-op if it is finished.
  void stop(FinishReason reason, GenerationListener& listener);

  bool is_finished() const { return reason_.has_value(); }
  FinishReason reason() const;
  std::optional<std::size_t> stop_string() const { return stop_string_; }  // its index
  const ReplyEnd& reply_end() const { return reply_end_; }
  std::span<const TokenId> tokens() const { return tokens_; }  // without the end token
  std::uint64_t seed() const { return sampler_.seed(); }

 private:
  Generation(const GenerationSetting& setting, const GenerationOptions& options, const Prompt& prompt,
             Sampler sampler);

  bool is_end(TokenId token) const;
  void say(std::string_view text, GenerationListener& listener);
  void finish(FinishReason reason, GenerationListener& listener);

  GenerationSetting setting_;
  std::uint32_t max_tokens_;
  bool ignores_end_;
  Sampler sampler_;
  std::unique_ptr<Constraint> constraint_;  // null: none
  Detokenizer detokenizer_;
  std::optional<StopStrings> stops_;
  std::unique_ptr<ReplyParser> parser_;
  std::vector<TokenId> tokens_;
  std::optional<FinishReason> reason_;
  std::optional<std::size_t> stop_string_;
  ReplyEnd reply_end_;
};

}  // namespace moeflux
