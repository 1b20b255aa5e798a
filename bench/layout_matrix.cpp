#include "layout_matrix.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "quant/tile16.h"

namespace moeflux::layout_bench {
namespace {

constexpr AffineFormat kFormat{.bits = 4, .group = kGroup, .scale_dtype = Dtype::bf16};

void append_bf16(std::vector<std::byte>& bytes, float number) {
  const auto halves = std::bit_cast<std::array<std::byte, 4>>(number);
  bytes.insert(bytes.end(), halves.begin() + 2, halves.end());
}

// The unit that ends a group: 16 pairs (bias, scale) → 16 scales, 16 biases.
void separate_pairs(std::byte* unit) {
  std::array<std::byte, kScalesBytes> pairs;
  std::memcpy(pairs.data(), unit, pairs.size());
  for (std::size_t lane = 0; lane < kBlockRows; ++lane) {
    std::memcpy(unit + lane * 2, pairs.data() + lane * 4 + 2, 2);
    std::memcpy(unit + (kBlockRows + lane) * 2, pairs.data() + lane * 4, 2);
  }
}

// Of a block: codes of all groups, then the scales of all groups.
void split_scales(std::span<std::byte> block) {
  const std::vector<std::byte> groups(block.begin(), block.end());
  const std::size_t count = block.size() / kGroupBytes;
  for (std::size_t group = 0; group < count; ++group) {
    const std::byte* from = groups.data() + group * kGroupBytes;
    std::memcpy(block.data() + group * kCodesBytes, from, kCodesBytes);
    std::memcpy(block.data() + count * kCodesBytes + group * kScalesBytes, from + kCodesBytes, kScalesBytes);
  }
}

std::size_t place_of(std::size_t column, Order order) {
  const std::size_t span = order == Order::even_odd_of_8 ? 8 : kGroup;
  if (order == Order::columns) return column;
  const std::size_t within = column % span;
  return column - within + within % 2 * (span / 2) + within / 2;
}

float float_of(std::span<const std::byte> bf16s, std::size_t index) {
  return load_float(bf16s.data(), index, Dtype::bf16);
}

}  // namespace

MlxMatrix MlxMatrix::random(std::uint32_t rows, std::uint32_t cols, std::uint32_t seed) {
  std::mt19937 random(seed);
  MlxMatrix matrix;
  matrix.rows_ = rows;
  matrix.cols_ = cols;
  matrix.codes_.resize(std::size_t{rows} * cols / 2);
  for (std::byte& byte : matrix.codes_) byte = static_cast<std::byte>(random());
  std::uniform_real_distribution<float> scale(0.002f, 0.003f);
  for (std::size_t group = 0; group < std::size_t{rows} * (cols / kGroup); ++group) {
    append_bf16(matrix.scales_, scale(random));
    append_bf16(matrix.biases_, -8 * scale(random));
  }
  return matrix;
}

MatrixView MlxMatrix::view() const { return {rows_, cols_, kFormat, codes_, scales_, biases_}; }

void write_layout(Layout layout, const MatrixView& matrix, std::span<std::byte> out) {
  if (layout == Layout::rows) {
    auto end = std::copy(matrix.codes.begin(), matrix.codes.end(), out.begin());
    end = std::copy(matrix.scales.begin(), matrix.scales.end(), end);
    std::copy(matrix.biases.begin(), matrix.biases.end(), end);
    return;
  }
  const std::size_t block_bytes = tile16::block_bytes(matrix.encoding, matrix.cols);
  for (std::size_t row = 0; row < matrix.rows; row += kBlockRows) {
    const auto block = out.subspan(row / kBlockRows * block_bytes, block_bytes);
    tile16::encode_block(matrix, row, block);
    if (layout == Layout::split) split_scales(block);
    if (layout != Layout::tile16) continue;
    for (std::size_t unit = kCodesBytes; unit < block.size(); unit += kGroupBytes)
      separate_pairs(block.data() + unit);
  }
}

Activations Activations::random(std::uint32_t batch, std::uint32_t cols, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> any(-1, 1);
  Activations made{batch, cols, std::vector<float>(std::size_t{batch} * cols), {}, {}, {}, {}};
  for (float& number : made.x) number = any(random);
  for (auto& order : made.x8) order.resize(made.x.size());
  for (std::size_t first = 0; first < made.x.size(); first += kGroup) {
    const auto group = std::span(made.x).subspan(first, kGroup);
    float sum = 0, largest = 0;
    for (const float number : group) {
      sum += number;
      largest = std::max(largest, std::fabs(number));
    }
    const float scale = largest / 127;
    int sum8 = 0;
    for (std::size_t k = 0; k < kGroup; ++k) {
      const auto code = static_cast<std::int8_t>(std::lrint(group[k] / scale));
      sum8 += code;
      for (const Order order : {Order::columns, Order::even_odd_of_8, Order::even_odd_of_64})
        made.x8[static_cast<std::size_t>(order)][first + place_of(k, order)] = code;
    }
    made.sums.push_back(sum);
    made.scales8.push_back(scale);
    made.sums8.push_back(scale * static_cast<float>(sum8));
  }
  return made;
}

Product Activations::product(Order order, std::uint32_t rows_of_batch) const {
  Product product{};
  product.cols = cols;
  product.batch = rows_of_batch;
  product.x = x.data();
  product.sums = sums.data();
  product.x8 = x8[static_cast<std::size_t>(order)].data();
  product.x8_scales = scales8.data();
  product.x8_sums = sums8.data();
  return product;
}

void exact_by_law(const MatrixView& matrix, const Activations& activations, std::uint32_t row_of_batch,
                  std::span<float> out) {
  const std::size_t groups = matrix.cols / kGroup;
  const float* x = activations.x.data() + std::size_t{row_of_batch} * matrix.cols;
  const float* sums = activations.sums.data() + row_of_batch * groups;
  for (std::size_t row = 0; row < matrix.rows; ++row) {
    float y = 0;
    for (std::size_t group = 0; group < groups; ++group) {
      float chain[4] = {};
      for (std::size_t col = group * kGroup; col < (group + 1) * kGroup; ++col)
        chain[col % 4] = std::fma(static_cast<float>(affine_code(matrix, row, col)), x[col], chain[col % 4]);
      const float sum = (chain[0] + chain[1]) + (chain[2] + chain[3]);
      y = std::fma(float_of(matrix.scales, row * groups + group), sum, y);
      y = std::fma(float_of(matrix.biases, row * groups + group), sums[group], y);
    }
    out[row] = y;
  }
}

void int8_by_law(const MatrixView& matrix, const Activations& activations, std::uint32_t row_of_batch,
                 std::span<float> out) {
  const std::size_t groups = matrix.cols / kGroup;
  const std::int8_t* x = activations.x8[0].data() + std::size_t{row_of_batch} * matrix.cols;
  const float* scales = activations.scales8.data() + row_of_batch * groups;
  const float* sums = activations.sums8.data() + row_of_batch * groups;
  for (std::size_t row = 0; row < matrix.rows; ++row) {
    float y = 0;
    for (std::size_t group = 0; group < groups; ++group) {
      int dot = 0;
      for (std::size_t col = group * kGroup; col < (group + 1) * kGroup; ++col)
        dot += static_cast<int>(affine_code(matrix, row, col)) * x[col];
      const float scale = float_of(matrix.scales, row * groups + group) * scales[group];
      y = std::fma(scale, static_cast<float>(dot), y);
      y = std::fma(float_of(matrix.biases, row * groups + group), sums[group], y);
    }
    out[row] = y;
  }
}

}  // namespace moeflux::layout_bench
