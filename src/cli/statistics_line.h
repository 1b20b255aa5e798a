#pragma once
// Lines about a running model: answers, speed, memory. All but show_streaming() are pure functions; any
// thread.

#include <string>

#include "base/json/json.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/memory_plan.h"
#include "generation/generate.h"

namespace moeflux::cli {

// "38 tokens · 41.2 tok/s · prompt 17 tokens, 210 tok/s, 5 reused". Adds expert streaming if not all experts
// fit in memory, and the reason if the answer did not end by itself.
std::string statistics_line(const GenerationResult& result, const StreamingReport& report);

// " · hits 84 %, 12.3 MB/token at 2.91 GB/s, wait 31 %": streaming for `tokens` tokens, or "" if nothing was
// read.
std::string streaming_part(const StepStatistics& steps, std::uint64_t tokens);

// "room for 320 of 1,280 · io_uring, direct reads, fixed buffers".
std::string streaming_line(const StreamingReport& report);

// Logs that line unless `is_quiet`, and the warnings of the report.
void show_streaming(const Engine& engine, bool is_quiet, LogSink& log);

Json json_of(const ExpertStatistics& experts);

// "60.0 MB of 22.8 GB: weights 4.01 MB, experts 29.4 MB, context 18.5 MB, workspace 8.16 MB": a plan in one
// line.
std::string memory_line(const MemoryPlan& plan);

// Three significant digits: "0.42", "41.2", "1,950".
std::string short_number(double number);

}  // namespace moeflux::cli
