#pragma once
// The files that make a model speak: tokenizer, chat template, generation settings. Copied beside the weights, so that
// a packed model is self-sufficient.

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/file_system.h"

namespace moeflux {

// Copies those that are there; returns their names, sorted. The original keeps them in a folder `mlx` beside its
// artifacts, which is looked at too.
Result<std::vector<std::string>> copy_text_files(FileSystem& from_files, const std::filesystem::path& from,
                                                 FileSystem& to_files, const std::filesystem::path& to);

}  // namespace moeflux
