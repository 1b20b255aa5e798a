#pragma once
// The text files of a model: config, tokenizer, chat template, generation settings. They are copied beside
// the packed weights, which makes a packed model self-sufficient.

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/file_system.h"

namespace moeflux {

// The names of the text files of the source at `from`, sorted. The original keeps them in a folder `mlx`
// beside its artifacts, which is searched too.
Result<std::vector<std::string>> text_files_of(FileSystem& files, const std::filesystem::path& from);

// Whether every text file of `from` is in `to`, byte for byte.
Result<bool> same_text_files(FileSystem& from_files, const std::filesystem::path& from, FileSystem& to_files,
                             const std::filesystem::path& to);

// Copies them; returns their names, sorted.
Result<std::vector<std::string>> copy_text_files(FileSystem& from_files, const std::filesystem::path& from,
                                                 FileSystem& to_files, const std::filesystem::path& to);

}  // namespace moeflux
