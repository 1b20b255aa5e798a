#pragma once
// The operands of the layout benchmark: one random matrix in four layouts, and activations for it. Also the
// plain loops that define the products. Plain values; one thread at a time.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "layout_kernels.h"
#include "quant/matrix.h"

namespace moeflux::layout_bench {

// A 4-bit matrix of group 64 as MLX stores it.
class MlxMatrix {
 public:
  static MlxMatrix random(std::uint32_t rows, std::uint32_t cols, std::uint32_t seed);

  MatrixView view() const;
  std::size_t total_bytes() const { return codes_.size() + scales_.size() + biases_.size(); }

 private:
  std::uint32_t rows_ = 0, cols_ = 0;
  std::vector<std::byte> codes_, scales_, biases_;
};

// The same matrix in another layout. out: matrix.total_bytes() of it; every layout has the same size.
void write_layout(Layout layout, const MatrixView& matrix, std::span<std::byte> out);

// The orders in which kernels read the columns.
enum class Order {
  columns,         // 0 1 2 3 4 5 6 7
  even_odd_of_8,   // 0 2 4 6 1 3 5 7: low nibbles, then high nibbles of a 32-bit word of MLX
  even_odd_of_64,  // the same for a whole group
};

struct Activations {
  std::uint32_t batch, cols;
  std::vector<float> x, sums;         // [batch][cols], [batch][groups]
  std::vector<std::int8_t> x8[3];     // [batch][cols] by Order
  std::vector<float> scales8, sums8;  // [batch][groups]

  static Activations random(std::uint32_t batch, std::uint32_t cols, std::uint32_t seed);

  // The arguments of a product; the caller fills in weights, rows and y.
  Product product(Order order, std::uint32_t rows_of_batch) const;
};

// y of one row of the batch, by the law of arithmetic, one operation after another. out: [matrix.rows].
void exact_by_law(const MatrixView& matrix, const Activations& activations, std::uint32_t row_of_batch,
                  std::span<float> out);
void int8_by_law(const MatrixView& matrix, const Activations& activations, std::uint32_t row_of_batch,
                 std::span<float> out);

}  // namespace moeflux::layout_bench
