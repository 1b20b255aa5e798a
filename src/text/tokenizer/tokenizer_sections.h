#pragma once
// Readers of the smaller sections of a tokenizer.json. Each reads one section strictly and refuses
// unsupported features by name. `where` names the section in error messages. Pure functions, thread-safe.

#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/json/json.h"
#include "base/result.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/normalizer.h"

namespace moeflux {

inline constexpr int kMaxSequenceDepth = 8;              // of "Sequence" sections in each other
inline constexpr std::size_t kLongestAddedToken = 1024;  // in bytes; bounds the time of a search

// "added_tokens". Tokens without content are left out, as in the reference.
Result<std::vector<AddedToken>> read_added_tokens(const Json& section, std::string_view where);

// "normalizer": null, NFC, NFD, NFKC, NFKD, Sequence.
Result<Normalizer> read_normalizer(const Json& section, std::string_view where);

// "decoder": ByteLevel, alone or as a Sequence of one.
Status check_decoder(const Json& section, std::string_view where);

// "model" without vocabulary and merges.
struct BpeOptions {
  bool ignore_merges;
  bool has_fallback;  // unk_token or byte_fallback; no effect if every byte has a token
};
Result<BpeOptions> read_bpe_options(const Json& section, std::string_view where);

// "post_processor": null, ByteLevel, TemplateProcessing, Sequence.
struct Surroundings {
  std::vector<TokenId> begin, end;  // added around one text
};
Result<Surroundings> read_post_processor(const Json& section, std::string_view where);

}  // namespace moeflux
