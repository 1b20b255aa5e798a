#include "cli/commands/tokenize.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iterator>
#include <memory>
#include <vector>

#include "base/json/json.h"
#include "base/printable.h"
#include "base/sizes.h"
#include "cli/console.h"
#include "generation/model_text.h"

namespace moeflux::cli {
namespace {

constexpr JsonLimits kLineLimits{kMaxLineBytes, 4, 16 * 1024 * 1024};

}  // namespace

std::string json_array(std::span<const TokenId> tokens) {
  std::string text = "[";
  for (std::size_t i = 0; i < tokens.size(); ++i)
    fmt::format_to(std::back_inserter(text), "{}{}", i == 0 ? "" : ",", tokens[i].index());
  return text + "]";
}

Status run_tokenize(FileSystem& files, const TokenizeFlags& flags, std::istream& in, Output out) {
  if (flags.json && flags.jsonl)
    return Error{ErrorCode::invalid_argument, "--json cannot be combined with --jsonl"};
  MF_TRY(const Tokenizer tokenizer, ModelText::open_tokenizer(files, flags.directory));
  const AddedTokens added = flags.special ? AddedTokens::all : AddedTokens::ordinary;
  std::vector<TokenId> tokens;
  if (flags.jsonl)
    return for_each_line(in, [&](const std::string& line, std::uint64_t number) -> Status {
      const std::string place = fmt::format("line {}", number);
      MF_TRY(const Json value, parse_json(line, place, kLineLimits));
      const auto* const text = value.get_ptr<const Json::string_t*>();
      if (text == nullptr)
        return Error{ErrorCode::corrupt_data,
                     fmt::format("{}: expected a JSON string, found {}", place, printable(line))};
      tokens.clear();
      MF_TRY_STATUS(tokenizer.encode(*text, added, tokens));
      return out(json_array(tokens) + "\n");
    });
  MF_TRY(const std::string text, read_all(in, kMaxInputBytes, kStandardInput));
  MF_TRY_STATUS(tokenizer.encode(text, added, tokens));
  if (flags.json) return out(json_array(tokens) + "\n");
  std::string lines;
  for (const TokenId token : tokens) fmt::format_to(std::back_inserter(lines), "{}\n", token.index());
  return out(lines);
}

Command add_tokenize(CLI::App& program) {
  CLI::App* const parser = program.add_subcommand("tokenize", "Text on standard input to token ids");
  const auto flags = std::make_shared<TokenizeFlags>();
  parser->add_option("DIR", flags->directory, "A folder with a tokenizer.json, packed or not")->required();
  parser->add_flag("--special", flags->special, "Special tokens in the text become their ids");
  parser->add_flag("--json", flags->json, "One JSON array");
  parser->add_flag("--jsonl", flags->jsonl,
                   "Each input line is a JSON string, each output line the array of its ids");
  return {parser, [flags](const Shell& shell) {
            return finish(run_tokenize(shell.files, *flags, shell.in, write_output));
          }};
}

}  // namespace moeflux::cli
