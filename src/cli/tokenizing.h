#pragma once
// `moeflux tokenize`, `detokenize` and `template`: text to token ids and back, and a conversation to a prompt.
//
// Input is taken from a stream and output handed on line by line, so that a pipe of millions of lines needs the memory
// of one. A line is at most 64 MiB.

#include <cstdint>
#include <istream>
#include <optional>
#include <span>
#include <string>

#include "base/function_ref.h"
#include "base/ids.h"
#include "base/result.h"
#include "io/file_system.h"

namespace moeflux::cli {

using Output = FunctionRef<Status(std::string_view)>;

struct TokenizeCommand {
  std::string directory;  // with a tokenizer.json; packed or not
  bool special = false;   // special tokens in the text become their ids
  bool json = false;      // one array
  bool jsonl = false;     // every line of the input is a JSON string, every line of the output an array
};
// All of the input is one text, unless it is JSON lines. Ids come one a line, or as JSON.
Status run_tokenize(FileSystem& files, const TokenizeCommand& command, std::istream& in, Output out);

struct DetokenizeCommand {
  std::string directory;
  bool skip_special = false;
  bool jsonl = false;  // every line of the input is an array of ids, every line of the output a JSON string
};
// Ids are whole numbers with anything between them that is not a digit, so that what tokenize printed is understood in
// each of its forms. The text comes as it is, with no newline behind it.
Status run_detokenize(FileSystem& files, const DetokenizeCommand& command, std::istream& in, Output out);

struct TemplateCommand {
  std::string directory;
  std::string messages;       // a JSON file; "-" is the input
  std::string tools;          // a JSON file; empty: none
  std::string chat_template;  // a Jinja file instead of the folder's own
  std::string kwargs;         // a JSON object of further variables
  bool no_generation_prompt = false;
  bool ids = false;  // the prompt's token ids, as JSON, instead of its text
};
// The prompt, exactly: no newline behind it.
Status run_template(FileSystem& files, const TemplateCommand& command, std::istream& in, Output out);

// "[1,2,3]"
std::string json_array(std::span<const TokenId> tokens);

}  // namespace moeflux::cli
