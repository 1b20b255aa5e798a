#pragma once
// The products over the four layouts, written once for any vector width.
//
// Included by one file per instruction set, which defines the vectors: a struct `Isa` with kLanes rows per
// vector (16, or 8 for half a block), types F and I, and the operations used here. Everything is in an
// unnamed namespace, because code compiled for an instruction set must not be shared with other files.

#include <immintrin.h>

#include "layout_kernels.h"

namespace moeflux::layout_bench {
namespace {

// Where the lanes of one vector find codes, scales and biases: rows [first_row, first_row + Isa::kLanes).
template <class Isa, Layout kLayout>
struct Weights {
  using F = typename Isa::F;
  using I = typename Isa::I;

  const std::uint8_t* block;  // rows: the first row. Otherwise the block, at the first row's lane.
  const Product& product;
  std::uint32_t first_row;

  Weights(const Product& p, std::uint32_t row) : product(p), first_row(row) {
    if constexpr (kLayout == Layout::rows)
      block = p.weights + std::size_t{row} * (p.cols / 2);
    else
      block = p.weights + row / kBlockRows * (p.groups() * kGroupBytes) + row % kBlockRows * 4;
  }

  // 8 columns of each row: [8 * unit, 8 * unit + 8) of the group.
  I codes(std::uint32_t group, std::uint32_t unit) const {
    if constexpr (kLayout == Layout::rows)
      return Isa::gather(block + group * (kGroup / 2) + unit * 4, product.cols / 2);
    else
      return Isa::load(block + group * (kLayout == Layout::split ? kCodesBytes : kGroupBytes) + unit * 64);
  }

  // The bit at which column j of those 8 begins.
  static constexpr int shift(int j) { return kLayout == Layout::rows ? 4 * j : 8 * (j % 4) + 4 * (j / 4); }

  void scales(std::uint32_t group, F& scale, F& bias) const {
    const std::uint32_t groups = product.groups();
    if constexpr (kLayout == Layout::rows) {
      const std::uint8_t* at = product.weights + std::size_t{product.rows} * (product.cols / 2) +
                               (std::size_t{first_row} * groups + group) * 2;
      scale = Isa::from_lower_half(Isa::gather(at, groups * 2));
      bias = Isa::from_lower_half(Isa::gather(at + std::size_t{product.rows} * groups * 2, groups * 2));
    } else if constexpr (kLayout == Layout::tile16) {
      const std::uint32_t lane = first_row % kBlockRows;  // `block` is 4 bytes per lane in, these are 2
      const std::uint8_t* at = block - lane * 2 + group * kGroupBytes + kCodesBytes;
      scale = Isa::from_halves(at);
      bias = Isa::from_halves(at + 2 * kBlockRows);
    } else {
      const std::size_t at = kLayout == Layout::split ? groups * kCodesBytes + group * kScalesBytes
                                                      : group * kGroupBytes + kCodesBytes;
      const I pairs = Isa::load(block + at);
      scale = Isa::from_upper_half(pairs);
      bias = Isa::from_lower_half(pairs);
    }
  }
};

// Rows [0, kBatch) of the batch. Four chains per group, by column mod 4.
template <class Isa, Layout kLayout, int kBatch>
void exact_rows(const Product& p) {
  using F = typename Isa::F;
  const std::uint32_t groups = p.groups();
  for (std::uint32_t row = 0; row < p.rows; row += Isa::kLanes) {
    const Weights<Isa, kLayout> weights(p, row);
    F y[kBatch];
    for (int n = 0; n < kBatch; ++n) y[n] = Isa::zero();
    for (std::uint32_t group = 0; group < groups; ++group) {
      F chain[kBatch][4];
      for (int n = 0; n < kBatch; ++n)
        for (int k = 0; k < 4; ++k) chain[n][k] = Isa::zero();
#pragma GCC unroll 8
      for (std::uint32_t unit = 0; unit < kGroup / 8; ++unit) {
        const typename Isa::I codes = weights.codes(group, unit);
        const float* x = p.x + group * kGroup + unit * 8;
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) {
          const F code = Isa::code(codes, weights.shift(j));
#pragma GCC unroll 16
          for (int n = 0; n < kBatch; ++n)
            chain[n][j % 4] =
                Isa::fma(code, Isa::all(x[std::size_t(n) * p.cols + std::size_t(j)]), chain[n][j % 4]);
        }
      }
      F scale, bias;
      weights.scales(group, scale, bias);
      for (int n = 0; n < kBatch; ++n) {
        const F sum = Isa::add(Isa::add(chain[n][0], chain[n][1]), Isa::add(chain[n][2], chain[n][3]));
        y[n] = Isa::fma(scale, sum, y[n]);
        y[n] = Isa::fma(bias, Isa::all(p.sums[std::size_t(n) * groups + group]), y[n]);
      }
    }
    for (int n = 0; n < kBatch; ++n) Isa::store(p.y + std::size_t(n) * p.rows + row, y[n]);
  }
}

// The same with int8 activations: sums of a group are integers.
template <class Isa, Layout kLayout, int kBatch>
void int8_rows(const Product& p) {
  using F = typename Isa::F;
  using I = typename Isa::I;
  const std::uint32_t groups = p.groups();
  for (std::uint32_t row = 0; row < p.rows; row += Isa::kLanes) {
    const Weights<Isa, kLayout> weights(p, row);
    F y[kBatch];
    for (int n = 0; n < kBatch; ++n) y[n] = Isa::zero();
    for (std::uint32_t group = 0; group < groups; ++group) {
      I dot[kBatch];
      for (int n = 0; n < kBatch; ++n) dot[n] = Isa::integer_zero();
#pragma GCC unroll 8
      for (std::uint32_t unit = 0; unit < kGroup / 8; ++unit) {
        const I codes = weights.codes(group, unit);
        const I low = Isa::low_nibbles(codes), high = Isa::high_nibbles(codes);
        const std::int8_t* x = p.x8 + group * kGroup + unit * 8;
#pragma GCC unroll 16
        for (int n = 0; n < kBatch; ++n) {
          const std::int8_t* here = x + std::size_t(n) * p.cols;
          dot[n] = Isa::add_products(dot[n], low, Isa::quad(here), high, Isa::quad(here + 4));
        }
      }
      F scale, bias;
      weights.scales(group, scale, bias);
      for (int n = 0; n < kBatch; ++n) {
        const std::size_t at = std::size_t(n) * groups + group;
        y[n] = Isa::fma(Isa::multiply(scale, Isa::all(p.x8_scales[at])), Isa::to_float(dot[n]), y[n]);
        y[n] = Isa::fma(bias, Isa::all(p.x8_sums[at]), y[n]);
      }
    }
    for (int n = 0; n < kBatch; ++n) Isa::store(p.y + std::size_t(n) * p.rows + row, y[n]);
  }
}

// Rows [first, batch) of the batch alone.
inline Product from(Product p, std::uint32_t first) {
  p.x += std::size_t{first} * p.cols;
  p.x8 += std::size_t{first} * p.cols;
  p.sums += std::size_t{first} * p.groups();
  p.x8_scales += std::size_t{first} * p.groups();
  p.x8_sums += std::size_t{first} * p.groups();
  p.y += std::size_t{first} * p.rows;
  return p;
}

template <class Isa, Layout kLayout>
void exact(const Product& p) {
  if (p.batch == 1) return exact_rows<Isa, kLayout, 1>(p);
  for (std::uint32_t n = 0; n < p.batch; n += Isa::kExactBatch)
    exact_rows<Isa, kLayout, Isa::kExactBatch>(from(p, n));
}

template <class Isa, Layout kLayout>
void int8(const Product& p) {
  if (p.batch == 1) return int8_rows<Isa, kLayout, 1>(p);
  for (std::uint32_t n = 0; n < p.batch; n += Isa::kInt8Batch)
    int8_rows<Isa, kLayout, Isa::kInt8Batch>(from(p, n));
}

// Row-major with vectors along the row: a row's group is 32 bytes. Eight rows at a time, so that one tree of
// horizontal additions serves them all. Isa::row_products() is the only step that AVX2 and VNNI differ in.
template <class Isa>
void int8_across(const Product& p) {
  const std::uint32_t groups = p.groups();
  const __m256i lanes = _mm256_mullo_epi32(_mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0),
                                           _mm256_set1_epi32(static_cast<int>(groups * 2)));
  const auto gather_bf16 = [&](const std::uint8_t* from) {
    const __m256i halves = _mm256_i32gather_epi32(reinterpret_cast<const int*>(from), lanes, 1);
    return _mm256_castsi256_ps(_mm256_slli_epi32(halves, 16));
  };
  const std::size_t row_bytes = p.cols / 2, scales_bytes = std::size_t{p.rows} * groups * 2;
  for (std::uint32_t row = 0; row < p.rows; row += 8) {
    const std::uint8_t* codes = p.weights + row * row_bytes;
    const std::uint8_t* scales = p.weights + p.rows * row_bytes + std::size_t{row} * groups * 2;
    __m256 y = _mm256_setzero_ps();
    for (std::uint32_t group = 0; group < groups; ++group) {
      const auto* x = reinterpret_cast<const __m256i*>(p.x8 + group * kGroup);
      const __m256i even = _mm256_loadu_si256(x), odd = _mm256_loadu_si256(x + 1);
      __m256i dot[8];
#pragma GCC unroll 8
      for (std::size_t k = 0; k < 8; ++k) {
        const std::uint8_t* at = codes + k * row_bytes + group * (kGroup / 2);
        const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
        const __m256i nibble = _mm256_set1_epi8(15);
        dot[k] = Isa::row_products(_mm256_and_si256(both, nibble), even,
                                   _mm256_and_si256(_mm256_srli_epi32(both, 4), nibble), odd);
      }
      const __m256i a =
          _mm256_hadd_epi32(_mm256_hadd_epi32(dot[0], dot[1]), _mm256_hadd_epi32(dot[2], dot[3]));
      const __m256i b =
          _mm256_hadd_epi32(_mm256_hadd_epi32(dot[4], dot[5]), _mm256_hadd_epi32(dot[6], dot[7]));
      const __m256i sums =
          _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
      const __m256 scale = _mm256_mul_ps(gather_bf16(scales + group * 2), _mm256_set1_ps(p.x8_scales[group]));
      const __m256 bias = gather_bf16(scales + scales_bytes + group * 2);
      y = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(sums), y);
      y = _mm256_fmadd_ps(bias, _mm256_set1_ps(p.x8_sums[group]), y);
    }
    _mm256_storeu_ps(p.y + row, y);
  }
}

template <class Isa>
constexpr Kernels kernels_of(const char* isa) {
  return {isa,
          Isa::runs_here,
          {exact<Isa, Layout::rows>, exact<Isa, Layout::tile16>, exact<Isa, Layout::paired>,
           exact<Isa, Layout::split>},
          {int8<Isa, Layout::rows>, int8<Isa, Layout::tile16>, int8<Isa, Layout::paired>,
           int8<Isa, Layout::split>},
          int8_across<Isa>,
          Isa::read};
}

}  // namespace
}  // namespace moeflux::layout_bench
