#include "generation/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/tokens.h"
#include "sampling/json_object.h"

namespace moeflux {

std::string_view name_of(FinishReason reason) {
  constexpr std::array<std::string_view, 6> kNames{"end_of_text", "tool_calls",   "stop_string",
                                                   "length",      "context_full", "cancelled"};
  return kNames[static_cast<std::size_t>(reason)];
}

Generation::Generation(const GenerationSetting& setting, const GenerationOptions& options,
                       const Prompt& prompt, Sampler sampler)
    : setting_(setting),
      max_tokens_(options.max_tokens),
      ignores_end_(options.ignores_end),
      sampler_(std::move(sampler)),
      detokenizer_(setting.text.tokenizer(), true),
      // A JSON object is plain text, even if the prompt has opened a reasoning block.
      parser_(
          std::make_unique<ReplyParser>(options.json_object ? ReplyFormat() : prompt.reply, setting.tools)) {
  if (!options.stop.empty()) stops_.emplace(options.stop);
  if (options.json_object)
    constraint_ = std::make_unique<JsonObjectConstraint>(setting.text.json_vocabulary());
}

Generation::Generation(Generation&&) noexcept = default;
Generation::~Generation() = default;

Result<Generation> Generation::begin(const GenerationSetting& setting, const GenerationOptions& options,
                                     const Prompt& prompt, SamplingWorkspace& workspace) {
  if (!options.stop.empty()) MF_TRY_STATUS(StopStrings::check(options.stop));
  const std::size_t tokenizer_size = setting.text.tokenizer().vocabulary_size();
  if (options.json_object && tokenizer_size > workspace.vocabulary_size())
    return Error(
        ErrorCode::invalid_argument,
        fmt::format("the tokenizer has {} tokens but the model only {}; they belong to different models",
                    tokenizer_size, workspace.vocabulary_size()));
  MF_TRY(Sampler sampler, Sampler::create(options.sampling, workspace));
  MF_TRY_STATUS(check_vocabulary(prompt.tokens, workspace.vocabulary_size()));
  Generation generation(setting, options, prompt, std::move(sampler));
  for (const TokenId token : prompt.tokens) generation.sampler_.accept_prompt(token);
  return generation;
}

bool Generation::is_end(TokenId token) const {
  return std::ranges::binary_search(setting_.end_tokens, token);
}

FinishReason Generation::reason() const {
  MF_REQUIRE(is_finished(), "only a finished generation has a reason");
  return *reason_;
}

Result<std::optional<TokenId>> Generation::next(std::span<const float> logits, GenerationListener& listener) {
  MF_REQUIRE(!is_finished(), "a finished generation does not go on");
  if (tokens_.size() >= max_tokens_) {
    finish(FinishReason::length, listener);
    return std::optional<TokenId>();
  }
  MF_TRY(const Choice choice, sampler_.sample(logits, constraint_.get()));
  if (!ignores_end_ && is_end(choice.token)) {
    finish(FinishReason::end_of_text, listener);
    return std::optional<TokenId>();
  }
  sampler_.accept(choice.token);
  if (constraint_) constraint_->accept(choice.token);
  tokens_.push_back(choice.token);
  const TokenBytes& bytes = setting_.text.tokenizer().token_bytes();
  const bool has_bytes =
      choice.token.index() < bytes.size();  // the model's vocabulary may be larger than the tokenizer's
  listener.chose(
      {choice.token, has_bytes ? bytes[choice.token] : std::string_view(), choice.logprob, choice.top});
  say(detokenizer_.push(choice.token), listener);
  if (is_finished()) return std::optional<TokenId>();
  if (constraint_ && constraint_->can_end()) {  // the object is closed
    finish(FinishReason::end_of_text, listener);
    return std::optional<TokenId>();
  }
  if (tokens_.size() >= max_tokens_) {
    finish(FinishReason::length, listener);
    return std::optional<TokenId>();
  }
  return std::optional(choice.token);
}

void Generation::stop(FinishReason reason, GenerationListener& listener) {
  if (!is_finished()) finish(reason, listener);
}

// Passes text on through stop strings and the parser; may finish the generation.
void Generation::say(std::string_view text, GenerationListener& listener) {
  const auto emit = [&](const ReplyEvent& event) { listener.said(event); };
  if (!stops_) return parser_->push(text, emit);
  const StopStrings::Pushed pushed = stops_->push(text);
  parser_->push(pushed.text, emit);
  if (!pushed.stopped()) return;
  stop_string_ = pushed.which;
  finish(FinishReason::stop_string, listener);
}

void Generation::finish(FinishReason reason, GenerationListener& listener) {
  const auto emit = [&](const ReplyEvent& event) { listener.said(event); };
  reason_ = reason;
  if (reason != FinishReason::stop_string) {
    const std::string_view rest = detokenizer_.finish();
    if (stops_) {
      // Held-back text may still contain a stop string: it waited for a longer one or for the rest of a
      // character.
      for (int last = 0; last < 2 && !stop_string_; ++last) {
        const StopStrings::Pushed held = last == 0 ? stops_->push(rest) : stops_->finish();
        parser_->push(held.text, emit);
        if (!held.stopped()) continue;
        stop_string_ = held.which;
        reason_ = FinishReason::stop_string;
      }
    } else {
      parser_->push(rest, emit);
    }
  }
  reply_end_ = parser_->finish(emit);
  if (reason_ == FinishReason::end_of_text && reply_end_.finished_calls > 0)
    reason_ = FinishReason::tool_calls;
}

}  // namespace moeflux
