#pragma once
// The line after an answer: what it was, how fast it came. Pure functions.

#include <string>

#include "generation/generate.h"

namespace moeflux::cli {

// "38 tokens · 41.2 tok/s · prompt 17 tokens, 210 tok/s · 5 reused". Where an answer did not end by itself it says why.
std::string statistics_line(const GenerationResult& result);

// Three significant digits: "0.42", "41.2", "1,950".
std::string short_number(double number);

}  // namespace moeflux::cli
