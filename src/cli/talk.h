#pragma once
// A model that is ready to answer: its engine, one session, its text, and the user's options.
//
// `run` uses it once, `chat` repeatedly; both call generate(), the only generation loop. The session keeps
// its tokens, so a conversation runs only the new ones. One thread at a time.

#include <atomic>
#include <memory>
#include <string>

#include "base/json/json.h"
#include "base/log.h"
#include "base/result.h"
#include "cli/flags/engine_flags.h"
#include "cli/flags/generation_flags.h"
#include "cli/input.h"
#include "cli/traced_engine.h"
#include "engine/session.h"
#include "generation/generate.h"
#include "generation/model_text.h"
#include "library/model_choice.h"

namespace moeflux::cli {

struct TalkFlags {
  ModelChoice model;
  EngineFlags engine;
  SamplingFlags sampling;
  ReplyFlags reply;
  RenderingFlags rendering;
  std::string reasoning;  // "on", "off" (the template's enable_thinking), or "auto": the template's default
};

// Which parts of a reply are separated from its text.
enum class ReplyReading { all, reasoning, nothing };

class Talk {
 public:
  // Reads the small files first, so a wrong flag is reported before any weights are read.
  static Result<Talk> open(FileSystem& files, const TalkFlags& flags, const Places& places, LogSink& log);

  const ChosenModel& model() const { return model_; }
  Engine& engine() { return *engine_; }
  // Completes the file of --trace. Call once, after the last answer.
  Status finish_trace() const { return engine_.finish_trace(); }
  Session& session() { return session_; }
  const ModelText& text() const { return *text_; }
  const GenerationOptions& options() const { return options_; }

  // Answers a conversation and reports to `listener` as the answer arrives.
  Result<GenerationResult> answer(const Json& messages, GenerationListener& listener,
                                  const std::atomic<bool>* cancel, ReplyReading reading = ReplyReading::all);
  // Continues a text, without a template.
  Result<GenerationResult> continue_text(std::string_view words, GenerationListener& listener,
                                         const std::atomic<bool>* cancel);

  // Makes later answers differ: the attempt is added to the user's seed.
  void set_attempt(std::uint64_t attempt) { attempt_ = attempt; }
  std::uint64_t attempt() const { return attempt_; }

 private:
  Talk(ChosenModel model, std::unique_ptr<ModelText> text, TracedEngine engine, Session session)
      : model_(std::move(model)),
        text_(std::move(text)),
        engine_(std::move(engine)),
        session_(std::move(session)) {}

  Result<Prompt> prompt_of(const Json& messages) const;
  Result<GenerationResult> run(Prompt prompt, GenerationListener& listener, const std::atomic<bool>* cancel);

  ChosenModel model_;
  std::unique_ptr<ModelText> text_;
  TracedEngine engine_;
  Session session_;
  GenerationOptions options_;
  std::uint64_t attempt_ = 0;
  Json tools_;  // null: none
  ToolSchemas schemas_;
  Json kwargs_ = Json::object();
};

}  // namespace moeflux::cli
