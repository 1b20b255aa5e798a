#include "pack/text_files.h"

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

constexpr std::uint64_t kMaxTextBytes = 256 * kMiB;

}  // namespace

Result<std::vector<std::string>> copy_text_files(FileSystem& from_files, const std::filesystem::path& from,
                                                 FileSystem& to_files, const std::filesystem::path& to) {
  std::vector<std::string> copied;
  for (const std::string_view name : kTextFiles) {
    for (const std::filesystem::path& folder : {from, from / "mlx"}) {
      MF_TRY(const bool there, from_files.exists(folder / name));
      if (!there) continue;
      MF_TRY(const std::string text, from_files.read_text(folder / name, kMaxTextBytes));
      MF_TRY_STATUS(write_file_atomically(to_files, to / name, std::as_bytes(std::span(text))));
      copied.emplace_back(name);
      break;
    }
  }
  return copied;
}

}  // namespace moeflux
