#pragma once
// The vocabulary of the vector kernels: sixteen lanes of 32 bits.
//
// An instruction set is a type, called `Isa` in the templates of this folder (see x86/avx2.h). Every
// operation rounds each lane as law.h does for one number, so an algorithm in this vocabulary has the same
// result on every Isa. Isa types are in anonymous namespaces, which gives every template over them internal
// linkage. Otherwise the linker could merge a function with a copy compiled for a wider instruction set, and
// the rest of the program would call it (tools/check_isa_objects.py).
//
// Types
//   Isa::Lanes                  sixteen float32
//   Isa::Ints                   sixteen int32; also used as 64 bytes or 32 words
//
// Static members of Isa: operations that create lanes, or that do not involve them
//   broadcast(a)                a in every lane; a is a float or an int32
//   load(from)                  sixteen floats
//   load_first(from, count)     `count` (0..16) floats, zeros in the other lanes; reads nothing beyond them
//   load_unit(from)             64 bytes
//   load_bytes(from)            sixteen signed bytes, one per lane
//   load_words(from)            32 signed bytes as 32 words
//   load_halves(from)           sixteen unsigned 16-bit numbers, one per lane
//   dot4<Bits>(sum, codes, x)   sum + the products of the four bytes of a lane; exact. Codes are unsigned and
//                               below 2^Bits; x is signed and above -128
//   dot2(sum, a, b)             sum + the products of the two signed words of a lane; exact if it fits
//   square_root(a)              of one float
//   prefetch_l2(line)           prefetches into the L2 cache, which tracks more outstanding misses than the
//                               L1 cache; the compiler may move it
//   prefetch_l2_in_place(line)  the same, but ordered with the reads and writes around it: among non-temporal
//                               stores its position matters
//   store_fence()               makes earlier non-temporal stores visible to other threads
//
// Free functions on lanes, found by argument-dependent lookup
//   + - * / fma                 per lane; of integers: + - & | ^
//   negated, magnitude          of floats
//   greater less equal          masks for select(mask, yes, no), as is not_a_number
//   larger(a, b)                law::larger of floats; of signed integers too
//   shift_left<N>               shifts in zeros, like shift_right<N>;
//                               shift_right_signed<N> shifts in the sign
//   to_float, to_int            to_int: of integers in range
//   round_to_int                to nearest, ties to even
//   as_float, as_int            the same bits
//   store(to, a)                all lanes
//   store_first(to, a, count)   the first `count` lanes; writes nothing beyond them
//   store_nontemporal(to, a)    bypasses the caches; `to` is a multiple of 64 bytes. See store_fence()
//   store_unit(to, a)           64 bytes
//   store_bytes(to, a)          lanes of -128..127 as bytes
//   store_words(to, a)          lanes of -32768..32767 as words
//   store_halves(to, a)         lanes of 0..65535 as 16 bits
//   interleave(a, b, to)        the 64 bytes of a and b in turn: 128 bytes
//   fold_add(a)                 law::fold_add
//   fold_largest(a)             the largest lane; no NaN
//   fold_add_tile(a, scale, to, stride)
//                               to[c * stride + r] = fold_add(a[r][c]) * scale for [kFoldRows][kFoldCols]
//                               sums at once, because folds share shuffles
//   swap_neighbors(a)           lanes 1 0 3 2 ...
//   first_half_twice(a)         lanes 0 0 1 1 ... 7 7; second_half_twice(a): lanes 8 8 9 9 ... 15 15
//   negated_even(a)             flips the sign of lanes 0 2 4 ...
//   transpose(a)                lane j of a[i] becomes lane i of a[j]
//   load_columns(rows, columns) the columns of sixteen rows of four floats
//   field<At, Bits>(unit)       bits [At, At + Bits) of every lane as a float; the field lies within a byte
//   any_bit(a)                  whether any bit is set in any lane
//   make_opaque(a)              hides the value of a from the optimizer
//
// Sizes that suit the registers of the Isa
//   kFoldRows, kFoldCols        the tile of fold_add_tile: keys and queries that attention multiplies at once
//   kStripsAtOnce               strips of the delta rule, each with four chains
//   kMatmulRows, kMatmulSums    rows of x that are multiplied at once, and chains that fit into registers
//   kInt8Blocks, kInt8Rows      blocks, and rows of x, that are multiplied at once
//   kAttentionUnits             vectors of positions or channels that a tile of queries is multiplied by

#include <cstddef>

#include "kernels/law.h"

#define MF_INLINE [[gnu::always_inline]] static inline

namespace moeflux::vector {
namespace {

constexpr std::size_t kWidth = law::kLanes;

template <class Isa>
using LanesOf = typename Isa::Lanes;
template <class Isa>
using IntsOf = typename Isa::Ints;

}  // namespace
}  // namespace moeflux::vector
