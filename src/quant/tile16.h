#pragma once
// The layout "tile16" of a matrix in a packed model.
//
// A matrix consists of blocks of 16 rows; the last one is padded with zero rows. A block consists of groups
// of columns, and a group of its codes, followed by its scales. Everything is stored in units of 64 bytes, 16
// lanes of 4 bytes, and lane r belongs to row r of the block. So one vector load covers 16 output rows, no
// kernel adds across lanes, and VNNI, AMX and tensor cores can use the units as they are.
// docs/formats/packed_model.md specifies the bytes, docs/decisions/0004-tile16.md has the measurements.
//
// Packed models have fewer encodings than sources: floats are BF16 or F32, scales BF16 or F32 (fp8: F32).
// stored_encoding() widens the others without changing any value. Pure functions: any thread.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "quant/encoding.h"
#include "quant/matrix.h"

namespace moeflux::tile16 {

inline constexpr std::string_view kName = "tile16";
inline constexpr std::uint64_t kBlockRows = 16;
inline constexpr std::uint64_t kLaneBytes = 4;
inline constexpr std::uint64_t kUnitBytes = kBlockRows * kLaneBytes;

// The encoding in which tile16 stores a matrix of the given encoding, with exactly the same values.
Encoding stored_encoding(const Encoding& encoding);

// The bytes of one block of 16 rows, and of all blocks of a matrix. Requires: `encoding` is a stored one, and
// `cols` is at most kMaxDim, so that nothing wraps around.
std::uint64_t block_bytes(const Encoding& encoding, std::uint64_t cols);
std::uint64_t matrix_bytes(const Encoding& encoding, std::uint64_t rows, std::uint64_t cols);

// Writes rows [first_row, first_row + 16) of `rows` as one block; rows past the last are zero.
//   block: block_bytes(stored_encoding(rows.encoding), rows.cols)
// Requires: an fp8 view of a part of a matrix begins at a scale block, or lies within one.
void encode_block(const MatrixView& rows, std::uint64_t first_row, std::span<std::byte> block);

// A view of a tiled matrix; owns nothing. Its blocks are `block_stride` bytes apart: more than their size if
// the blocks of two matrices alternate.
struct TiledMatrix {
  std::uint64_t rows = 0;
  std::uint64_t cols = 0;
  Encoding encoding;  // a stored one
  const std::byte* first_block = nullptr;
  std::uint64_t block_stride = 0;
};

// Decodes one row to float32: the reference decode of the layout. out: [cols].
void decode_row(const TiledMatrix& matrix, std::uint64_t row, std::span<float> out);

// Copies row `row` of `from` to row `to_row` of the contiguous blocks at `to`, which have the same encoding
// and number of columns. Writes only the lane of that row, so rows can be copied in any order.
void copy_row(const TiledMatrix& from, std::uint64_t row, std::byte* to, std::uint64_t to_row);

}  // namespace moeflux::tile16
