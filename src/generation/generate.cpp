#include "generation/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace moeflux {
namespace {

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

double per_second(double tokens, double seconds) { return tokens > 0 && seconds > 0 ? tokens / seconds : 0; }

std::vector<TokenId> end_tokens_of(const Engine& engine, const ModelText& text) {
  std::vector<TokenId> tokens(text.end_tokens().begin(), text.end_tokens().end());
  const std::vector<TokenId>& others = engine.config().end_tokens;
  tokens.insert(tokens.end(), others.begin(), others.end());
  std::ranges::sort(tokens);
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

Error listener_stopped() { return {ErrorCode::cancelled, "the listener stopped the generation"}; }

// Moves the session to the end of a prompt, reusing what it has seen already.
class PromptReader {
 public:
  PromptReader(Session& session, const Prompt& prompt, const StepOptions& step, GenerationListener& listener)
      : session_(session), prompt_(prompt), step_(step), listener_(listener) {}

  // `logits`: those after the last token.
  Status read(std::span<float> logits, GenerationStatistics& statistics) {
    const std::span<const TokenId> tokens = prompt_.tokens;
    const auto total = static_cast<std::uint32_t>(tokens.size());
    statistics.prompt_tokens = total;
    const std::uint32_t kept = kept_tokens();
    std::uint32_t ran = 0;  // rows, committed behind the position where the session began
    const auto after_step = [&](const StepStatistics& step) -> Status {
      statistics.steps += step;
      ran += static_cast<std::uint32_t>(step.rows);
      listener_.read_prompt(session_.position(), total);
      if (!listener_.wants_more()) return listener_stopped();
      return {};
    };
    const ExtendOptions options{.step = step_, .checkpoint_at = prompt_.stable_tokens};
    listener_.read_prompt(kept, total);
    MF_TRY_STATUS(session_.replace_after(kept, tokens.subspan(kept), logits, options, after_step));
    statistics.reused_tokens = session_.position() - ran;
    return {};
  }

 private:
  // The first tokens of the prompt that the session has seen. The last token of the prompt always runs: its
  // logits are wanted.
  std::uint32_t kept_tokens() const {
    const std::span<const TokenId> tokens = prompt_.tokens;
    const bool knows_all = session_.tokens_begin() == 0;
    const std::uint32_t common = knows_all ? common_prefix(session_.tokens(), tokens) : 0;
    return std::min(common, static_cast<std::uint32_t>(tokens.size()) - 1);
  }

  Session& session_;
  const Prompt& prompt_;
  const StepOptions& step_;
  GenerationListener& listener_;
};

// Runs the reply. `logits`: in, those after the prompt; overwritten by every step.
Status write_reply(Session& session, Generation& generation, std::span<float> logits, const StepOptions& step,
                   GenerationListener& listener, StepStatistics& steps) {
  while (true) {
    MF_TRY(const std::optional<TokenId> token, generation.next(logits, listener));
    if (!token) return {};
    if (!listener.wants_more()) return listener_stopped();
    if (session.position() == session.context()) {
      generation.stop(FinishReason::context_full, listener);
      return {};
    }
    MF_TRY(const StepStatistics run, session.extend({&*token, 1}, logits, step));
    steps += run;
  }
}

Status check_room(const Session& session, const Prompt& prompt) {
  if (prompt.tokens.empty()) return Error(ErrorCode::invalid_argument, "a prompt needs at least one token");
  if (prompt.tokens.size() > session.context())
    return Error(ErrorCode::context_full,
                 fmt::format("a prompt of {} tokens does not fit into a context of {}", prompt.tokens.size(),
                             session.context()));
  return {};
}

}  // namespace

double GenerationStatistics::prompt_tokens_per_second() const {
  return per_second(static_cast<double>(prompt_rows), prompt_seconds);
}
double GenerationStatistics::reply_tokens_per_second() const {
  return per_second(reply_tokens, reply_seconds);
}

Result<GenerationResult> generate(Session& session, const ModelText& text, const GenerationRequest& request,
                                  GenerationListener& listener) {
  MF_TRY_STATUS(check_room(session, request.prompt));
  const std::size_t vocabulary = session.engine().config().vocabulary;
  SamplingWorkspace workspace(vocabulary);
  const std::vector<TokenId> end_tokens = end_tokens_of(session.engine(), text);
  MF_TRY(Generation generation,
         Generation::begin({text, end_tokens, request.tools}, request.options, request.prompt, workspace));
  const StepOptions step{nullptr, request.cancel};
  std::vector<float> logits(vocabulary);
  GenerationResult result;

  const Stopwatch reading;
  Status run = PromptReader(session, request.prompt, step, listener).read(logits, result.statistics);
  result.statistics.prompt_seconds = reading.seconds();
  result.statistics.prompt_rows = result.statistics.steps.rows;
  const Stopwatch writing;
  if (run) run = write_reply(session, generation, logits, step, listener, result.statistics.reply_steps);
  result.statistics.steps += result.statistics.reply_steps;
  result.statistics.reply_seconds = writing.seconds();
  if (!run) generation.stop(FinishReason::cancelled, listener);  // flushes held-back text in either case
  if (!run && run.error().code() != ErrorCode::cancelled) return std::move(run).error();

  result.reason = generation.reason();
  result.stop_string = generation.stop_string();
  result.tokens.assign(generation.tokens().begin(), generation.tokens().end());
  result.reply = generation.reply_end();
  result.seed = generation.seed();
  result.statistics.reply_tokens = static_cast<std::uint32_t>(result.tokens.size());
  return result;
}

}  // namespace moeflux
