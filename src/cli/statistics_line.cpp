#include "cli/statistics_line.h"

#include <fmt/format.h>

#include "base/sizes.h"

namespace moeflux::cli {
namespace {

std::string tokens(std::uint64_t count) {
  return fmt::format("{} token{}", with_thousands(count), count == 1 ? "" : "s");
}

std::uint64_t percent(std::uint64_t part, std::uint64_t all) {
  return static_cast<std::uint64_t>(100.0 * static_cast<double>(part) / static_cast<double>(all) + 0.5);
}

}  // namespace

std::string short_number(double number) {
  if (number >= 99.95) return with_thousands(static_cast<std::uint64_t>(number + 0.5));
  return number >= 9.995 ? fmt::format("{:.1f}", number) : fmt::format("{:.2f}", number);
}

std::string statistics_line(const GenerationResult& result, const StreamingReport& report) {
  const GenerationStatistics& numbers = result.statistics;
  std::string line = tokens(numbers.reply_tokens);
  if (numbers.reply_tokens > 0)
    line += fmt::format(" · {} tok/s", short_number(numbers.reply_tokens_per_second()));
  line += fmt::format(" · prompt {}", tokens(numbers.prompt_tokens));
  if (numbers.prompt_rows > 0)
    line += fmt::format(", {} tok/s", short_number(numbers.prompt_tokens_per_second()));
  if (numbers.reused_tokens > 0) line += fmt::format(", {} reused", with_thousands(numbers.reused_tokens));
  // If all experts fit, each is read once, so there is nothing to report.
  if (report.slots < report.records) line += streaming_part(numbers.reply_steps, numbers.reply_steps.rows);
  switch (result.reason) {
    case FinishReason::length: return line + " · stopped at the limit of tokens";
    case FinishReason::context_full: return line + " · the context is full";
    case FinishReason::cancelled: return line + " · stopped";
    case FinishReason::stop_string:
    case FinishReason::end_of_text:
    case FinishReason::tool_calls: break;
  }
  return line;
}

std::string streaming_part(const StepStatistics& steps, std::uint64_t tokens) {
  const ExpertStatistics& experts = steps.experts;
  if (experts.read_bytes() == 0 || experts.wanted() == 0 || tokens == 0) return {};
  const double read = static_cast<double>(experts.read_bytes());
  const double seconds = std::chrono::duration<double>(experts.reading).count();
  std::string part = fmt::format(" · hits {} %, {}/token", percent(experts.hits, experts.wanted()),
                                 human_bytes(experts.read_bytes() / tokens));
  if (seconds > 0) part += fmt::format(" at {} GB/s", short_number(read / seconds / 1e9));
  if (steps.took.count() > 0)
    part += fmt::format(", wait {} %", percent(static_cast<std::uint64_t>(experts.waiting.count()),
                                               static_cast<std::uint64_t>(steps.took.count())));
  return part;
}

std::string streaming_line(const StreamingReport& report) {
  if (report.records == 0) return "none: every token visits all weights";
  std::string line =
      report.slots == report.records
          ? fmt::format("room for all {}", with_thousands(report.records))
          : fmt::format("room for {} of {}", with_thousands(report.slots), with_thousands(report.records));
  if (!report.drive.empty()) line += " · " + report.drive;
  return line;
}

void show_streaming(const Engine& engine, bool is_quiet, LogSink& log) {
  if (!is_quiet) log.write(LogLevel::info, "experts: " + streaming_line(engine.streaming()));
  for (const std::string& note : engine.streaming().notes) log.write(LogLevel::warning, note);
}

Json json_of(const ExpertStatistics& experts) {
  Json json;
#define MF_COUNTER(name) json[#name] = experts.name;
  MF_EXPERT_COUNTERS(MF_COUNTER)
#undef MF_COUNTER
#define MF_TIME(name) json[#name "_seconds"] = std::chrono::duration<double>(experts.name).count();
  MF_EXPERT_TIMES(MF_TIME)
#undef MF_TIME
  return json;
}

std::string memory_line(const MemoryPlan& plan) {
  std::string text = human_bytes(plan.total_bytes());
  if (plan.usable_bytes != 0) text += fmt::format(" of {}", human_bytes(plan.usable_bytes));
  return fmt::format("{}: weights {}, experts {}, context {}, workspace {}", text,
                     human_bytes(plan.weights_bytes + plan.derived_bytes), human_bytes(plan.experts_bytes),
                     human_bytes(plan.kv_bytes + plan.recurrent_bytes), human_bytes(plan.workspace_bytes));
}

}  // namespace moeflux::cli
