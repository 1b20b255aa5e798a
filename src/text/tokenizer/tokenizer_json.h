#pragma once
// Reads tokenizer.json and checks it as JSON, without interpreting its other sections.
//
// Vocabulary and merges are most of the file (300,000 of 400,000 values in Qwen3's 11 MB), so a streaming
// parser reads them into tables, and only the rest becomes a document. Pure function, thread-safe.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/json/json.h"
#include "base/result.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/string_table.h"

namespace moeflux {

inline constexpr std::uint64_t kMaxTokenizerBytes = 64u << 20;  // of a tokenizer.json; Qwen3.5's has 20 MB
inline constexpr std::uint32_t kMaxTokenIds = 1u << 22;

struct TokenizerFile {
  Json rest;                            // the document without model.vocab and model.merges
  std::uint64_t seed = 0;               // of hash tables; depends on the whole file
  StringTable vocabulary;               // as spelled in the file, in its order
  std::vector<TokenId> vocabulary_ids;  // vocabulary_ids[i] belongs to vocabulary[i]; unique
  std::vector<Merge> merges;
};

// `name` names the file in error messages. Fails with `corrupt_data`, or with `unsupported` beyond a limit.
Result<TokenizerFile> read_tokenizer_json(std::string_view text, std::string_view name);

}  // namespace moeflux
