#pragma once
// The ids that end a text, as the files beside a model list them.
//
//   1. eos_token_id of config.json, where MLX's converter repeats those of generation_config.json
//   2. eos_token_id of generation_config.json
//   3. for the original's artifacts only, the ids of the family, if the vocabulary has its published size:
//      the original program had them as constants
//   4. eos_token_id in text_config of config.json; in Qwen3.5 it ends a document, but not a turn of a chat
//
// All of them end a text; the first is the one that a caller with room for a single id gets. Pure functions:
// any thread.

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/json/json.h"
#include "base/json/object_reader.h"
#include "base/result.h"
#include "io/file_system.h"
#include "model/config.h"
#include "source/notes.h"

namespace moeflux {

// A JSON object and the path of its file, for messages. Empty if no folder has the file.
struct TextJson {
  Json object = Json::object();
  std::string where;
  ObjectReader reader() const { return ObjectReader(object, where); }
};
// Reads `name` from the first of `folders` that has it.
Result<TextJson> read_text_json(FileSystem& files, std::span<const std::filesystem::path> folders,
                                std::string_view name);

// All items, without duplicates; `family` is item 3. An id of `generation` outside the vocabulary is skipped
// with a note; one of `config` is an error.
Result<std::vector<TokenId>> list_end_tokens(const ObjectReader& config, const ObjectReader& generation,
                                             std::span<const TokenId> family, std::uint32_t vocabulary,
                                             Notes& notes);

// Item 3; empty for a vocabulary of another size.
std::span<const TokenId> family_end_tokens(Family family, std::uint32_t vocabulary);

// Appends those of `more` that are not in `tokens` yet.
void append_new(std::vector<TokenId>& tokens, std::span<const TokenId> more);

}  // namespace moeflux
