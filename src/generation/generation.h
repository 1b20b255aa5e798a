#pragma once
// One reply, token by token: logits in, the next token and what it means out.
//
// A Generation is the part of the loop that does not care who runs the model: it chooses tokens, turns them into text,
// looks for stop strings, reads reasoning and tool calls out of the text, and knows when it is over. generate() drives
// one over a session; a server drives many, a batch at a time.
//
//   MF_TRY(Generation generation, Generation::begin(setting, options, prompt, workspace));
//   while (true) {
//     MF_TRY(const std::optional<TokenId> token, generation.next(logits, listener));
//     if (!token) break;                  // finished: reason() says why
//     ...the model runs *token, which gives new logits...
//   }
//
// States: running -> finished (by next() or stop()). What the listener hears depends on the prompt, the options, the
// seed and the logits alone. Refers to the setting's model text, tools and to the workspace. One thread at a time.

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
#include "text/detokenizer.h"
#include "text/reply_parser.h"
#include "text/stop_strings.h"
#include "text/tool_schemas.h"

namespace moeflux {

struct GenerationOptions {
  static constexpr std::uint32_t kNoLimit = ~std::uint32_t{0};

  SamplingOptions sampling;
  std::uint32_t max_tokens = kNoLimit;  // of the reply; the context is a limit of its own
  std::vector<std::string> stop;        // the reply ends before the first of them
  bool json_object = false;             // the reply is one JSON object
  bool ignores_end = false;             // end tokens are tokens like others
};

enum class FinishReason {
  end_of_text,   // the model said so
  tool_calls,    // the same, and it has called tools
  stop_string,   // one of GenerationOptions::stop
  length,        // max_tokens
  context_full,  // the session has no room for another token
  cancelled,
};
// "end_of_text", ...
std::string_view name_of(FinishReason reason);

// A token that was chosen.
struct ChosenToken {
  TokenId token;
  std::string_view bytes;             // what it stands for; may be half a character
  float logprob;                      // of the model's own distribution
  std::span<const TokenLogprob> top;  // its most probable tokens: SamplingOptions::top_logprobs of them
};

// Who wants to hear. The calls come from within next(), stop() and generate(), in order.
class GenerationListener {
 public:
  virtual ~GenerationListener() = default;
  // `done` of `total` tokens of the prompt have been run or were there already.
  virtual void read_prompt(std::uint32_t /*done*/, std::uint32_t /*total*/) {}
  virtual void chose(const ChosenToken& /*token*/) {}
  virtual void said(const ReplyEvent& event) = 0;
  // Asked after each token and each step of the prompt; false ends the generation as if it were cancelled.
  virtual bool wants_more() const { return true; }

 protected:
  GenerationListener() = default;
  GenerationListener(const GenerationListener&) = default;
  GenerationListener& operator=(const GenerationListener&) = default;
};

// What a generation is about, besides its options. All of it outlives the generation.
struct GenerationSetting {
  const ModelText& text;
  std::span<const TokenId> end_tokens;  // ascending
  const ToolSchemas& tools;
};

class Generation {
 public:
  // Options that make no sense are refused by name, and so is a token that the vocabulary does not have. `workspace` is
  // of the model's vocabulary.
  static Result<Generation> begin(const GenerationSetting& setting, const GenerationOptions& options,
                                  const Prompt& prompt, SamplingWorkspace& workspace);

  Generation(Generation&&) noexcept;
  Generation& operator=(Generation&&) = delete;
  ~Generation();

  // The token after those that gave `logits`, or nothing: then it is finished.
  Result<std::optional<TokenId>> next(std::span<const float> logits, GenerationListener& listener);

  // Finishes from outside: cancelled, context_full or length.
  void stop(FinishReason reason, GenerationListener& listener);

  bool is_finished() const { return reason_.has_value(); }
  FinishReason reason() const;
  std::optional<std::size_t> stop_string() const { return stop_string_; }  // which one
  const ReplyEnd& reply_end() const { return reply_end_; }
  std::span<const TokenId> tokens() const { return tokens_; }  // of the reply, without an end token
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
