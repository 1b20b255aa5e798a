// Integer products by AMX: 16 rows of x times 16 rows of a matrix over 64 columns are one instruction.
//
// A unit of tile16 is a row of a tile as AMX wants its second operand, so a cell of a block is a tile once its codes are
// bytes. Tiles are multiplied two by two: 32 rows of x with two blocks. Rows of x need not be neighbours, and a tile's
// have to: they are gathered for one cell at a time, which then goes through a panel of blocks; the sums over cells are
// kept in y meanwhile. Few rows, and those with fine bytes, are VNNI's.
//
// It is right and not yet fast: a cell of 64 columns is one product of tiles, whose sums then become floats one by one, and
// that takes longer than the product. On a Sapphire Rapids 83 G products a second, where VNNI has 140 and tiles alone
// 1020; so it is behind VNNI in the list of kernels, and runs where it is asked for.

#include "kernels/isa_tables.h"
#include "kernels/lanes_avx512.h"

#include "kernels/codes_vector.inl"

namespace moeflux {
namespace {

constexpr std::uint32_t kTile = 16;  // rows of a tile
constexpr std::uint32_t kRowsAtOnce = 2 * kTile;
constexpr std::uint32_t kLeastRows = 12;    // fewer would leave too much of the tiles empty
constexpr std::uint32_t kPanelBlocks = 16;  // that go through the second-level cache once a cell

// What LDTILECFG takes.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0;
  std::uint8_t zeros[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

// GCC's intrinsics do not say that they read what pointers point to: what was written before them has to be in memory.
MF_LANES void write_everything() { asm volatile("" ::: "memory"); }

// Tiles 0 to 3 are sums, 4 and 5 rows of x, 6 and 7 blocks.
MF_LANES void configure(std::uint32_t cell_cols) {
  TileConfig config;
  for (unsigned tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = tile == 4 || tile == 5 ? static_cast<std::uint16_t>(cell_cols) : 64;
    config.rows[tile] = tile < 6 ? kTile : static_cast<std::uint8_t>(cell_cols / 4);
  }
  asm volatile("" ::"r"(&config) : "memory");
  _tile_loadconfig(&config);
}

// The codes of a cell, four columns of 16 rows a unit.
template <unsigned Bits, unsigned Index = 0>
MF_LANES void write_step(const std::byte* low, const std::byte* high, std::byte* to) {
  _mm512_store_si512(to + std::size_t{Index} * kUnitBytes, quad_codes<Bits, Index>(low, high).v);
  if constexpr (4 * (Index + 1) < kStep) write_step<Bits, Index + 1>(low, high, to);
}

struct Tiles {
  alignas(64) std::int8_t x[kRowsAtOnce][kInt8Group];
  alignas(64) std::byte codes[2][kInt8Group * kTile];
  alignas(64) std::int32_t sums[kRowsAtOnce][2][kTile];
};

// tiles.sums = the rows of tiles.x times one cell of two blocks; low, high: of the first.
template <unsigned Bits>
MF_LANES void multiply_cell(Tiles& tiles, const std::byte* low, const std::byte* high, std::uint64_t stride,
                            std::uint32_t cell_cols) {
  for (unsigned b = 0; b < 2; ++b)
    for (std::uint32_t step = 0; step < cell_cols; step += kStep)
      write_step<Bits>(low + b * stride + step / kStep * Planes<Bits>::kLow * kUnitBytes,
                       high + b * stride + step / kStep * Planes<Bits>::kHigh * kUnitBytes,
                       tiles.codes[b] + std::size_t{step} * kTile);
  write_everything();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, tiles.x[0], kInt8Group);
  _tile_loadd(5, tiles.x[kTile], kInt8Group);
  _tile_loadd(6, tiles.codes[0], kUnitBytes);
  _tile_loadd(7, tiles.codes[1], kUnitBytes);
  _tile_dpbsud(0, 4, 6);
  _tile_dpbsud(1, 4, 7);
  _tile_dpbsud(2, 5, 6);
  _tile_dpbsud(3, 5, 7);
  _tile_stored(0, tiles.sums[0][0], sizeof tiles.sums[0]);
  _tile_stored(1, tiles.sums[0][1], sizeof tiles.sums[0]);
  _tile_stored(2, tiles.sums[kTile][0], sizeof tiles.sums[0]);
  _tile_stored(3, tiles.sums[kTile][1], sizeof tiles.sums[0]);
}

// Rows [first_row, first_row + rows) of the batch, at most kRowsAtOnce, with blocks [begin, end).
template <unsigned Bits>
void multiply_some(const Int8Args& args, Tiles& tiles, std::uint32_t first_row, std::uint32_t rows,
                   std::uint32_t begin, std::uint32_t end) {
  const std::uint32_t cell_cols = args.group < kInt8Group ? args.group : kInt8Group;
  const std::size_t high_at = std::size_t{args.group} * 2 * Planes<Bits>::kLow;
  const std::size_t scales_at = std::size_t{args.group} * 2 * Bits;
  const std::size_t group_bytes = scales_at + (args.f32_scales ? std::size_t{2} : 1) * kUnitBytes;
  const auto x_row = [&](std::uint32_t row) -> std::uint64_t {
    return args.x_rows != nullptr ? args.x_rows[first_row + row] : first_row + row;
  };
  for (std::uint32_t k = 0; k < args.cols; k += cell_cols) {
    float x_sums[kRowsAtOnce], x_scales[kRowsAtOnce];
    for (std::uint32_t row = 0; row < rows; ++row) {
      __builtin_memcpy(tiles.x[row], args.x + x_row(row) * args.x_stride + k, cell_cols);
      const float* const sums = args.sums + x_row(row) * args.sums_stride + k / kSumCols;
      x_sums[row] = cell_cols == kInt8Group ? sums[0] + sums[1] : sums[0];
      x_scales[row] = args.scales[x_row(row) * args.scales_stride + k / kInt8Group];
    }
    const std::size_t in_group = k % args.group;
    const std::byte* const group = args.blocks + k / args.group * group_bytes;
    for (std::uint32_t block = begin; block < end; block += 2) {
      const unsigned blocks = end - block < 2 ? 1 : 2;
      const std::uint64_t stride = blocks == 2 ? args.block_stride : 0;
      const std::byte* const units = group + block * args.block_stride;
      multiply_cell<Bits>(tiles, units + in_group / kStep * Planes<Bits>::kLow * kUnitBytes,
                          units + high_at + in_group / kStep * Planes<Bits>::kHigh * kUnitBytes, stride,
                          cell_cols);
      for (unsigned b = 0; b < blocks; ++b) {
        const GroupScales of_rows = group_scales(units + b * stride + scales_at, args.f32_scales);
        const std::uint32_t count = block + b + 1 == args.block_count ? args.last_block_rows : kBlockRows;
        float* y = args.y + first_row * args.y_stride + std::uint64_t{block + b} * args.y_block_stride;
        for (std::uint32_t row = 0; row < rows; ++row, y += args.y_stride) {
          const Ints dot{_mm512_load_si512(tiles.sums[row][b])};
          const Lanes inner = fma(of_rows.bias, broadcast(x_sums[row]), of_rows.scale * to_float(dot));
          const Lanes acc = k == 0 ? broadcast(0.0f) : load_first(y, count);
          store_first(y, fma(broadcast(x_scales[row]), inner, acc), count);
        }
      }
    }
  }
}

template <unsigned Bits>
void multiply(const Int8Args& args) noexcept {
  if (args.batch < kLeastRows || args.fine != nullptr) return affine_kernel(kAvx512VnniInt8, Bits)(args);
  configure(args.group < kInt8Group ? args.group : kInt8Group);
  Tiles tiles{};
  for (std::uint32_t begin = 0; begin < args.block_count; begin += kPanelBlocks) {
    const std::uint32_t end =
        args.block_count - begin < kPanelBlocks ? args.block_count : begin + kPanelBlocks;
    for (std::uint32_t row = 0; row < args.batch; row += kRowsAtOnce) {
      const std::uint32_t rows = args.batch - row < kRowsAtOnce ? args.batch - row : kRowsAtOnce;
      multiply_some<Bits>(args, tiles, row, rows, begin, end);
    }
  }
  _tile_release();
}

std::uint64_t saturate(std::uint64_t rounds) noexcept {
  configure(kInt8Group);
  const Tiles tiles{};
  asm volatile("" ::"r"(&tiles) : "memory");
  _tile_loadd(4, tiles.x[0], kInt8Group);
  _tile_loadd(5, tiles.x[kTile], kInt8Group);
  _tile_loadd(6, tiles.codes[0], kUnitBytes);
  _tile_loadd(7, tiles.codes[1], kUnitBytes);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    _tile_dpbsud(0, 4, 6);
    _tile_dpbsud(1, 4, 7);
    _tile_dpbsud(2, 5, 6);
    _tile_dpbsud(3, 5, 7);
  }
  _tile_release();
  return rounds * 4 * kTile * kTile * kInt8Group;
}

void quantize(const float* x, std::uint32_t n, const ByteRow& to) noexcept {
  kAvx512VnniInt8.quantize(x, n, to);
}

}  // namespace

constinit const Int8Kernels kAmxInt8 = {
    .affine2 = multiply<2>,
    .affine3 = multiply<3>,
    .affine4 = multiply<4>,
    .affine5 = multiply<5>,
    .affine6 = multiply<6>,
    .affine8 = multiply<8>,
    .quantize = quantize,
    .saturate = saturate,
};

}  // namespace moeflux
