#pragma once
// Packs tiny sources and decodes the result with the reference decoder of tile16. Test code only. One thread
// at a time.

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "io/posix_file_system.h"
#include "model/packed_model.h"
#include "pack/pack.h"
#include "quant/tile16.h"
#include "source/matrix_reader.h"
#include "source/source_model.h"
#include "source/testing/original_builder.h"
#include "source/testing/tiny_models.h"

namespace moeflux {

using Numbers = std::vector<float>;                // of a matrix, row-major
using Files = std::map<std::string, std::string>;  // bytes by name below a directory

inline SourceModel open_source(const std::filesystem::path& path) {
  PosixFileSystem disk;
  auto model = SourceModel::open(disk, path);
  EXPECT_TRUE(model) << model.error().message();
  return *std::move(model);
}

inline PackedModel open_packed(const std::filesystem::path& path) {
  PosixFileSystem disk;
  auto model = PackedModel::open(disk, path);
  EXPECT_TRUE(model) << model.error().message();
  return *std::move(model);
}

// Writes the tiny source called "qwen_mlx", "original", ... (names of test parameters); returns its path.
inline std::filesystem::path write_tiny(const TemporaryDirectory& directory, const std::string& name) {
  if (name == "qwen_mlx") return tiny_qwen_mlx().write(directory, name);
  if (name == "qwen_hugging_face") return tiny_qwen_hugging_face().write(directory, name);
  if (name == "deepseek_mlx") return tiny_deepseek_mlx().write(directory, name);
  if (name == "deepseek_fp8") return tiny_deepseek_fp8().write(directory, name);
  original_of(tiny_qwen_mlx()).write(directory, name, name);
  return directory / name;
}

inline Result<PackReport> pack_into(FileSystem& files, const SourceModel& source,
                                    const std::filesystem::path& destination,
                                    const PackOptions& options = {}) {
  return pack(source, files, files, destination, options, [](const PackProgress&) {});
}

// Packs to the real disk and expects success.
inline PackReport packed_to(const SourceModel& source, const std::filesystem::path& destination,
                            const PackOptions& options = {}) {
  PosixFileSystem disk;
  auto report = pack_into(disk, source, destination, options);
  EXPECT_TRUE(report) << report.error().message();
  return report ? *std::move(report) : PackReport{};
}

inline Files files_in(const std::filesystem::path& directory) {
  Files files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    files[std::filesystem::relative(entry.path(), directory).string()] = {std::istreambuf_iterator<char>(in),
                                                                          {}};
  }
  return files;
}

inline Numbers decode(const SourceModel& source, const SourceMatrix& matrix) {
  Numbers all;
  const Status decoded = decode_rows(source.catalog(), matrix, "matrix",
                                     [&](std::uint64_t, std::span<const float> numbers) -> Status {
                                       all.insert(all.end(), numbers.begin(), numbers.end());
                                       return {};
                                     });
  EXPECT_TRUE(decoded) << decoded.error().message();
  return all;
}

inline Numbers decode(const MatrixFormat& format, const std::byte* first_block, std::uint64_t stride) {
  Numbers all(format.rows * format.cols);
  const tile16::TiledMatrix tiled{format.rows, format.cols, format.encoding, first_block, stride};
  for (std::uint64_t row = 0; row < format.rows; ++row)
    tile16::decode_row(tiled, row, std::span(all).subspan(row * format.cols, format.cols));
  return all;
}

inline std::vector<std::byte> read(const ReadFile& file, std::uint64_t offset, std::uint64_t size) {
  std::vector<std::byte> bytes(size);
  const Status done = file.read_exactly(offset, bytes);
  EXPECT_TRUE(done) << done.error().message();
  return bytes;
}

inline Numbers decode(const PackedModel& model, const PackedTensor& tensor) {
  const std::vector<std::byte> bytes = read(model.resident_file(), tensor.offset, tensor.bytes);
  if (tensor.layout == TensorLayout::tile16)
    return decode(tensor.format, bytes.data(),
                  tile16::block_bytes(tensor.format.encoding, tensor.format.cols));
  Numbers all(tensor.format.rows * tensor.format.cols);
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

struct ExpertNumbers {
  Numbers gate, up, down;
};

inline ExpertNumbers decode(const PackedModel& model, ExpertKey key) {
  const ExpertRecord& record = model.record(key);
  const ExpertFormat& format = model.expert_format(record);
  const RecordLayout layout = record_layout(format);
  const std::vector<std::byte> bytes = read(model.expert_file(key.layer), record.offset, record.bytes);
  const std::uint64_t pair = layout.gate_block_bytes + layout.up_block_bytes;
  return {decode(format.gate, bytes.data(), pair),
          decode(format.up, bytes.data() + layout.gate_block_bytes, pair),
          decode(format.down, bytes.data() + layout.down_offset,
                 tile16::block_bytes(format.down.encoding, format.down.cols))};
}

}  // namespace moeflux
