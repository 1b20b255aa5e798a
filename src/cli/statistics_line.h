#pragma once
// Lines about a model at work: what an answer was and how fast it came, where memory goes. Pure functions.

#include <string>

#include "engine/memory_plan.h"
#include "generation/generate.h"

namespace moeflux::cli {

// "38 tokens · 41.2 tok/s · prompt 17 tokens, 210 tok/s · 5 reused". Where an answer did not end by itself it says why.
std::string statistics_line(const GenerationResult& result);

// "60.0 MB of 22.8 GB: weights 4.01 MB, experts 29.4 MB, context 18.5 MB, workspace 8.16 MB": a plan in one line.
std::string memory_line(const MemoryPlan& plan);

// Three significant digits: "0.42", "41.2", "1,950".
std::string short_number(double number);

}  // namespace moeflux::cli
