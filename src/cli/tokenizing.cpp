#include "cli/tokenizing.h"

#include <fmt/format.h>

#include <charconv>
#include <istream>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/printable.h"
#include "base/sizes.h"
#include "base/tokens.h"
#include "cli/input.h"
#include "generation/model_text.h"

namespace moeflux::cli {
namespace {

constexpr std::uint64_t kMaxLineBytes = 64 * kMiB;
constexpr std::uint64_t kMaxInputBytes = 1024 * kMiB;
constexpr JsonLimits kLineLimits{kMaxLineBytes, 4, 16 * 1024 * 1024};

// The next line without its newline, or the beginning of one that is too long; false: there is none.
bool read_line(std::istream& in, std::string& line) {
  line.clear();
  std::streambuf& buffer = *in.rdbuf();
  for (int c = buffer.sbumpc(); c != std::char_traits<char>::eof(); c = buffer.sbumpc()) {
    if (c == '\n') return true;
    line += static_cast<char>(c);
    if (line.size() > kMaxLineBytes) return true;
  }
  return !line.empty();
}

// Calls `each(line, number)` for every line, without its newline.
template <class Each>
Status for_each_line(std::istream& in, Each each) {
  std::string line;
  for (std::uint64_t number = 1; read_line(in, line); ++number) {
    if (line.size() > kMaxLineBytes)
      return Error{ErrorCode::unsupported, fmt::format("line {} has {}, a line has at most {}", number,
                                                       human_bytes(line.size()), human_bytes(kMaxLineBytes))};
    if (!line.empty() && line.back() == '\r') line.pop_back();
    MF_TRY_STATUS(each(line, number));
  }
  if (in.bad()) return Error{ErrorCode::io_failed, "cannot read standard input"};
  return {};
}

// The numbers in `text`, whatever is between them.
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
                   fmt::format("{} is not the id of a token", std::string_view(at, rest))};
    tokens.emplace_back(id);
    at = rest;
  }
  return tokens;
}

}  // namespace

std::string json_array(std::span<const TokenId> tokens) {
  std::string text = "[";
  for (std::size_t i = 0; i < tokens.size(); ++i)
    fmt::format_to(std::back_inserter(text), "{}{}", i == 0 ? "" : ",", tokens[i].index());
  return text + "]";
}

Status run_tokenize(FileSystem& files, const TokenizeCommand& command, std::istream& in, Output out) {
  if (command.json && command.jsonl)
    return Error{ErrorCode::invalid_argument, "--json and --jsonl exclude each other"};
  MF_TRY(const Tokenizer tokenizer, ModelText::open_tokenizer(files, command.directory));
  const AddedTokens added = command.special ? AddedTokens::all : AddedTokens::ordinary;
  std::vector<TokenId> tokens;
  if (command.jsonl)
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
  if (command.json) return out(json_array(tokens) + "\n");
  std::string lines;
  for (const TokenId token : tokens) fmt::format_to(std::back_inserter(lines), "{}\n", token.index());
  return out(lines);
}

Status run_detokenize(FileSystem& files, const DetokenizeCommand& command, std::istream& in, Output out) {
  MF_TRY(const Tokenizer tokenizer, ModelText::open_tokenizer(files, command.directory));
  if (command.jsonl)
    return for_each_line(in, [&](const std::string& line, std::uint64_t number) -> Status {
      const std::string place = fmt::format("line {}", number);
      Result<std::vector<TokenId>> tokens = parse_ids(line);
      if (!tokens) return std::move(tokens).error().during(place);
      Status checked = check_vocabulary(*tokens, tokenizer.vocabulary_size());
      if (!checked) return std::move(checked).error().during(place);
      return out(Json(tokenizer.decode(*tokens, command.skip_special))
                     .dump(-1, ' ', false, Json::error_handler_t::replace) +
                 "\n");
    });
  MF_TRY(const std::string text, read_all(in, kMaxInputBytes, kStandardInput));
  MF_TRY(const std::vector<TokenId> tokens, parse_ids(text));
  MF_TRY_STATUS(check_vocabulary(tokens, tokenizer.vocabulary_size()));
  return out(tokenizer.decode(tokens, command.skip_special));
}

}  // namespace moeflux::cli
