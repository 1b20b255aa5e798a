#pragma once
// The generation loop over a session: prompt in, a stream of events out.
//
// The session need not be empty: what it has in common with the prompt is kept, and it goes back to where they part.
// A checkpoint is left where the prompt of the next turn will part from this one (Prompt::stable_tokens), so that
// answering again, or the next turn, runs only what is new. After a reply that the model ended itself the session has seen
// all of it, otherwise all but its last token. Cancelling takes effect within a layer, and is not an error: what was said so far stays said.
// One thread at a time, like the session.

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "generation/generation.h"

namespace moeflux {

struct GenerationRequest {
  Prompt prompt;  // at least one token
  GenerationOptions options;
  ToolSchemas tools;
  const std::atomic<bool>* cancel = nullptr;
};

struct GenerationStatistics {
  std::uint32_t prompt_tokens = 0;
  std::uint32_t reused_tokens = 0;  // of these, not run again
  std::uint32_t reply_tokens = 0;
  std::uint64_t prompt_rows = 0;  // run for it: also of what the session had to go back for
  double prompt_seconds = 0;      // until the logits of the last of them
  double reply_seconds = 0;       // from there to the end
  StepStatistics steps;           // of both
  StepStatistics reply_steps;     // of the reply alone

  double prompt_tokens_per_second() const;  // of those that were run; 0: none were
  double reply_tokens_per_second() const;
};

struct GenerationResult {
  FinishReason reason = FinishReason::end_of_text;
  std::optional<std::size_t> stop_string;  // index into GenerationOptions::stop
  std::vector<TokenId> tokens;             // of the reply, without an end token
  ReplyEnd reply;
  std::uint64_t seed = 0;
  GenerationStatistics statistics;
};

Result<GenerationResult> generate(Session& session, const ModelText& text, const GenerationRequest& request,
                                  GenerationListener& listener);

}  // namespace moeflux
