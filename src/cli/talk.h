#pragma once
// A model that is ready to talk: its engine, one session, its text, and the options that a user gave.
//
// `run` asks it once, `chat` again and again; both go through generate(), the one generation loop. The session keeps
// what it has seen, so a conversation that goes on runs only what is new. One thread at a time.

#include <atomic>
#include <memory>
#include <string>

#include "base/json.h"
#include "base/log.h"
#include "base/result.h"
#include "cli/model_choice.h"
#include "cli/run_options.h"
#include "cli/traced_engine.h"
#include "engine/engine.h"
#include "generation/generate.h"
#include "generation/model_text.h"

namespace moeflux::cli {

struct TalkFlags {
  ModelChoice model;
  EngineFlags engine;
  SamplingFlags sampling;
  ReplyFlags reply;
  std::string tools;            // a JSON file of tools; empty: none
  std::string chat_template;    // a Jinja file instead of the model's own
  std::string template_kwargs;  // a JSON object of further variables for the template
  std::string reasoning;  // "on", "off" (the template's enable_thinking), or "auto": as the template has it
};

// What of a reply is told apart from its text; the rest is text, as the model writes it.
enum class ReplyReading { all, reasoning, nothing };

class Talk {
 public:
  // Reads everything small first: a wrong flag is found before the weights are read.
  static Result<Talk> open(FileSystem& files, const TalkFlags& flags, const Places& places, LogSink& log);

  const ChosenModel& model() const { return model_; }
  Engine& engine() { return *engine_; }
  // Writes the last of --trace; once, after the last answer.
  Status finish_trace() const { return engine_.finish_trace(); }
  Session& session() { return session_; }
  const ModelText& text() const { return *text_; }
  const GenerationOptions& options() const { return options_; }

  // The answer to a conversation, told to `listener` as it comes.
  Result<GenerationResult> answer(const Json& messages, GenerationListener& listener,
                                  const std::atomic<bool>* cancel, ReplyReading reading = ReplyReading::all);
  // Goes on with a text, without a template.
  Result<GenerationResult> go_on(std::string_view words, GenerationListener& listener,
                                 const std::atomic<bool>* cancel);

  // Another answer to the same question: the attempt is added to the seed that the user gave.
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
