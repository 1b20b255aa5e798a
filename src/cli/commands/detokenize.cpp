#include "cli/commands/detokenize.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <memory>
#include <utility>
#include <vector>

#include "base/json/json.h"
#include "base/tokens.h"
#include "cli/console.h"
#include "generation/model_text.h"

namespace moeflux::cli {
namespace {

// The numbers in `text`, with any other characters between them.
Result<std::vector<TokenId>> parse_ids(std::string_view text) {
  std::vector<TokenId> tokens;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    if (*at < '0' || *at > '9') {
      ++at;
      continue;
    }
    std::uint32_t id = 0;
    const auto [rest, error] = std::from_chars(at, end, id);
    if (error != std::errc())
      return Error{ErrorCode::token_out_of_range,
                   fmt::format("{} is not a token id", std::string_view(at, rest))};
    tokens.emplace_back(id);
    at = rest;
  }
  return tokens;
}

}  // namespace

Status run_detokenize(FileSystem& files, const DetokenizeFlags& flags, std::istream& in, Output out) {
  MF_TRY(const Tokenizer tokenizer, ModelText::open_tokenizer(files, flags.directory));
  if (flags.jsonl)
    return for_each_line(in, [&](const std::string& line, std::uint64_t number) -> Status {
      const std::string place = fmt::format("line {}", number);
      Result<std::vector<TokenId>> tokens = parse_ids(line);
      if (!tokens) return std::move(tokens).error().during(place);
      Status checked = check_vocabulary(*tokens, tokenizer.vocabulary_size());
      if (!checked) return std::move(checked).error().during(place);
      return out(Json(tokenizer.decode(*tokens, flags.skip_special))
                     .dump(-1, ' ', false, Json::error_handler_t::replace) +
                 "\n");
    });
  MF_TRY(const std::string text, read_all(in, kMaxInputBytes, kStandardInput));
  MF_TRY(const std::vector<TokenId> tokens, parse_ids(text));
  MF_TRY_STATUS(check_vocabulary(tokens, tokenizer.vocabulary_size()));
  return out(tokenizer.decode(tokens, flags.skip_special));
}

Command add_detokenize(CLI::App& program) {
  CLI::App* const parser = program.add_subcommand("detokenize", "Token ids on standard input to text");
  const auto flags = std::make_shared<DetokenizeFlags>();
  parser->add_option("DIR", flags->directory, "A folder with a tokenizer.json, packed or not")->required();
  parser->add_flag("--skip-special", flags->skip_special, "Leave special tokens out");
  parser->add_flag("--jsonl", flags->jsonl,
                   "Each input line is an array of ids, each output line a JSON string");
  return {parser, [flags](const Shell& shell) {
            return finish(run_detokenize(shell.files, *flags, shell.in, write_output));
          }};
}

}  // namespace moeflux::cli
