#pragma once
// A packed model on disk with random weights, written without the packing code.
//
// Norm weights are around 1, other vectors around 0, and every matrix preserves the magnitude of its input.
// Test code only; one thread at a time.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>

#include "io/posix_file_system.h"
#include "io/testing/temporary_directory.h"
#include "model/packed_model.h"
#include "model/testing/tiny_packed_model.h"
#include "quant/testing/random_matrix.h"

namespace moeflux {

namespace random_model_detail {

inline void write_vector(const PackedTensor& tensor, std::byte* to, std::mt19937& random) {
  const float mean = std::string_view(tensor.name).ends_with("norm") ? 1.0f : 0.0f;
  for (std::uint64_t i = 0; i < tensor.format.rows * tensor.format.cols; ++i) {
    const float number = mean + 0.4f * random_number(random);
    std::memcpy(to + i * sizeof number, &number, sizeof number);
  }
}

inline void write_matrix(const MatrixFormat& format, std::byte* to, std::uint64_t stride,
                         std::mt19937& random) {
  RandomMatrix(format.rows, format.cols, format.encoding, random).write_tiles(to, stride);
}

inline std::string resident_bytes(const Manifest& manifest, std::mt19937& random) {
  std::string bytes(manifest.resident_bytes, '\0');
  for (const PackedTensor& tensor : manifest.tensors) {
    auto* const to = reinterpret_cast<std::byte*>(bytes.data()) + tensor.offset;
    if (tensor.layout == TensorLayout::rows)
      write_vector(tensor, to, random);
    else
      write_matrix(tensor.format, to, tile16::block_bytes(tensor.format.encoding, tensor.format.cols),
                   random);
  }
  return bytes;
}

inline std::string expert_bytes(const Manifest& manifest, const ExpertFile& file, std::mt19937& random) {
  std::string bytes(file.bytes, '\0');
  for (const ExpertRecord& record : file.records) {
    const ExpertFormat& format = manifest.expert_formats[record.format];
    const RecordLayout layout = record_layout(format);
    const std::uint64_t pair = layout.gate_block_bytes + layout.up_block_bytes;
    auto* const to = reinterpret_cast<std::byte*>(bytes.data()) + record.offset;
    write_matrix(format.gate, to, pair, random);
    write_matrix(format.up, to + layout.gate_block_bytes, pair, random);
    write_matrix(format.down, to + layout.down_offset,
                 tile16::block_bytes(format.down.encoding, format.down.cols), random);
  }
  return bytes;
}

}  // namespace random_model_detail

// Writes the model to the folder "model" of `directory` and returns its path.
inline std::filesystem::path write_random_model(const TemporaryDirectory& directory,
                                                const ModelConfig& config) {
  std::mt19937 random(7);
  Manifest manifest = tiny_manifest(config);
  write_packed_model(directory, manifest);
  directory.write("model/resident.bin", random_model_detail::resident_bytes(manifest, random));
  for (ExpertFile& file : manifest.experts) {
    const std::string bytes = random_model_detail::expert_bytes(manifest, file, random);
    directory.write("model/" + file.file, bytes);
    for (ExpertRecord& record : file.records)
      record.checksum = checksum_of(std::as_bytes(std::span(bytes).subspan(record.offset, record.bytes)));
  }
  return directory.write("model/manifest.json", write_manifest(manifest)).parent_path();
}

// The same, opened.
inline PackedModel open_random_model(const TemporaryDirectory& directory, const ModelConfig& config) {
  PosixFileSystem files;
  return *PackedModel::open(files, write_random_model(directory, config));
}

}  // namespace moeflux
