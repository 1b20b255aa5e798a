#include "pack/text_files.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/sizes.h"
#include "io/atomic_file.h"

namespace moeflux {
namespace {

constexpr std::array<std::string_view, 9> kTextFiles{
    "added_tokens.json",      "chat_template.jinja", "chat_template.json",      "config.json",
    "generation_config.json", "merges.txt",          "special_tokens_map.json", "tokenizer.json",
    "tokenizer_config.json"};

// Bounds memory: the largest known tokenizer.json has 20 MB.
constexpr std::uint64_t kMaxCopiedFileBytes = 256 * kMiB;

struct TextFile {
  std::string name;
  std::filesystem::path path;
};

Result<std::vector<TextFile>> find_text_files(FileSystem& files, TextFolders from) {
  std::vector<TextFile> found;
  for (const std::string_view name : kTextFiles) {
    for (const std::filesystem::path& folder : from) {
      MF_TRY(const bool exists, files.exists(folder / name));
      if (!exists) continue;
      found.push_back({std::string(name), folder / name});
      break;
    }
  }
  return found;
}

std::vector<std::string> names_of(const std::vector<TextFile>& files) {
  std::vector<std::string> names;
  for (const TextFile& file : files) names.push_back(file.name);
  return names;
}

}  // namespace

Result<std::vector<std::string>> text_files_of(FileSystem& files, TextFolders from) {
  MF_TRY(const std::vector<TextFile> found, find_text_files(files, from));
  return names_of(found);
}

Result<bool> same_text_files(FileSystem& from_files, TextFolders from, FileSystem& to_files,
                             const std::filesystem::path& to) {
  MF_TRY(const std::vector<TextFile> found, find_text_files(from_files, from));
  for (const TextFile& file : found) {
    MF_TRY(const bool exists, to_files.exists(to / file.name));
    if (!exists) return false;
    MF_TRY(const std::string expected, from_files.read_text(file.path, kMaxCopiedFileBytes));
    MF_TRY(const std::string copied, to_files.read_text(to / file.name, kMaxCopiedFileBytes));
    if (!std::equal(copied.begin(), copied.end(), expected.begin(), expected.end())) return false;
  }
  return true;
}

Result<std::vector<std::string>> copy_text_files(FileSystem& from_files, TextFolders from,
                                                 FileSystem& to_files, const std::filesystem::path& to) {
  MF_TRY(const std::vector<TextFile> found, find_text_files(from_files, from));
  for (const TextFile& file : found) {
    MF_TRY(const std::string text, from_files.read_text(file.path, kMaxCopiedFileBytes));
    MF_TRY_STATUS(write_file_atomically(to_files, to / file.name, std::as_bytes(std::span(text))));
  }
  return names_of(found);
}

}  // namespace moeflux
