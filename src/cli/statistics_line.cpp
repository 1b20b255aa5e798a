#include "cli/statistics_line.h"

#include <fmt/format.h>

#include "base/sizes.h"

namespace moeflux::cli {
namespace {

std::string tokens(std::uint64_t count) {
  return fmt::format("{} token{}", with_thousands(count), count == 1 ? "" : "s");
}

}  // namespace

std::string short_number(double number) {
  if (number >= 99.95) return with_thousands(static_cast<std::uint64_t>(number + 0.5));
  return number >= 9.995 ? fmt::format("{:.1f}", number) : fmt::format("{:.2f}", number);
}

std::string statistics_line(const GenerationResult& result) {
  const GenerationStatistics& numbers = result.statistics;
  std::string line = tokens(numbers.reply_tokens);
  if (numbers.reply_tokens > 0)
    line += fmt::format(" · {} tok/s", short_number(numbers.reply_tokens_per_second()));
  line += fmt::format(" · prompt {}", tokens(numbers.prompt_tokens));
  if (numbers.prompt_rows > 0)
    line += fmt::format(", {} tok/s", short_number(numbers.prompt_tokens_per_second()));
  if (numbers.reused_tokens > 0) line += fmt::format(", {} reused", with_thousands(numbers.reused_tokens));
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

std::string memory_line(const MemoryPlan& plan) {
  std::string text = human_bytes(plan.total_bytes());
  if (plan.usable_bytes != 0) text += fmt::format(" of {}", human_bytes(plan.usable_bytes));
  return fmt::format("{}: weights {}, experts {}, context {}, workspace {}", text,
                     human_bytes(plan.weights_bytes + plan.derived_bytes), human_bytes(plan.experts_bytes),
                     human_bytes(plan.kv_bytes + plan.recurrent_bytes), human_bytes(plan.workspace_bytes));
}

}  // namespace moeflux::cli
