#include "cli/flags/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/printable.h"

namespace moeflux::cli {

Result<std::vector<std::string>> with_long_names(int argc, char** argv) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kNames{
      {{"-hf", "--hf-repo"}, {"-sys", "--system-prompt"}}};
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  std::vector<std::string> arguments;
  // Arguments after "--", and the value of -p, --prompt or --stop, stay as they are.
  bool is_literal = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const bool is_value = !arguments.empty() && (arguments.back() == "-p" || arguments.back() == "--prompt" ||
                                                 arguments.back() == "--stop");
    const bool is_word =
        argument.size() > 2 && argument[0] == '-' && std::ranges::all_of(argument.substr(1), is_letter);
    if (is_literal || is_value || !is_word) {
      arguments.emplace_back(argument);
      is_literal |= argument == "--";
      continue;
    }
    const auto* const known =
        std::ranges::find(kNames, argument, [](const auto& pair) { return pair.first; });
    if (known == kNames.end())
      return Error{ErrorCode::invalid_argument, fmt::format("there is no flag {}", printable(argument))};
    arguments.emplace_back(known->second);
  }
  return arguments;
}

}  // namespace moeflux::cli
