#pragma once
// The packed model on disk, as types: the contents of manifest.json and the layout of an expert record.
//
// A packed model is a directory: manifest.json, resident.bin (all weights but routed experts), one
// experts/layer_NNN.bin per layer with routed experts, and the model's text files.
// docs/formats/packed_model.md describes it byte by byte. Plain values.

#include <cstdint>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"
#include "model/config.h"
#include "quant/encoding.h"

namespace moeflux {

inline constexpr std::uint32_t kPackedFormatVersion = 1;  // other versions are refused: pack the source again
inline constexpr std::uint64_t kTensorAlignment = 256;    // of a tensor in resident.bin
inline constexpr std::uint64_t kRecordAlignment = 4096;  // of a record and of its down part, for direct reads

struct MatrixFormat {
  std::uint64_t rows, cols;
  Encoding encoding;  // supported by tile16
  friend bool operator==(const MatrixFormat&, const MatrixFormat&) = default;
};

enum class TensorLayout {
  rows,    // row-major F32: vectors and the convolution
  tile16,  // quant/tile16.h
};

struct PackedTensor {
  std::string name;  // "layers.3.self_attn.q_proj"
  MatrixFormat format;
  TensorLayout layout;
  std::uint64_t offset;    // in resident.bin; a multiple of kTensorAlignment
  std::uint64_t bytes;     // equals packed_bytes()
  std::uint64_t checksum;  // XXH3-64
  friend bool operator==(const PackedTensor&, const PackedTensor&) = default;
};

std::uint64_t packed_bytes(const MatrixFormat& format, TensorLayout layout);

// The three matrices of a routed expert. gate and up have the same shape; down is its transpose.
struct ExpertFormat {
  MatrixFormat gate, up, down;
  friend bool operator==(const ExpertFormat&, const ExpertFormat&) = default;
};

// Byte layout of a record. Blocks of gate and up alternate (gate 0, up 0, gate 1, ...), so that both can be
// computed in one pass, before down has been read.
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
  std::uint64_t checksum;  // XXH3-64 of the whole record
  friend bool operator==(const ExpertRecord&, const ExpertRecord&) = default;
};

// "experts/layer_003.bin".
std::string expert_file_name(LayerId layer);

struct ExpertFile {
  LayerId layer{0};
  std::string file;  // below the model's directory; pack() writes expert_file_name(layer)
  std::uint64_t bytes = 0;
  std::vector<ExpertRecord> records;  // indexed by expert
  friend bool operator==(const ExpertFile&, const ExpertFile&) = default;
};

struct Manifest {
  Digest fingerprint;         // identifies the weights, whatever their layout
  std::string source_format;  // "MLX safetensors"
  ModelConfig config{};
  std::uint64_t resident_bytes = 0;
  std::vector<PackedTensor> tensors;  // ascending offsets; embed_tokens last
  std::vector<ExpertFormat> expert_formats;
  std::vector<ExpertFile> experts;      // one per layer with routed experts, ascending
  std::vector<std::string> text_files;  // such as tokenizer.json, beside the manifest
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// A resident tensor that the config requires.
struct TensorShape {
  std::string name;
  std::uint64_t rows, cols;
  bool is_vector;  // kept as F32 rows, never quantized
};

// All resident tensors of `config`, in packing order. An MLA layer has kv_b_proj, or embed_q and unembed_out
// if `split_kv_b`.
std::vector<TensorShape> resident_tensors(const ModelConfig& config, bool split_kv_b);

}  // namespace moeflux
