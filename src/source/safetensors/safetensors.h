#pragma once
// The safetensors container: an 8-byte little-endian length, a JSON header of that length, then tensor data.
//
//   {"name": {"dtype": "BF16", "shape": [512, 2048], "data_offsets": [begin, end]}, "__metadata__": {...}}
//
// Offsets count from the end of the header. Data is not aligned. A streaming parser reads the header and
// keeps only the tensor table, because the document tree of a hostile header would be many times its size.
// After a successful parse every tensor lies inside the file, its bytes match its shape and dtype exactly, no
// two overlap, and all names differ. Pure functions: any thread.

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/file_system.h"
#include "source/safetensors/tensor_entry.h"

namespace moeflux {

// The largest accepted header. Published ones reach 13.5 MB (93,696 tensors in one file).
inline constexpr std::uint64_t kMaxHeaderBytes = 32u << 20;
inline constexpr std::uint64_t kMaxTensorsInFile = 1u << 17;
inline constexpr std::size_t kMaxTensorRank = 8;

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;   // in ascending order of name
  std::uint64_t header_bytes = 0;     // the length field and the JSON
  std::uint64_t unclaimed_bytes = 0;  // data bytes that belong to no tensor: valid, but worth a note
};

// Parses the JSON of a header. The data section starts at `data_start` of file `file` and has `data_bytes`
// bytes; `what` names the file in errors.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, std::uint64_t data_start,
                                                   std::uint64_t data_bytes, FileId file,
                                                   std::string_view what);

// Reads and parses the header of an open file.
Result<SafetensorsHeader> read_safetensors_header(const ReadFile& input, FileId file);

}  // namespace moeflux
