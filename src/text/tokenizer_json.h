#pragma once
// tokenizer.json, read and checked as JSON; what its sections mean is for others.
//
// The vocabulary and the merges are most of the file (300,000 values of 400,000 in Qwen3's 11 MB), so they are
// read by a streaming parser into tables, and only the rest becomes a document. Pure function: any thread.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "base/result.h"
#include "text/bpe.h"
#include "text/string_table.h"

namespace moeflux {

inline constexpr std::uint64_t kMaxTokenizerBytes = 64u << 20;  // Qwen3.5's has 20 MB
inline constexpr std::uint32_t kMaxTokenIds = 1u << 22;

struct TokenizerFile {
  Json rest;                            // the document without model.vocab and model.merges
  std::uint64_t seed = 0;               // of tables: depends on all of the file
  StringTable vocabulary;               // as the file spells it, in its order
  std::vector<TokenId> vocabulary_ids;  // vocabulary_ids[i] belongs to vocabulary[i]; all differ
  std::vector<Merge> merges;
};

// `name` is how messages call the file. Fails with `corrupt_data` or, for what is beyond a limit, `unsupported`.
Result<TokenizerFile> read_tokenizer_json(std::string_view text, std::string_view name);

}  // namespace moeflux
