#include "engine/options/option_table.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/overloaded.h"

namespace moeflux {

using E = EngineOptions;
using enum OptionGroup;

static_assert(kDefaultContext == 8192, "the help of --ctx-size names it");

constinit const std::array<EngineOption, kEngineOptionCount> kEngineOptions{{
    {OptionId::threads, "threads", "--threads", "-t", "Number of threads", "", "one per physical core",
     compute, NumberOption{&E::threads, 1, kMaxEngineThreads}},
    {OptionId::step_rows, "step_rows", "--batch-size", "-b", "Prompt tokens per step", "", "", compute,
     NumberOption{&E::step_rows, 1, kMaxStepRows}},
    {OptionId::precision, "precision", "--precision", "", "exact or fast", "fast", "", compute,
     TextOption{set_precision}},
    {OptionId::kv_numbers, "kv_numbers", "--kv", "", "Dtype of keys and values: f32, bf16 or int8", "f32", "",
     compute, TextOption{set_kv_dtype}},
    {OptionId::isa, "isa", "--isa", "", "Kernels, as 'moeflux doctor' lists them", "", "the fastest", compute,
     TextOption{set_isa}},
    {OptionId::experts_per_token, "experts_per_token", "--top-experts", "",
     "Experts per token, if fewer than the model's own; faster, but changes the results", "", "", compute,
     NumberOption{&E::experts_per_token, 1, 65536}},
    {OptionId::sessions, "sessions", "", "", "", "", "", none, NumberOption{&E::sessions, 1, kMaxSessions}},
    {OptionId::context, "context", "--ctx-size", "-c", "Positions for prompt and reply", "",
     "8192, or the model's own limit if that is less", context, NumberOption{&E::context, 0, 1u << 24}},
    {OptionId::expert_cache_bytes, "expert_cache_bytes", "--expert-cache", "",
     "Memory for experts, as in 2G or 512M", "", "what the memory plan leaves, or room for all", streaming,
     SizeOption{&E::expert_cache_bytes, set_expert_cache}},
    {OptionId::io, "io", "--io", "", "uring, pread, buffered, or sim:BANDWIDTH,LATENCY as in sim:3G,100us",
     "", "chosen by what fits in memory", streaming, TextOption{set_drive}},
    {OptionId::prefetch, "prefetch", "--prefetch", "",
     "previous: while the drive idles, read the last token's experts for the next one, and in prompts the "
     "next layer's; off: read only what is needed",
     "previous", "", streaming, ChoiceOption{set_prefetch, {"previous", "off"}}},
    {OptionId::verify_reads, "verify_reads", "--verify-reads", "",
     "Check the checksum of every expert that is read", "", "", streaming, SwitchOption{&E::verifies_reads}},
    {OptionId::kv_budget_bytes, "kv_budget_bytes", "", "", "", "", "", none,
     SizeOption{&E::kv_budget_bytes, nullptr}},
    {OptionId::usable_memory_bytes, "usable_memory_bytes", "", "", "", "", "", none,
     SizeOption{&E::usable_memory_bytes, nullptr}},
}};

Status set_option(EngineOptions& options, const EngineOption& option, std::uint64_t number) {
  return std::visit(overloaded{
                        [&](const NumberOption& kind) -> Status {
                          if (number != 0) options.*kind.member = static_cast<std::uint32_t>(number);
                          return {};
                        },
                        [&](const SizeOption& kind) -> Status {
                          if (number != 0) options.*kind.member = number;
                          return {};
                        },
                        [&](const SwitchOption& kind) -> Status {
                          options.*kind.member = number != 0;
                          return {};
                        },
                        [&](const ChoiceOption& kind) -> Status {
                          if (number < kind.texts.size()) return kind.set(options, kind.texts[number]);
                          return Error(ErrorCode::invalid_argument,
                                       fmt::format("expected 0 ({}) or 1 ({}), found {}", kind.texts[0],
                                                   kind.texts[1], number));
                        },
                        [&](const TextOption&) -> Status {
                          MF_REQUIRE(false, "a text option is set from its text");
                          return {};
                        },
                    },
                    option.kind);
}

std::string default_in_help(const EngineOption& option) {
  if (*option.default_help != '\0') return fmt::format("(default: {})", option.default_help);
  if (*option.default_value != '\0') return fmt::format("(default: {})", option.default_value);
  const auto* const number = std::get_if<NumberOption>(&option.kind);
  if (number == nullptr || EngineOptions().*number->member == 0) return "";
  return fmt::format("(default: {})", EngineOptions().*number->member);
}

}  // namespace moeflux
