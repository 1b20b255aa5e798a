#pragma once
// What the smaller sections of a tokenizer.json mean. Each function reads one strictly: what the engine does not
// do is refused by name. `where` names the section in messages. Pure functions: any thread.

#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "base/result.h"
#include "text/added_tokens.h"
#include "text/normalizer.h"

namespace moeflux {

inline constexpr std::size_t kLongestAddedToken = 1024;  // bytes: bounds the time of a search for them

// "added_tokens"; those without content are left out, as the reference does.
Result<std::vector<AddedToken>> read_added_tokens(const Json& section, std::string_view where);

// "normalizer": null, NFC, NFD, NFKC, NFKD, Sequence.
Result<Normalizer> read_normalizer(const Json& section, std::string_view where);

// "decoder": ByteLevel, alone or as a Sequence of one.
Status check_decoder(const Json& section, std::string_view where);

// "model" without vocabulary and merges.
struct BpeOptions {
  bool ignore_merges;
  bool has_fallback;  // unk_token or byte_fallback: of no effect where every byte has a token
};
Result<BpeOptions> read_bpe_options(const Json& section, std::string_view where);

// "post_processor": null, ByteLevel, TemplateProcessing, Sequence.
struct Surroundings {
  std::vector<TokenId> begin, end;  // what a template puts around one text
};
Result<Surroundings> read_post_processor(const Json& section, std::string_view where);

}  // namespace moeflux
