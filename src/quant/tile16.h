#pragma once
// How a matrix lies in a packed model: the layout "tile16".
//
// A matrix is blocks of 16 rows; the last one is filled up with rows of zeros. A block is a run of groups of
// columns; a group is its numbers, then its scales. All of it comes in units of 64 bytes, 16 lanes of 4
// bytes, and lane r belongs to row r of the block: one vector load is 16 output rows, so no kernel ever
// adds across lanes, and VNNI, AMX and tensor cores take the units as they are.
// docs/formats/packed_model.md has the bytes, docs/decisions/0004-tile16.md the measurements.
//
// Stored encodings are fewer than those of sources: floats are BF16 or F32, scales BF16 or F32 (fp8: F32).
// stored_encoding() widens the others; every number keeps its value. Pure functions: any thread.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "quant/encoding.h"
#include "quant/matrix.h"

namespace moeflux::tile16 {

inline constexpr std::string_view kName = "tile16";
inline constexpr std::uint64_t kBlockRows = 16;
inline constexpr std::uint64_t kUnitBytes = 64;

// The encoding that tile16 keeps for a matrix so encoded: the same numbers exactly.
Encoding stored_encoding(const Encoding& encoding);

// Bytes of one block of 16 rows, and of all blocks of a matrix. `encoding` is a stored one. `cols` is at most
// kMaxDim, so nothing wraps.
std::uint64_t block_bytes(const Encoding& encoding, std::uint64_t cols);
std::uint64_t matrix_bytes(const Encoding& encoding, std::uint64_t rows, std::uint64_t cols);

// Writes rows [first_row, first_row + 16) of `rows`, as many as there are, as one block; the rest is zero
// rows.
//   block: block_bytes(stored_encoding(rows.encoding), rows.cols)
// An fp8 view of a part of a matrix begins at one of its scale blocks or ends with the one that it begins in.
void encode_block(const MatrixView& rows, std::uint64_t first_row, std::span<std::byte> block);

// A view of a tiled matrix; owns nothing. Its blocks lie `block_stride` bytes apart: further than their own
// size where the blocks of two matrices alternate.
struct TiledMatrix {
  std::uint64_t rows = 0;
  std::uint64_t cols = 0;
  Encoding encoding;  // a stored one
  const std::byte* first_block = nullptr;
  std::uint64_t block_stride = 0;
};

// The numbers of one row, as float32: the reference decode of the layout. out: [cols].
void decode_row(const TiledMatrix& matrix, std::uint64_t row, std::span<float> out);

// Copies row `row` of `from` to row `to_row` of the blocks at `to`, which have from's encoding and columns and follow
// each other. Writes that row's lane and nothing else, so that rows can be put together in any order.
void copy_row(const TiledMatrix& from, std::uint64_t row, std::byte* to, std::uint64_t to_row);

}  // namespace moeflux::tile16
