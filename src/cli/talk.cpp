#include "cli/talk.h"

#include <fmt/format.h>

#include "base/printable.h"
#include "base/sizes.h"
#include "cli/chosen_model.h"
#include "cli/input.h"
#include "model/packed_model.h"
#include "sampling/weight.h"
#include "text/template/messages.h"

namespace moeflux::cli {
namespace {

// Room for a quarter of the experts.
std::uint64_t demo_expert_cache_bytes(const PackedModel& packed) {
  std::uint64_t bytes = 0;
  for (const ExpertFile& file : packed.manifest().experts) bytes += file.bytes;
  return bytes / 4;
}

Result<Json> read_kwargs(const TalkFlags& flags) {
  MF_TRY(Json kwargs, parse_template_kwargs(flags.rendering.kwargs));
  if (flags.reasoning == "on" || flags.reasoning == "off")
    kwargs["enable_thinking"] = flags.reasoning == "on";
  else if (!flags.reasoning.empty() && flags.reasoning != "auto")
    return Error{ErrorCode::invalid_argument,
                 fmt::format("--reasoning must be on, off or auto, found '{}'", printable(flags.reasoning))};
  return kwargs;
}

}  // namespace

Result<Talk> Talk::open(FileSystem& files, const TalkFlags& flags, const Places& places, LogSink& log) {
  MF_TRY(EngineOptions engine_options, engine_options_of(flags.engine));
  MF_TRY(Json kwargs, read_kwargs(flags));
  Json tools;
  ToolSchemas schemas;
  if (!flags.rendering.tools.empty()) {
    MF_TRY(const std::string text,
           read_flag_file(files, kToolsFlag, flags.rendering.tools, kMaxTemplateBytes));
    MF_TRY(tools, parse_tools(text, flags.rendering.tools));
    MF_TRY(schemas, ToolSchemas::read(tools, flags.rendering.tools));
  }
  // Find every error that does not need a model before packing one.
  MF_TRY(const GenerationOptions plain, generation_options_of(flags.sampling, flags.reply, {}));
  MF_TRY_STATUS(check(plain.sampling, kMaxSampledVocabulary, kSamplingFlagNames));
  if (!plain.stop.empty()) MF_TRY_STATUS(StopStrings::check(plain.stop));
  std::string template_source;
  if (!flags.rendering.chat_template.empty()) {
    MF_TRY(template_source,
           read_flag_file(files, kChatTemplateFlag, flags.rendering.chat_template, kMaxTemplateBytes));
    MF_TRY_STATUS(ChatTemplate::parse(template_source, flags.rendering.chat_template));
  }
  MF_TRY(ChosenModel model, choose_model_with_bar(files, flags.model, places, log));
  MF_TRY(ModelText model_text, ModelText::open(files, model.packed));
  auto text = std::make_unique<ModelText>(std::move(model_text));
  if (!flags.rendering.chat_template.empty()) {
    MF_TRY_STATUS(text->use_template(template_source, flags.rendering.chat_template));
  }
  MF_TRY(GenerationOptions options, generation_options_of(flags.sampling, flags.reply, text->defaults()));
  MF_TRY(PackedModel packed, PackedModel::open(files, model.packed));
  MF_TRY_STATUS(check(options.sampling, packed.config().vocabulary, kSamplingFlagNames));

  // The demo shows streaming: its cache is smaller than the model.
  if (model.is_demo && engine_options.expert_cache_bytes == 0)
    engine_options.expert_cache_bytes = demo_expert_cache_bytes(packed);
  MF_TRY(TracedEngine engine,
         TracedEngine::open(files, std::move(packed), engine_options, flags.engine.trace));
  warn_of_top_experts(flags.engine.options.experts_per_token, engine->config(), log);
  if (text->chat_templates() == nullptr && engine->config().family == Family::deepseek_v3) {
    log.write(LogLevel::info, "the model has no chat template; using the built-in one of DeepSeek-V3");
    MF_TRY_STATUS(text->use_template(deepseek_v3_template(), "the built-in template"));
  }
  MF_TRY(Session session, engine->new_session());
  Talk talk(std::move(model), std::move(text), std::move(engine), std::move(session));
  talk.options_ = std::move(options);
  talk.tools_ = std::move(tools);
  talk.schemas_ = std::move(schemas);
  talk.kwargs_ = std::move(kwargs);
  return talk;
}

Result<Prompt> Talk::prompt_of(const Json& messages) const {
  ChatInput input;
  input.messages = messages;
  input.tools = tools_;
  input.kwargs = kwargs_;
  input.now = local_time();
  return chat_prompt(*text_, input);
}

Result<GenerationResult> Talk::run(Prompt prompt, GenerationListener& listener,
                                   const std::atomic<bool>* cancel) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.options = options_;
  if (options_.sampling.seed) request.options.sampling.seed = *options_.sampling.seed + attempt_;
  request.tools = schemas_;
  request.cancel = cancel;
  return generate(session_, *text_, request, listener);
}

Result<GenerationResult> Talk::answer(const Json& messages, GenerationListener& listener,
                                      const std::atomic<bool>* cancel, ReplyReading reading) {
  MF_TRY(Prompt prompt, prompt_of(messages));
  if (reading == ReplyReading::nothing) prompt.reply = {};
  if (reading == ReplyReading::reasoning) prompt.reply.tools = ToolFormat::none;
  return run(std::move(prompt), listener, cancel);
}

Result<GenerationResult> Talk::continue_text(std::string_view words, GenerationListener& listener,
                                             const std::atomic<bool>* cancel) {
  MF_TRY(Prompt prompt, text_prompt(*text_, words, true));
  return run(std::move(prompt), listener, cancel);
}

}  // namespace moeflux::cli
