#pragma once
// A virtual checkpoint: a FileSystem whose files are generated as they are read.
//
// A SyntheticCheckpoint is a directory with config.json, model.safetensors.index.json and shards, like a
// published model of that shape, filled with random weights of realistic magnitudes
// (pack/synthetic/tensors.h). All code that reads checkpoints can read it. SourceModel::open reads only
// headers, so inspecting the shape of a 400 GB model takes milliseconds. Copying the files gives a real
// checkpoint.
//
// A byte depends on the config, the format, the seed, its tensor's name and its position in the tensor, not
// on how it is read. Operations that write are `unsupported`. Immutable: any thread. Open files may outlive
// the checkpoint.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/sizes.h"
#include "io/file_system.h"
#include "pack/synthetic/tensors.h"

namespace moeflux {

struct SyntheticOptions {
  SyntheticFormat format = SyntheticFormat::mlx;
  std::uint64_t seed = 0;
  std::filesystem::path directory = "synthetic";  // the virtual path of the files
  std::uint64_t shard_bytes = 5 * kGiB;           // of tensors per shard; a larger tensor has its own shard
};

class SyntheticCheckpoint final : public FileSystem {
 public:
  // `config` is the text of a config.json, whose quantization is replaced by that of `options`.
  static Result<SyntheticCheckpoint> make(std::string_view config, const SyntheticOptions& options);

  const std::filesystem::path& directory() const;

  // Over all files.
  std::uint64_t total_bytes() const;

  Result<std::unique_ptr<ReadFile>> open_read(const std::filesystem::path& path) override;
  Result<FileInfo> info(const std::filesystem::path& path) override;
  Result<std::vector<std::string>> list(const std::filesystem::path& directory) override;
  Result<std::uint64_t> free_bytes(const std::filesystem::path& path) override;  // 0

  Result<std::unique_ptr<WriteFile>> create(const std::filesystem::path& path) override;
  Status make_directory(const std::filesystem::path& directory) override;
  Status rename(const std::filesystem::path& from, const std::filesystem::path& to) override;
  Status remove_all(const std::filesystem::path& path) override;
  Status sync_directory(const std::filesystem::path& directory) override;

  struct Contents;  // the files, shared with open ReadFiles

 private:
  explicit SyntheticCheckpoint(std::shared_ptr<const Contents> contents);
  std::shared_ptr<const Contents> contents_;
};

}  // namespace moeflux
