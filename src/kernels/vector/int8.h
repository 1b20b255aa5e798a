#pragma once
// Integer products, sixteen output rows at a time; scalar/int8.cpp is the specification.
//
// The sums of a cell are exact integers, so chains and tiles are chosen for speed alone.

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"
#include "kernels/law.h"
#include "kernels/vector/codes.h"
#include "kernels/vector/lanes.h"
#include "kernels/vector/lanes_math.h"

namespace moeflux::vector {
namespace {

// Chains of integer sums per row of x and block: enough to hide the latency of a product.
constexpr unsigned chains_of(unsigned sums) { return sums == 1 ? 4 : sums <= 3 ? 2 : 1; }

template <class Isa>
struct Int8 {
  using Lanes = LanesOf<Isa>;
  using Ints = IntsOf<Isa>;

  // The integer sums of a cell for `Blocks` blocks and `Rows` rows of x.
  template <unsigned Bits, unsigned Blocks, unsigned Rows>
  struct Cell {
    static constexpr unsigned kChains = chains_of(Blocks * Rows);
    Ints sums[Rows][Blocks][kChains];

    [[gnu::always_inline]] Cell() {
#pragma GCC unroll 16
      for (unsigned row = 0; row < Rows; ++row)
#pragma GCC unroll 4
        for (unsigned block = 0; block < Blocks; ++block)
#pragma GCC unroll 4
          for (unsigned chain = 0; chain < kChains; ++chain)
            sums[row][block][chain] = Isa::broadcast(std::int32_t{0});
    }

    // kStep columns; low, high: of the first block.
    template <unsigned Index = 0>
    [[gnu::always_inline]] void add_step(const std::byte* low, const std::byte* high,
                                         std::uint64_t block_stride, const std::int8_t* const (&x)[Rows],
                                         std::size_t k) {
      Ints codes[Blocks];
#pragma GCC unroll 4
      for (unsigned block = 0; block < Blocks; ++block)
        codes[block] = quad_codes<Isa, Bits, Index>(low + block * block_stride, high + block * block_stride);
#pragma GCC unroll 16
      for (unsigned row = 0; row < Rows; ++row) {
        const Ints four = broadcast_four<Isa>(x[row] + k + 4 * Index);
#pragma GCC unroll 4
        for (unsigned block = 0; block < Blocks; ++block) {
          Ints& sum = sums[row][block][Index % kChains];
          sum = Isa::template dot4<Bits>(sum, codes[block], four);
        }
      }
      if constexpr (4 * (Index + 1) < kStep) add_step<Index + 1>(low, high, block_stride, x, k);
    }

    [[gnu::always_inline]] Ints dot(unsigned row, unsigned block) const {
      Ints sum = sums[row][block][0];
#pragma GCC unroll 4
      for (unsigned chain = 1; chain < kChains; ++chain) sum = sum + sums[row][block][chain];
      return sum;
    }
  };

  // The columns that share scales, and the cells in them, as compile-time constants, so that loops over them
  // unroll.
  template <unsigned GroupCols>
  struct CellsOf {
    static constexpr unsigned kCols = GroupCols, kCellCols = GroupCols < kInt8Group ? GroupCols : kInt8Group;
  };

  // From three rows on, computing takes longer than reading, and lines are too far apart to be recognized as
  // a stream: prefetch. 3, 5, 8 and 16 rows of 512 x 2048 on a Zen 4: 92, 120, 142 and 160 G products/s
  // without, 135, 160, 167 and 173 with it; 2048 x 512: 145, 90, 110 and 142 without, 145, 168, 170 and 171
  // with it. For one row and two see wants_prefetch() in kernel_table.h.
  template <unsigned Rows, bool Fine>
  static constexpr bool kPrefetchesAlways = (Fine ? 2 * Rows : Rows) >= 3;

  // Where the bytes, scales and sums of a tile's rows begin. The fine bytes of a row are one more byte row.
  template <unsigned Rows, bool Fine>
  struct TileRows {
    static constexpr unsigned kByteRows = Fine ? 2 * Rows : Rows;
    const std::int8_t* x[kByteRows];
    const float* scales[Rows];
    const float* sums[kByteRows];

    [[gnu::always_inline]] TileRows(const Int8Args& args, std::uint32_t first_row) {
#pragma GCC unroll 16
      for (unsigned row = 0; row < Rows; ++row) {
        const std::uint64_t x_row = args.x_rows != nullptr ? args.x_rows[first_row + row] : first_row + row;
        x[row] = args.x + x_row * args.x_stride;
        scales[row] = args.scales + x_row * args.scales_stride;
        sums[row] = args.sums + x_row * args.sums_stride;
        if constexpr (Fine) {
          x[Rows + row] = args.fine + x_row * args.x_stride;
          sums[Rows + row] = args.fine_sums + x_row * args.sums_stride;
        }
      }
    }

    // The sum over the columns of a cell that begins at column k.
    template <class Group>
    [[gnu::always_inline]] float sum(unsigned byte_row, std::uint32_t k) const {
      const float* const from = sums[byte_row] + k / kSumCols;
      return Group::kCellCols == kInt8Group ? from[0] + from[1] : from[0];
    }
  };

  // Adds a cell, the products of the codes at columns k on, to the accumulators of all rows and blocks.
  template <class Group, unsigned Blocks, unsigned Rows, bool Fine, class Cell>
  MF_INLINE void add_cell(const Cell& cell, const GroupScales<Isa> (&of_blocks)[Blocks],
                          const TileRows<Rows, Fine>& rows, std::uint32_t k,
                          float (&acc)[Rows][Blocks][kBlockRows]) {
#pragma GCC unroll 16
    for (unsigned row = 0; row < Rows; ++row) {
      float sum = rows.template sum<Group>(row, k), scale = rows.scales[row][k / kInt8Group];
      if constexpr (Fine) {
        sum = kFineSteps * sum + rows.template sum<Group>(Rows + row, k);
        scale = scale * (1.0f / kFineSteps);
      }
#pragma GCC unroll 4
      for (unsigned b = 0; b < Blocks; ++b) {
        Ints dot = cell.dot(row, b);
        if constexpr (Fine) dot = shift_left<8>(dot) - shift_left<1>(dot) + cell.dot(Rows + row, b);
        const Lanes inner = fma(of_blocks[b].bias, Isa::broadcast(sum), of_blocks[b].scale * to_float(dot));
        store(acc[row][b], fma(Isa::broadcast(scale), inner, Isa::load(acc[row][b])));
      }
    }
  }

  // Prefetches a group of every block; `stride` apart.
  template <unsigned Blocks>
  MF_INLINE void prefetch_group(const std::byte* group, std::uint64_t stride, std::size_t group_bytes) {
#pragma GCC unroll 4
    for (unsigned b = 0; b < Blocks; ++b)
      for (std::size_t at = 0; at < group_bytes; at += kUnitBytes) Isa::prefetch_l2(group + b * stride + at);
  }

  // Stores the accumulators of `blocks` blocks from `block` on as the outputs of a tile's rows.
  template <unsigned Blocks, unsigned Rows>
  MF_INLINE void store_tile(const Int8Args& args, std::uint32_t first_row, std::uint32_t block,
                            unsigned blocks, const float (&acc)[Rows][Blocks][kBlockRows]) {
#pragma GCC unroll 4
    for (unsigned b = 0; b < Blocks; ++b) {
      if (b >= blocks) break;
      const std::uint32_t rows_of_block =
          block + b + 1 == args.block_count ? args.last_block_rows : kBlockRows;
      float* y = args.y + first_row * args.y_stride + std::uint64_t{block + b} * args.y_block_stride;
#pragma GCC unroll 16
      for (unsigned row = 0; row < Rows; ++row)
        store_block(y + row * args.y_stride, Isa::load(acc[row][b]), rows_of_block);
    }
  }

  // Rows [first_row, first_row + Rows) of the batch with blocks [begin, end), Blocks at a time; the first
  // remaining block stands in for missing ones. Fine: the fine bytes of a row are one more row to multiply
  // with. Prefetches: fetches the blocks ahead if `is_cold`, which means that they were not used just before.
  template <unsigned Bits, class Group, unsigned Blocks, unsigned Rows, bool Fine, bool Prefetches>
  [[gnu::noinline]] static void multiply_tiles(const Int8Args& args, std::uint32_t first_row,
                                               std::uint32_t begin, std::uint32_t end,
                                               [[maybe_unused]] bool is_cold) {
    const TileRows<Rows, Fine> rows(args, first_row);
    constexpr std::size_t kHighAt = std::size_t{Group::kCols} * 2 * Planes<Bits>::kLow;
    constexpr std::size_t kScalesAt = std::size_t{Group::kCols} * 2 * Bits;
    const std::size_t group_bytes = kScalesAt + (args.f32_scales ? 2 : 1) * kUnitBytes;
    constexpr std::size_t kAhead = kPrefetchesAlways<Rows, Fine> ? 128 * kUnitBytes : kPrefetchDistanceBytes;
    for (std::uint32_t block = begin; block < end; block += Blocks) {
      const unsigned blocks = end - block < Blocks ? end - block : Blocks;
      const std::uint64_t stride = blocks < Blocks ? 0 : args.block_stride;
      const std::byte* units = args.blocks + block * args.block_stride;
      [[maybe_unused]] const std::byte* const end_of_block = units + stride;
      // In memory on purpose if there are many: the registers are for the sums of a cell.
      alignas(64) float acc[Rows][Blocks][kBlockRows] = {};
      for (std::uint32_t first = 0; first < args.cols; first += Group::kCols, units += group_bytes) {
        const std::byte* low = units;
        const std::byte* high = units + kHighAt;
        if constexpr (Prefetches) {
          if (is_cold) {
            const std::byte* ahead = units + kAhead;
            if (ahead >= end_of_block) ahead += (Blocks - 1) * stride;
            prefetch_group<Blocks>(ahead, stride, group_bytes);
          }
        }
#pragma GCC unroll 2
        for (std::uint32_t k = first; k < first + Group::kCols; k += Group::kCellCols) {
          Cell<Bits, Blocks, rows.kByteRows> cell;
#pragma GCC unroll 2
          for (std::uint32_t step = 0; step < Group::kCellCols; step += kStep) {
            cell.add_step(low, high, stride, rows.x, k + step);
            low += Planes<Bits>::kLow * kUnitBytes;
            high += Planes<Bits>::kHigh * kUnitBytes;
          }
          // After the codes, so that memory is read sequentially.
          GroupScales<Isa> of_blocks[Blocks];
#pragma GCC unroll 4
          for (unsigned b = 0; b < Blocks; ++b)
            of_blocks[b] = group_scales<Isa>(units + b * stride + kScalesAt, args.f32_scales);
          add_cell<Group>(cell, of_blocks, rows, k, acc);
        }
      }
      store_tile(args, first_row, block, blocks, acc);
    }
  }

  // Widths other than 4 and 8 bits and groups other than 64 are rare but take as long to compile, so they
  // have fewer functions.
  template <unsigned Bits, class Group>
  static constexpr bool kIsCommon = Group::kCols == kInt8Group && (Bits == 4 || Bits == 8);
  template <unsigned Bits, class Group, bool Fine>
  static constexpr unsigned kMostRows = (kIsCommon<Bits, Group> ? Isa::kInt8Rows : Isa::kInt8Rows / 2) /
                                        (Fine ? 2 : 1);

  // Chooses the version with or without prefetching.
  template <unsigned Bits, class Group, unsigned Blocks, unsigned Rows, bool Fine>
  MF_INLINE void multiply_blocks(const Int8Args& args, std::uint32_t first_row, std::uint32_t begin,
                                 std::uint32_t end, bool is_cold) {
    if (kPrefetchesAlways<Rows, Fine> || args.prefetch) {
      multiply_tiles<Bits, Group, Blocks, Rows, Fine, true>(args, first_row, begin, end, is_cold);
    } else if constexpr (!kPrefetchesAlways<Rows, Fine>) {
      multiply_tiles<Bits, Group, Blocks, Rows, Fine, false>(args, first_row, begin, end, is_cold);
    }
  }

  // The same for a number of rows known at run time, 1..Most.
  template <unsigned Bits, class Group, bool Fine, unsigned Most>
  MF_INLINE void multiply_rows(const Int8Args& args, std::uint32_t first_row, std::uint32_t rows,
                               std::uint32_t begin, std::uint32_t end, bool is_cold) {
    if constexpr (Most == 3 && !kIsCommon<Bits, Group>) {
      multiply_rows<Bits, Group, Fine, 2>(args, first_row, rows < 2 ? rows : 2, begin, end, is_cold);
      if (rows > 2) multiply_rows<Bits, Group, Fine, 1>(args, first_row + 2, 1, begin, end, false);
    } else if (rows == Most) {
      // With few rows memory is the limit, and one block is one stream: 29, 31, 24 and 15 GB/s for 1 to 4
      // rows, where two blocks give 23, 18, 16 and 15; with eight rows two blocks give 9.9 GB/s and one 7.6.
      constexpr unsigned kBlocks = Most <= 3 ? 1 : Isa::kInt8Blocks;
      multiply_blocks<Bits, Group, kBlocks, Most, Fine>(args, first_row, begin, end, is_cold);
    } else if constexpr (Most > 1) {
      multiply_rows<Bits, Group, Fine, Most - 1>(args, first_row, rows, begin, end, is_cold);
    }
  }

  // Rows of x that visit a few blocks before the next are read: both stay in the L2 cache.
  static constexpr std::uint32_t kChunkRows = 128;

  template <unsigned Bits, class Group, bool Fine>
  MF_INLINE void multiply_groups(const Int8Args& args) {
    constexpr std::uint32_t kMost = kMostRows<Bits, Group, Fine>;
    if (args.batch <= kMost)
      return multiply_rows<Bits, Group, Fine, kMost>(args, 0, args.batch, 0, args.block_count, true);
    for (std::uint32_t chunk = 0; chunk < args.batch; chunk += kChunkRows) {
      const std::uint32_t end = args.batch - chunk < kChunkRows ? args.batch : chunk + kChunkRows;
      for (std::uint32_t block = 0; block < args.block_count; block += Isa::kInt8Blocks) {
        const std::uint32_t end_block =
            args.block_count - block < Isa::kInt8Blocks ? args.block_count : block + Isa::kInt8Blocks;
        // Split evenly: every share decodes the blocks, small shares too.
        std::uint32_t shares = (end - chunk + kMost - 1) / kMost;
        for (std::uint32_t row = chunk; shares > 0; --shares) {
          const std::uint32_t rows = (end - row + shares - 1) / shares;
          multiply_rows<Bits, Group, Fine, kMost>(args, row, rows, block, end_block, row == chunk);
          row += rows;
        }
      }
    }
  }

  template <unsigned Bits, class Group>
  MF_INLINE void multiply_either(const Int8Args& args) {
    if (args.fine != nullptr)
      multiply_groups<Bits, Group, true>(args);
    else
      multiply_groups<Bits, Group, false>(args);
  }

  template <unsigned Bits>
  static void multiply(const Int8Args& args) noexcept {
    switch (args.group) {
      case 32: return multiply_either<Bits, CellsOf<32>>(args);
      case 64: return multiply_either<Bits, CellsOf<64>>(args);
      default: return multiply_either<Bits, CellsOf<128>>(args);
    }
  }

  static void quantize(const float* x, std::uint32_t n, const ByteRow& to) noexcept {
    const Lanes round = Isa::broadcast(law::kRoundToInteger);
    for (std::uint32_t first = 0; first < n; first += kInt8Group) {
      const std::uint32_t count = n - first < kInt8Group ? n - first : kInt8Group;
      const law::CodeScale by = lanes_byte_scale<Isa>(x + first, count);
      to.scales[first / kInt8Group] = by.scale;
      const Lanes inverse = Isa::broadcast(by.inverse);
      for (std::uint32_t i = first; i < first + count; i += kSumCols) {
        Ints codes[2], fine[2];
#pragma GCC unroll 2
        for (unsigned half = 0; half < 2; ++half) {
          const std::uint32_t at = i + 16 * half;
          const Lanes steps = by.inverse != 0 ? Isa::load(x + at) * inverse : Isa::broadcast(0.0f);
          const Lanes code = steps + round - round;
          codes[half] = to_int(code);
          fine[half] = to_int((steps - code) * Isa::broadcast(float{kFineSteps}) + round - round);
          store_bytes(to.codes + at, codes[half]);
          if (to.fine != nullptr) store_bytes(to.fine + at, fine[half]);
        }
        to.sums[i / kSumCols] = fold_add(to_float(codes[0] + codes[1]));
        if (to.fine != nullptr) to.fine_sums[i / kSumCols] = fold_add(to_float(fine[0] + fine[1]));
      }
    }
  }

  static std::uint64_t saturate(std::uint64_t rounds) noexcept {
    constexpr unsigned kSums = 6 * Isa::kInt8Blocks;  // AVX2 has half as many registers of half the size
    Ints sums[kSums];
    for (Ints& sum : sums) sum = Isa::broadcast(std::int32_t{0});
    Ints codes = every_byte<Isa, 3>(), x = every_byte<Isa, 1>();
    for (std::uint64_t round = 0; round < rounds; ++round) {
      make_opaque(codes);  // so that no product can be hoisted
      make_opaque(x);
#pragma GCC unroll 16
      for (Ints& sum : sums) sum = Isa::template dot4<4>(sum, codes, x);
    }
    for (Ints& sum : sums) make_opaque(sum);
    return rounds * kSums * 4 * kBlockRows;
  }

  static constexpr Int8Kernels kTable = {
      .affine2 = multiply<2>,
      .affine3 = multiply<3>,
      .affine4 = multiply<4>,
      .affine5 = multiply<5>,
      .affine6 = multiply<6>,
      .affine8 = multiply<8>,
      .quantize = quantize,
      .saturate = saturate,
  };
};

}  // namespace
}  // namespace moeflux::vector
