#pragma once
// The safetensors container: an 8-byte little-endian length, a JSON header of that length, then tensor data.
//
//   {"name": {"dtype": "BF16", "shape": [512, 2048], "data_offsets": [begin, end]}, "__metadata__": {...}}
//
// Offsets count from the end of the header. Data is not aligned. A header is read by a streaming parser that
// keeps only the tensor table, because a document tree of a hostile header would be many times its size.
// After a successful parse every tensor lies inside the file, its shape and type fill its bytes exactly, no
// two overlap, and no name occurs twice. Pure functions: any thread.

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/file_system.h"
#include "source/tensor_entry.h"

namespace moeflux {

// The largest header that is read. Real ones reach 13.5 MB (93,696 tensors in one file).
inline constexpr std::uint64_t kMaxHeaderBytes = 32u << 20;
inline constexpr std::uint64_t kMaxTensorsInFile = 1u << 17;
inline constexpr std::size_t kMaxTensorRank = 8;

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;   // in ascending order of name
  std::uint64_t header_bytes = 0;     // the length field and the JSON
  std::uint64_t unclaimed_bytes = 0;  // data bytes that belong to no tensor: allowed, worth a note
};

// Parses the JSON of a header whose data section is `data_bytes` long and starts at `data_start` of file
// `file`. `what` names the file in messages.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, std::uint64_t data_start,
                                                   std::uint64_t data_bytes, FileId file,
                                                   std::string_view what);

// Reads and parses the header of an open file.
Result<SafetensorsHeader> read_safetensors_header(const ReadFile& input, FileId file);

}  // namespace moeflux
