#pragma once
// A checkpoint that is on no disk: its files are made as they are read.
//
// A SyntheticCheckpoint is a directory with config.json, model.safetensors.index.json and shards, as a
// published model of that shape has them, filled with random weights that behave (pack/synthetic_tensors.h).
// Whatever reads a checkpoint reads this one: SourceModel::open looks at its headers only, so the shape of a
// 400 GB model is inspected in milliseconds; copying its files makes a checkpoint that can be given away.
//
// A byte depends on the config, the format, the seed, its tensor's name and its place in the tensor; never on
// how it is read. Read-only: whatever would write is `unsupported`. Immutable: any thread. Open files may
// outlive the checkpoint.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/sizes.h"
#include "io/file_system.h"
#include "pack/synthetic_tensors.h"

namespace moeflux {

struct SyntheticOptions {
  SyntheticFormat format = SyntheticFormat::mlx;
  std::uint64_t seed = 0;
  std::filesystem::path directory = "synthetic";  // where the files seem to be
  std::uint64_t shard_bytes = 5 * kGiB;           // of tensors; a larger tensor has a shard of its own
};

class SyntheticCheckpoint final : public FileSystem {
 public:
  // `config` is the text of a config.json; what it says of quantization is replaced by what `options` say.
  static Result<SyntheticCheckpoint> make(std::string_view config, const SyntheticOptions& options);

  const std::filesystem::path& directory() const;

  // Of all files together.
  std::uint64_t total_bytes() const;

  Result<std::unique_ptr<ReadFile>> open_read(const std::filesystem::path& path) override;
  Result<FileInfo> info(const std::filesystem::path& path) override;
  Result<std::vector<std::string>> list(const std::filesystem::path& directory) override;
  Result<std::uint64_t> free_bytes(const std::filesystem::path& path) override;  // none

  Result<std::unique_ptr<WriteFile>> create(const std::filesystem::path& path) override;
  Status make_directory(const std::filesystem::path& directory) override;
  Status rename(const std::filesystem::path& from, const std::filesystem::path& to) override;
  Status remove_all(const std::filesystem::path& path) override;
  Status sync_directory(const std::filesystem::path& directory) override;

  struct Contents;  // the files, shared with those that are open

 private:
  explicit SyntheticCheckpoint(std::shared_ptr<const Contents> contents);
  std::shared_ptr<const Contents> contents_;
};

}  // namespace moeflux
