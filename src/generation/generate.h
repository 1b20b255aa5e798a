#pragma once
// The generation loop over a session: prompt in, a stream of events out.
//
// The session need not be empty: it keeps the tokens that it shares with the prompt and is rewound to where
// they differ. It keeps a checkpoint where the prompt of the next turn will differ from this one
// (Prompt::stable_tokens), so that answering again, or the next turn, runs only new tokens. Room in the
// context and memory for the whole prompt are checked before its first step.
//
// After a reply that the model ended itself the session has seen all of it, otherwise all but its last token.
// A cancel takes effect within one layer and is not an error: the listener keeps what it has received. One
// thread at a time, like the session.

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "engine/session.h"
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
  std::uint32_t reused_tokens = 0;  // prompt tokens that did not run again
  std::uint32_t reply_tokens = 0;
  std::uint64_t prompt_rows = 0;  // rows run for the prompt, including those run again to rewind
  double prompt_seconds = 0;      // until the logits of the last prompt token
  double reply_seconds = 0;       // from there to the end
  StepStatistics steps;           // of prompt and reply
  StepStatistics reply_steps;     // of the reply alone

  double prompt_tokens_per_second() const;  // of the rows that ran; 0 if none did
  double reply_tokens_per_second() const;
};

struct GenerationResult {
  FinishReason reason = FinishReason::end_of_text;
  std::optional<std::size_t> stop_string;  // index into GenerationOptions::stop
  std::vector<TokenId> tokens;             // the reply without its end token
  ReplyEnd reply;
  std::uint64_t seed = 0;
  GenerationStatistics statistics;
};

// Errors: those of Generation::begin and Session::extend, and invalid_argument for an empty prompt.
Result<GenerationResult> generate(Session& session, const ModelText& text, const GenerationRequest& request,
                                  GenerationListener& listener);

}  // namespace moeflux
