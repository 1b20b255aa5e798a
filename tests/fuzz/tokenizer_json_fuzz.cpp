// Input: a tokenizer.json, then optionally a byte FF, which no JSON has, and a text to encode.

#include <algorithm>

#include "fuzz/promises.h"
#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode/utf8.h"

namespace moeflux::fuzz {
namespace {

void require_tokens(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens) {
  for (const TokenId token : tokens)
    MF_REQUIRE(token.index() < tokenizer.vocabulary_size(), "a token is one of the vocabulary");
  for (const bool skip_special : {false, true}) {
    Detokenizer detokenizer(tokenizer, skip_special);
    std::string text;
    for (const TokenId token : tokens) text += detokenizer.push(token);
    text += detokenizer.finish();
    MF_REQUIRE(text == tokenizer.decode(tokens, skip_special), "a stream gives the text of all tokens");
    MF_REQUIRE(is_valid_utf8(text), "decoded text is UTF-8");
  }
}

// The tokens, or nullopt if a pattern takes too long.
std::vector<TokenId> require_encoding(const Tokenizer& tokenizer, std::string_view text, AddedTokens added) {
  std::vector<TokenId> tokens, again;
  const Status status = tokenizer.encode(text, added, tokens);
  if (!status) {
    require_fit_for_people(status.error().message());
    MF_REQUIRE(tokens.empty(), "a failure appends nothing");
    return {};
  }
  MF_REQUIRE(tokenizer.encode(text, added, again).has_value() && again == tokens,
             "the same text gives the same");
  require_tokens(tokenizer, tokens);
  return tokens;
}

void read(std::string_view input) {
  const std::size_t end = std::min(input.find('\xFF'), input.size());
  const Result<Tokenizer> tokenizer = Tokenizer::parse(input.substr(0, end), "tokenizer.json");
  if (!tokenizer) return require_refusal(tokenizer.error());
  MF_REQUIRE(tokenizer->vocabulary_size() == tokenizer->token_bytes().size(), "every id has bytes");
  const std::string_view text =
      end < input.size() ? input.substr(end + 1) : std::string_view("It's caf\u00e9 12 <|a|>\n e\u0301");
  require_encoding(*tokenizer, text, AddedTokens::all);
  require_encoding(*tokenizer, text, AddedTokens::ordinary);
  const std::vector<TokenId> none = require_encoding(*tokenizer, text, AddedTokens::none);

  std::vector<TokenId> as_data;
  const TextRange all[] = {{0, text.size()}};
  if (tokenizer->encode(text, all, as_data).has_value())
    MF_REQUIRE(as_data == none, "where all is data, no added token is found");
}

}  // namespace
}  // namespace moeflux::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  moeflux::fuzz::read(moeflux::fuzz::text_of(data, size));
  return 0;
}
