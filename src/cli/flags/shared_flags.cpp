#include "cli/flags/shared_flags.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <thread>

#include "cli/flags/flag_groups.h"

namespace moeflux::cli {
namespace {

void add_model_flags(CLI::App& command, ModelChoice& model) {
  command
      .add_option("-m,--model", model.model, "A packed model, or a checkpoint (packed into the cache, once)")
      ->group(kWhat);
  command
      .add_option("--hf-repo", model.hf_repo, "-hf ORG/NAME: a checkpoint in the local Hugging Face cache")
      ->group(kWhat);
}

}  // namespace

void add_rendering_flags(CLI::App& command, RenderingFlags& flags, const char* group) {
  const auto add = [&](const char* names, std::string& value, const char* help) {
    CLI::Option* const option = command.add_option(names, value, help);
    if (group != nullptr) option->group(group);
  };
  add("--tools", flags.tools, "A JSON file of tools, in OpenAI's format");
  add("--chat-template,--chat-template-file", flags.chat_template,
      "A Jinja file instead of the model's own template");
  add("--chat-template-kwargs", flags.kwargs, "A JSON object of variables for the template");
}

void add_talk_flags(CLI::App& command, TalkFlags& talk) {
  add_model_flags(command, talk.model);
  add_rendering_flags(command, talk.rendering, kWhat);
  command
      .add_option("--reasoning", talk.reasoning,
                  "on, off or auto: auto leaves it to the template (default: auto)")
      ->group(kWhat);
  add_engine_flags(command, talk.engine);
  add_context_flag(command, talk.engine);
  add_streaming_flags(command, talk.engine);
  add_sampling_flags(command, talk.sampling);
  add_reply_flags(command, talk.reply);
}

void add_jobs_flag(CLI::App& command, unsigned& jobs) {
  jobs = std::max(1u, std::thread::hardware_concurrency());
  command.add_option("--jobs", jobs, "Number of threads (default: one per logical core)")
      ->check(CLI::Range(1u, 256u));
}

void take_environment(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    if (option->get_lnames().empty() || option->get_positional() || option->get_lnames()[0] == "help")
      continue;
    std::string name = option->get_lnames()[0];
    std::ranges::transform(name, name.begin(), [](unsigned char c) {
      return c == '-' ? '_' : static_cast<char>(std::toupper(c));
    });
    option->envname("MOEFLUX_ARG_" + name);
    if (option->get_items_expected_max() == 1) option->take_last();  // given twice, the last counts
  }
}

}  // namespace moeflux::cli
