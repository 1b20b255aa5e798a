#pragma once
// The text files of a model: config, tokenizer, chat template, generation settings. They are copied beside
// the packed weights, which makes a packed model self-sufficient.

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/file_system.h"

namespace moeflux {

// Where the text files of a source are (SourceModel::text_folders). Of two with the same name, the one in the
// earlier folder counts.
using TextFolders = std::span<const std::filesystem::path>;

// The names of the text files in `from`, sorted.
Result<std::vector<std::string>> text_files_of(FileSystem& files, TextFolders from);

// Whether every text file of `from` is in `to`, byte for byte.
Result<bool> same_text_files(FileSystem& from_files, TextFolders from, FileSystem& to_files,
                             const std::filesystem::path& to);

// Copies them; returns their names, sorted.
Result<std::vector<std::string>> copy_text_files(FileSystem& from_files, TextFolders from,
                                                 FileSystem& to_files, const std::filesystem::path& to);

}  // namespace moeflux
