#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <variant>

#include "base/overloaded.h"
#include "capi/boundary.h"
#include "capi/handles.h"
#include "generation/generate.h"
#include "text/template/messages.h"

namespace moeflux {
namespace {

constexpr std::size_t kFirstOptions = sizeof(mf_generate_options);
constexpr std::size_t kFirstResult = sizeof(mf_generate_result);

mf_finish finish_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::end_of_text: return MF_FINISH_END;
    case FinishReason::tool_calls: return MF_FINISH_TOOL_CALLS;
    case FinishReason::stop_string: return MF_FINISH_STOP;
    case FinishReason::length: return MF_FINISH_LENGTH;
    case FinishReason::context_full: return MF_FINISH_CONTEXT_FULL;
    case FinishReason::cancelled: return MF_FINISH_CANCELLED;
  }
  return MF_FINISH_END;
}

// Forwards events to the callback, which may stop the generation.
class CallbackListener final : public GenerationListener {
 public:
  CallbackListener(mf_event_callback callback, void* user) : callback_(callback), user_(user) {}

  void read_prompt(std::uint32_t done, std::uint32_t total) override {
    mf_event event{};
    event.kind = MF_EVENT_PROMPT;
    event.done = done;
    event.total = total;
    tell(event);
  }
  void chose(const ChosenToken& token) override {
    mf_event event{};
    event.kind = MF_EVENT_TOKEN;
    event.token = token.token.index();
    event.logprob = token.logprob;
    tell(event, token.bytes);
  }
  void said(const ReplyEvent& reply) override {
    mf_event event{};
    std::visit(overloaded{
                   [&](const ReplyText& text) {
                     event.kind = MF_EVENT_TEXT;
                     tell(event, text.text);
                   },
                   [&](const ReplyReasoning& reasoning) {
                     event.kind = MF_EVENT_REASONING;
                     tell(event, reasoning.text);
                   },
                   [&](const ToolCallFinished& call) {
                     const std::string name(call.name);
                     event.kind = MF_EVENT_TOOL_CALL;
                     event.name = name.c_str();
                     tell(event, call.arguments_json);
                   },
                   [](const ToolCallStarted&) {},
                   [](const ToolCallArguments&) {},
                   [](const ToolCallAbandoned&) {},
               },
               reply);
  }
  bool wants_more() const override { return wants_more_; }

 private:
  void tell(mf_event& event, std::string_view text = {}) {
    if (callback_ == nullptr || !wants_more_) return;
    event.struct_size = sizeof event;
    event.text = text.data();
    event.text_bytes = text.size();
    if (callback_(user_, &event) != 0) wants_more_ = false;
  }

  mf_event_callback callback_;
  void* user_;
  bool wants_more_ = true;
};

SamplingOptions sampling_of(const mf_generate_options& given, const SamplingDefaults& defaults) {
  SamplingOptions options = options_of(defaults);
  const auto take = [](auto& option, auto value) {
    if (value != 0) option = value;
  };
  take(options.temperature, given.temperature);
  take(options.top_k, given.top_k);
  take(options.top_p, given.top_p);
  take(options.min_p, given.min_p);
  take(options.repetition_penalty, given.repetition_penalty);
  take(options.presence_penalty, given.presence_penalty);
  take(options.frequency_penalty, given.frequency_penalty);
  options.logprobs = given.logprobs != 0;
  if (given.greedy != 0) options.temperature = 0;
  if (given.seed != 0) options.seed = given.seed;
  return options;
}

Result<GenerationOptions> generation_options_of(const mf_generate_options& given, const ModelText& text) {
  GenerationOptions options;
  options.sampling = sampling_of(given, text.defaults());
  if (given.max_tokens != 0) options.max_tokens = given.max_tokens;
  if (given.stop == nullptr && given.stop_count != 0) return null_argument("stop");
  for (std::size_t i = 0; i < given.stop_count; ++i) {
    if (given.stop[i] == nullptr) return null_argument(fmt::format("stop[{}]", i));
    options.stop.emplace_back(given.stop[i]);
  }
  options.json_object = given.json_object != 0;
  options.ignores_end = given.ignore_end != 0;
  return options;
}

// Makes the prompt from messages, text or tokens, and reads the tools for the reply.
Status read_prompt(const mf_generate_options& given, const ModelText& text, GenerationRequest& request) {
  const int ways =
      int{given.messages != nullptr} + int{given.prompt != nullptr} + int{given.tokens != nullptr};
  if (ways != 1)
    return Error(
        ErrorCode::invalid_argument,
        fmt::format("one of messages, prompt and tokens says what to answer, found {} of them", ways));
  if (given.messages == nullptr && (given.tools != nullptr || given.template_kwargs != nullptr))
    return Error(ErrorCode::invalid_argument, "tools and template_kwargs belong to messages");
  if (given.tokens != nullptr) {
    for (std::size_t i = 0; i < given.token_count; ++i) request.prompt.tokens.emplace_back(given.tokens[i]);
    return {};
  }
  if (given.prompt != nullptr) {
    MF_TRY(request.prompt, text_prompt(text, given.prompt, true));
    return {};
  }
  ChatInput input;
  MF_TRY(input.messages, parse_messages(given.messages, "messages"));
  if (given.tools != nullptr) {
    MF_TRY(input.tools, parse_tools(given.tools, "tools"));
    MF_TRY(request.tools, ToolSchemas::read(input.tools));
  }
  if (given.template_kwargs != nullptr) {
    MF_TRY(input.kwargs, parse_json(given.template_kwargs, "template_kwargs"));
    if (!input.kwargs.is_object())
      return Error(ErrorCode::invalid_argument, "template_kwargs must be a JSON object");
  }
  input.now = local_time();
  MF_TRY(request.prompt, chat_prompt(text, input));
  if (given.raw_reply != 0) request.prompt.reply = {};
  return {};
}

mf_generate_result result_of(const GenerationResult& found) {
  mf_generate_result result{};
  result.finish = finish_of(found.reason);
  result.prompt_tokens = found.statistics.prompt_tokens;
  result.reused_tokens = found.statistics.reused_tokens;
  result.reply_tokens = found.statistics.reply_tokens;
  result.stop = found.stop_string ? static_cast<std::int32_t>(*found.stop_string) : -1;
  result.seed = found.seed;
  result.prompt_seconds = found.statistics.prompt_seconds;
  result.reply_seconds = found.statistics.reply_seconds;
  return result;
}

}  // namespace
}  // namespace moeflux

using namespace moeflux;

mf_status mf_generate(mf_session* session, const mf_text* text, const mf_generate_options* options,
                      mf_event_callback callback, void* user, mf_generate_result* result, mf_message* why) {
  return at_boundary(why, [&]() -> Status {
    if (session == nullptr) return null_argument("session");
    if (text == nullptr) return null_argument("text");
    if (options == nullptr) return null_argument("options");
    if (result != nullptr && result->struct_size < kFirstResult)
      return wrong_struct_size("mf_generate_result", kFirstResult, result->struct_size);
    MF_TRY(const mf_generate_options known, read_options(options, "mf_generate_options", kFirstOptions));

    GenerationRequest request;
    MF_TRY(request.options, generation_options_of(known, text->text));
    MF_TRY_STATUS(read_prompt(known, text->text, request));
    request.cancel = known.cancel != nullptr ? &known.cancel->requested : nullptr;
    CallbackListener listener(callback, user);
    MF_TRY(const GenerationResult found, generate(session->session, text->text, request, listener));
    if (result == nullptr) return {};
    const std::uint32_t size = std::min<std::uint32_t>(result->struct_size, sizeof(mf_generate_result));
    mf_generate_result filled = result_of(found);
    filled.struct_size = result->struct_size;
    std::memcpy(result, &filled, size);
    return {};
  });
}
