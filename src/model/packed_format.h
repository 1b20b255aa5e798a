#pragma once
// The packed model on disk, as types: what manifest.json says, and where the parts of an expert record lie.
//
// A packed model is a directory: manifest.json, resident.bin (all that is not a routed expert), one
// experts/layer_NNN.bin a layer with routed experts, and the text files that came with the model.
// docs/formats/packed_model.md describes it byte by byte. Plain values.

#include <cstdint>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"
#include "model/config.h"
#include "quant/encoding.h"

namespace moeflux {

inline constexpr std::uint32_t kPackedFormatVersion = 1;  // any other is refused: pack the source again
inline constexpr std::uint64_t kTensorAlignment = 256;    // of a tensor in resident.bin
inline constexpr std::uint64_t kRecordAlignment = 4096;   // of a record, and of its down part: a direct read

struct MatrixFormat {
  std::uint64_t rows, cols;
  Encoding encoding;  // one that tile16 stores
  friend bool operator==(const MatrixFormat&, const MatrixFormat&) = default;
};

enum class TensorLayout {
  rows,    // row after row, as F32: vectors and the convolution
  tile16,  // quant/tile16.h
};

struct PackedTensor {
  std::string name;  // "layers.3.self_attn.q_proj"
  MatrixFormat format;
  TensorLayout layout;
  std::uint64_t offset;    // in resident.bin; a multiple of kTensorAlignment
  std::uint64_t bytes;     // as packed_bytes() says
  std::uint64_t checksum;  // XXH3-64
  friend bool operator==(const PackedTensor&, const PackedTensor&) = default;
};

std::uint64_t packed_bytes(const MatrixFormat& format, TensorLayout layout);

// The three matrices of a routed expert. gate and up have the same shape; down is its transpose.
struct ExpertFormat {
  MatrixFormat gate, up, down;
  friend bool operator==(const ExpertFormat&, const ExpertFormat&) = default;
};

// Where the parts of a record lie. Blocks of gate and up alternate (gate 0, up 0, gate 1, ...), so both can
// be computed in one pass and before down has been read.
struct RecordLayout {
  std::uint64_t gate_block_bytes, up_block_bytes;
  std::uint64_t gate_up_bytes;  // from offset 0
  std::uint64_t down_offset;    // a multiple of kRecordAlignment
  std::uint64_t down_bytes;
  std::uint64_t record_bytes;  // a multiple of kRecordAlignment

  std::uint64_t payload_bytes() const { return gate_up_bytes + down_bytes; }  // without padding
};
RecordLayout record_layout(const ExpertFormat& format);

struct ExpertRecord {
  std::uint32_t format;    // index into Manifest::expert_formats
  std::uint64_t offset;    // in its layer's file; a multiple of kRecordAlignment
  std::uint64_t bytes;     // record_bytes of its format
  std::uint64_t checksum;  // XXH3-64 of all of them
  friend bool operator==(const ExpertRecord&, const ExpertRecord&) = default;
};

struct ExpertFile {
  LayerId layer{0};
  std::string file;  // "experts/layer_003.bin"
  std::uint64_t bytes = 0;
  std::vector<ExpertRecord> records;  // by expert
  friend bool operator==(const ExpertFile&, const ExpertFile&) = default;
};

struct Manifest {
  Digest fingerprint;         // of the numbers: equal for equal weights, however they are laid out
  std::string source_format;  // "MLX safetensors"
  ModelConfig config{};
  std::uint64_t resident_bytes = 0;
  std::vector<PackedTensor> tensors;  // ascending offsets; embed_tokens last
  std::vector<ExpertFormat> expert_formats;
  std::vector<ExpertFile> experts;      // one a layer with routed experts, ascending
  std::vector<std::string> text_files;  // tokenizer.json and its like, beside the manifest
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// A resident tensor that a model of this config must have.
struct TensorShape {
  std::string name;
  std::uint64_t rows, cols;
  bool is_vector;  // kept as F32 rows, never quantized
};

// All of them, in the order in which they are packed. An MLA layer has kv_b_proj, or embed_q and
// unembed_out where `split_kv_b` says so.
std::vector<TensorShape> resident_tensors(const ModelConfig& config, bool split_kv_b);

}  // namespace moeflux
