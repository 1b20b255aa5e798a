#pragma once
// The kernels of one instruction set, as a table of functions.
//
// A kernel runs on one thread, takes plain pointers and allocates nothing. Ops (ops/ops.h) splits batches
// into calls and distributes them over threads. The scalar tables specify each kernel in plain loops. Every
// other table produces the same bits for the same arguments, for any batch and any split of the work.
// docs/arithmetic.md is the prose version.
//
// A caller lists the tables or selects one by name, once, and passes it by reference; there is no active
// table. Immutable, so thread-safe.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace moeflux {

// ---- Matrix products -------------------------------------------------------------------------------------

// Products with affine matrices take the sums of this many neighboring activations: the smallest group size.
inline constexpr std::uint32_t kSumCols = 32;
// Columns of a plain matrix that are summed before they are added to the row's accumulator.
inline constexpr std::uint32_t kPlainGroup = 64;

// y[i][r] = sum over k of w[r][k] x[i][k], for `block_count` blocks of 16 rows of a matrix in tile16
// (quant/tile16.h).
//
// The law for one output: groups in ascending order, from acc = 0. Within a group, four chains
// c[k mod 4] = fma(w, x[k], c[k mod 4]) start from zero, with k ascending from the start of the group, and
// s = (c0 + c1) + (c2 + c3). Then
//   affine  w is the code as a float; acc = fma(scale, s, acc), then acc = fma(bias, X, acc), where X is
//           the sum of the group's x: its sums of 32 columns, added from left to right;
//   plain   groups of kPlainGroup columns (the last may be smaller); acc = acc + s;
//   fp8     w is the e4m3 number; groups of 128 columns (the last may be smaller);
//           acc = fma(scale, s, acc).
struct MatmulArgs {
  const std::byte* blocks = nullptr;   // the first block
  std::uint64_t block_stride = 0;      // in bytes, from block to block
  std::uint32_t block_count = 0;       // at least 1
  std::uint32_t last_block_rows = 16;  // 1..16 rows of the last block exist; only these are written
  std::uint32_t cols = 0;
  std::uint32_t group = 0;  // affine: 32, 64 or 128
  bool f32_scales = false;  // affine: scales and biases are F32, not BF16

  const float* x = nullptr;               // [batch][cols]
  std::uint64_t x_stride = 0;             // in floats, from row to row
  const float* sums = nullptr;            // affine: [batch][cols / 32]
  std::uint64_t sums_stride = 0;          // in floats
  const std::uint32_t* x_rows = nullptr;  // [batch] row indices into x and sums; null: 0, 1, ...
  std::uint32_t batch = 0;

  float* y = nullptr;                 // [batch][block_count][16]; the last block has last_block_rows
  std::uint64_t y_stride = 0;         // in floats, from row to row
  std::uint32_t y_block_stride = 16;  // in floats, from block to block
};

using MatmulKernel = void (*)(const MatmulArgs&) noexcept;

struct MatmulKernels {
  MatmulKernel affine2, affine3, affine4, affine5, affine6, affine8;
  MatmulKernel bf16, f32, fp8;
  // sums[j] = the sum of x[32 j .. 32 j + 32) over 16 virtual lanes. Requires: n is a multiple of 32.
  void (*sums)(const float* x, std::uint32_t n, float* sums) noexcept;
};

// ---- Transposed products ---------------------------------------------------------------------------------

// y[i][c] = sum over r of w[r][c] x[i][r], for a matrix in tile16: the outputs are its columns.
//
// The law for one output: 16 virtual lanes (r mod 16) by fma from zero, r ascending, then a fold (law.h).
//   affine  w is the code as a float; y = the sum of w (scale x[r]), plus the sum of bias x[r], where scale
//           and bias are those of row r in the group of column c;
//   plain   y = the sum of w x[r];
//   fp8     w is the e4m3 number; y = the sum of w (scale x[r]).
struct TransposedArgs {
  const std::byte* blocks = nullptr;  // as in MatmulArgs
  std::uint64_t block_stride = 0;
  std::uint32_t block_count = 0;
  std::uint32_t last_block_rows = 16;  // later rows of the last block are not read
  std::uint32_t cols = 0;
  std::uint32_t group = 0;
  bool f32_scales = false;

  const float* x = nullptr;  // [batch][rows]
  std::uint64_t x_stride = 0;
  std::uint32_t batch = 0;

  float* y = nullptr;  // [batch][cols]
  std::uint64_t y_stride = 0;
};

using TransposedKernel = void (*)(const TransposedArgs&) noexcept;

struct TransposedKernels {
  TransposedKernel affine2, affine3, affine4, affine5, affine6, affine8;
  TransposedKernel bf16, f32, fp8;
};

// ---- Integer products ------------------------------------------------------------------------------------

// Columns of x that share one scale; the last group may be half as wide.
inline constexpr std::uint32_t kInt8Group = 64;
// Fine steps per step of a byte: the rounding error of a code, at most half a step, fits into a second byte.
inline constexpr std::int32_t kFineSteps = 254;

// A row of x quantized to bytes. Views the caller's memory.
struct ByteRow {
  std::int8_t* codes = nullptr;  // [n], -127..127
  float* scales = nullptr;       // [n / 64, rounded up]
  float* sums = nullptr;         // [n / 32]: sums of the codes, exact integers
  std::int8_t* fine = nullptr;   // [n]; null: not computed
  float* fine_sums = nullptr;    // [n / 32]: sums of `fine`
};

// y[i][r] = sum over k of w[r][k] x[i][k] for an affine matrix and an x of bytes.
//
// The law: cells of min(group, kInt8Group) columns in ascending order, from acc = 0. In a cell, D = the sum
// of code * x and X = the sum of x are exact integers. Then t = fma(bias, X, scale * D) and acc = fma(scale
// of x, t, acc).
//
// With fine bytes, the activation is x + fine / kFineSteps. D and X are then kFineSteps times those of x plus
// those of fine, which are still exact integers (D is rounded when it becomes a float), and the scale of x is
// multiplied by 1 / kFineSteps.
struct Int8Args {
  const std::byte* blocks = nullptr;  // as in MatmulArgs
  std::uint64_t block_stride = 0;
  std::uint32_t block_count = 0;
  std::uint32_t last_block_rows = 16;
  std::uint32_t cols = 0;
  std::uint32_t group = 0;  // 32, 64 or 128
  bool f32_scales = false;

  const std::int8_t* x = nullptr;  // [batch][cols], -127..127
  std::uint64_t x_stride = 0;
  const float* scales = nullptr;  // [batch][cols / 64, rounded up]
  std::uint64_t scales_stride = 0;
  const float* sums = nullptr;  // [batch][cols / 32]: sums of x, exact integers
  std::uint64_t sums_stride = 0;
  const std::int8_t* fine = nullptr;      // as x; null: none
  const float* fine_sums = nullptr;       // as sums
  const std::uint32_t* x_rows = nullptr;  // [batch] row indices into all of these; null: 0, 1, ...
  std::uint32_t batch = 0;
  bool prefetch = false;  // also with one or two rows: set it to wants_prefetch()

  float* y = nullptr;  // as in MatmulArgs
  std::uint64_t y_stride = 0;
  std::uint32_t y_block_stride = 16;
};

using Int8Kernel = void (*)(const Int8Args&) noexcept;

struct Int8Kernels {
  Int8Kernel affine2, affine3, affine4, affine5, affine6, affine8;
  // Quantizes one row of x. Requires: n is a multiple of 32. With m the largest |x| of a group, scale = m /
  // 127 and code = x * (127 / m), rounded to the nearest integer, ties to even; scale and codes are zero
  // where m < law::kMinCoded. If a number of the group is not finite, its scale is NaN and its codes are
  // zero. fine = (x * (127 / m) - code) * kFineSteps, rounded likewise.
  void (*quantize)(const float* x, std::uint32_t n, const ByteRow& to) noexcept;
  // Multiplies 4-bit codes in registers for `rounds` rounds, without loads: the peak that the kernels above
  // are compared with. Returns the number of products.
  std::uint64_t (*saturate)(std::uint64_t rounds) noexcept;
};

// The kernel of `kernels` (products of any kind) for codes of `bits` bits.
template <class Kernels>
[[gnu::always_inline]] inline auto affine_kernel(const Kernels& kernels, std::uint32_t bits) {
  switch (bits) {
    case 2: return kernels.affine2;
    case 3: return kernels.affine3;
    case 4: return kernels.affine4;
    case 5: return kernels.affine5;
    case 6: return kernels.affine6;
    default: return kernels.affine8;
  }
}

// ---- Operations on rows ----------------------------------------------------------------------------------
// x, y, a, weight and gate are [n]; y may be x. Sums over a row use 16 virtual lanes by fma, then a fold
// (law.h).

struct RowKernels {
  // y = (x * (1 / sqrt(sum of x^2 / n + eps))) * weight.
  void (*rms_norm)(const float* x, const float* weight, std::uint32_t n, float eps, float* y) noexcept;
  // y = ((x * (1 / sqrt(sum of x^2 / n + eps))) * weight) * silu(gate).
  void (*gated_rms_norm)(const float* x, const float* weight, const float* gate, std::uint32_t n, float eps,
                         float* y) noexcept;
  // y = (x * (1 / sqrt(sum of x^2 + eps))) * scale.
  void (*l2_norm)(const float* x, std::uint32_t n, float eps, float scale, float* y) noexcept;
  // y = x + a.
  void (*add)(const float* x, const float* a, std::uint32_t n, float* y) noexcept;
  // y = fma(scale, a, x).
  void (*add_scaled)(const float* x, const float* a, float scale, std::uint32_t n, float* y) noexcept;
  // y = silu(gate) * up, where gate and up alternate: both is [n / 16, rounded up][gate 16, up 16]. Requires:
  // y is not `both`.
  void (*swiglu)(const float* both, std::uint32_t n, float* y) noexcept;
  // y = x * sigmoid(gate).
  void (*sigmoid_gate)(const float* x, const float* gate, std::uint32_t n, float* y) noexcept;
  void (*sigmoid)(const float* x, std::uint32_t n, float* y) noexcept;
  // y = exp(x - shift).
  void (*exp_minus)(const float* x, float shift, std::uint32_t n, float* y) noexcept;
  // Rotates n pairs of channels in place: (a, b) becomes (a cos - b sin, a sin + b cos), with four products
  // and two sums. Pair i is channels i and n + i (half) or 2 i and 2 i + 1 (interleaved).
  void (*rope_half)(float* x, const float* cos, const float* sin, std::uint32_t n) noexcept;
  void (*rope_interleaved)(float* x, const float* cos, const float* sin, std::uint32_t n) noexcept;
};

// ---- Attention -------------------------------------------------------------------------------------------

// Attention works on blocks of this many absolute positions, whatever the batch and the threads.
inline constexpr std::uint32_t kAttentionBlock = 256;

// One block of positions, and `count` queries that share its keys and values. For each query:
//   s[j]   = (query . key[j]) * scale   for j < visible; the product over 16 virtual lanes by fma
//   max    = the largest s; a zero of either sign becomes +0
//   p[j]   = exp(s[j] - max)
//   sum    = the sum of p over 16 virtual lanes (j mod 16)
//   out[c] = the sum of p[j] value[j][c], j ascending, by fma from zero
struct AttendArgs {
  const float* queries = nullptr;  // [count][key_dim]
  std::uint64_t query_stride = 0;  // in floats, like all strides here
  std::uint32_t count = 0;
  const std::uint32_t* visible = nullptr;  // [count], each 1..256: leading positions that the query sees
  const float* keys = nullptr;             // [256][key_dim]; rows that no query sees are not read
  std::uint64_t key_stride = 0;
  std::uint32_t key_dim = 0;
  const float* values = nullptr;  // [256][value_dim]
  std::uint64_t value_stride = 0;
  std::uint32_t value_dim = 0;
  float scale = 0;
  // Keys and values are not in the caches: the kernel prefetches them, and at the end the first of
  // `next_keys`.
  bool is_cold = false;
  const float* next_keys = nullptr;  // keys of the next block; null: none

  float* max = nullptr;  // [count]
  float* sum = nullptr;  // [count]
  float* out = nullptr;  // [count][value_dim]
  std::uint64_t out_stride = 0;
};

struct ByteAttentionKernels;  // byte_attention.h

struct AttentionKernels {
  void (*attend)(const AttendArgs&) noexcept;
  // Merges a block's (max, sum, out) of one query into the running ones of the blocks before it:
  //   m = the larger max; a = exp(running max - m); b = exp(block max - m)
  //   running sum = fma(running sum, a, block sum * b); running out the same, channel by channel.
  void (*merge)(float* running_max, float* running_sum, float* running_out, float block_max, float block_sum,
                const float* block_out, std::uint32_t value_dim) noexcept;
  // y = out / sum.
  void (*finish)(const float* out, float sum, std::uint32_t value_dim, float* y) noexcept;

  // Converts a row of n channels to its stored form (quant/kv_dtype.h) and back. bf16: rounded to nearest
  // even; NaN stays NaN. int8: groups of 64 (the last may be smaller), as in Int8Kernels::quantize; back:
  // scale * code.
  void (*narrow_bf16)(const float* x, std::uint32_t n, float* row) noexcept;
  void (*widen_bf16)(const float* row, std::uint32_t n, float* y) noexcept;
  void (*narrow_int8)(const float* x, std::uint32_t n, float* row) noexcept;
  void (*widen_int8)(const float* row, std::uint32_t n, float* y) noexcept;
};

// ---- Gated DeltaNet --------------------------------------------------------------------------------------

// The causal convolution of neighboring channels, row by row:
//   y[t][c] = silu(sum over k of in[t - width + 1 + k][c] weight[c][k]), k ascending by fma from zero,
// where in[-1], in[-2], ... are the rows of the state, last one first.
struct ConvArgs {
  const float* x = nullptr;  // [rows][channels]
  std::uint64_t x_stride = 0;
  std::uint32_t rows = 0;
  std::uint32_t channels = 0;
  std::uint32_t width = 0;          // at least 1
  const float* weight = nullptr;    // [channels][width]
  const float* state_in = nullptr;  // [width - 1][channels] before the first row, oldest first
  float* state_out = nullptr;       // the same after the last row, or null. Requires: not state_in
  std::uint64_t state_stride = 0;
  float* y = nullptr;  // [rows][channels]. Requires: not x
  std::uint64_t y_stride = 0;
};

// One value head, row by row. The layout of the state S[key][value] is in quant/delta_state.h; lanes are
// value channels v:
//   S[k][v] = S[k][v] * decay
//   m[v]    = the sum of S[k][v] key[k]: four chains (k mod 4) by fma, added as (c0 + c1) + (c2 + c3)
//   d[v]    = (value[v] - m[v]) * beta
//   S[k][v] = fma(key[k], d[v], S[k][v])
//   y[v]    = the sum of S[k][v] query[k]: four chains, as above
struct DeltaRuleArgs {
  const float* queries = nullptr;  // [rows][key_dim]
  const float* keys = nullptr;     // [rows][key_dim]
  const float* values = nullptr;   // [rows][value_dim]
  std::uint64_t query_stride = 0, key_stride = 0, value_stride = 0;
  const float* decay = nullptr;  // [rows]
  const float* beta = nullptr;   // [rows]
  std::uint64_t decay_stride = 0, beta_stride = 0;
  std::uint32_t rows = 0;
  std::uint32_t key_dim = 0, value_dim = 0;
  const float* state_in = nullptr;  // before the first row
  float* state_out = nullptr;       // after the last row; may be state_in
  float* y = nullptr;               // [rows][value_dim]
  std::uint64_t y_stride = 0;
};

// One row of several heads, as in decoding, by the same rule. States stream from and to memory, so the kernel
// gets all heads at once and reads one state while it writes the one before.
struct DeltaHead {
  const float *query = nullptr, *key = nullptr, *value = nullptr;
  float decay = 0, beta = 0;
  const float* state_in = nullptr;
  float* state_out = nullptr;  // may be state_in, but no other head's state
  float* y = nullptr;          // [value_dim]
};
struct DeltaStepArgs {
  const DeltaHead* heads = nullptr;  // [head_count]
  std::uint64_t head_count = 0;
  std::uint32_t key_dim = 0, value_dim = 0;
};

// A head of a step as a delta rule of one row. Points into `head`.
[[gnu::always_inline]] inline DeltaRuleArgs rule_of_head(const DeltaHead& head, std::uint32_t key_dim,
                                                         std::uint32_t value_dim) {
  DeltaRuleArgs rule;
  rule.queries = head.query;
  rule.keys = head.key;
  rule.values = head.value;
  rule.decay = &head.decay;
  rule.beta = &head.beta;
  rule.rows = 1;
  rule.key_dim = key_dim;
  rule.value_dim = value_dim;
  rule.state_in = head.state_in;
  rule.state_out = head.state_out;
  rule.y = head.y;
  return rule;
}

struct DeltaNetKernels {
  void (*conv)(const ConvArgs&) noexcept;
  void (*delta_rule)(const DeltaRuleArgs&) noexcept;
  void (*delta_step)(const DeltaStepArgs&) noexcept;
  // decay = exp(rate * softplus(a + dt_bias)), beta = sigmoid(b); all [n].
  void (*decay_beta)(const float* a, const float* b, const float* rate, const float* dt_bias, std::uint32_t n,
                     float* decay, float* beta) noexcept;
};

// ---- Tables ----------------------------------------------------------------------------------------------

struct KernelTable {
  std::string_view name;  // as --isa takes it: "scalar", "avx2", "avxvnni", "avx512", "avx512vnni"
  bool (*runs_here)();    // whether both the processor and the operating system support it
  const MatmulKernels* matmul;
  const TransposedKernels* transposed;
  const Int8Kernels* int8;
  const RowKernels* rows;
  const AttentionKernels* attention;
  const ByteAttentionKernels* byte_attention;
  const DeltaNetKernels* delta_net;
};

// Whether software prefetching speeds up one thread's sequential reads on this processor. It does on Intel's,
// whose hardware prefetcher stops at the end of a 4 KiB page: a Sapphire Rapids reads one row of 4-bit
// experts at 8.1 GB/s without it, and at 11.5 and 13 GB/s when prefetching 8 and 16 KiB ahead. A Zen 4
// becomes a quarter slower. A call may take a microsecond, so keep the result.
bool wants_prefetch();
inline constexpr std::size_t kPrefetchDistanceBytes = std::size_t{16}
                                                      << 10;  // with few rows, where wants_prefetch()

// The tables of this build, fastest first; scalar is last and runs everywhere.
std::span<const KernelTable* const> compiled_kernels();

// Returns the fastest table that runs here, or the one called `name`. Fails with invalid_argument if no table
// has that name or this processor does not support it.
Result<const KernelTable*> select_kernels(std::string_view name = {});

}  // namespace moeflux
