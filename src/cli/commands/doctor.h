#pragma once
// `moeflux doctor`: describes this machine and how moeflux would use it, as a page or as JSON with the same
// numbers. Pure functions; any thread.

#include <string>

#include "cli/commands/command.h"
#include "measure/doctor.h"

namespace moeflux::cli {

std::string render_page(const Diagnosis& diagnosis);
std::string render_json(const Diagnosis& diagnosis);

Command add_doctor(CLI::App& program);

}  // namespace moeflux::cli
