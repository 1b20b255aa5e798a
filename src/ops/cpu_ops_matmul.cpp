// Matrix products of CpuOps: preparing rows, resident matrices, and matrices per head.

#include <algorithm>

#include "base/arithmetic.h"
#include "base/check.h"
#include "ops/cpu_ops.h"

namespace moeflux {
namespace {

// Most kernels multiply this many blocks together, so products are split at multiples of it.
constexpr std::uint64_t kPartBlocks = 2;

std::uint64_t parts_of(const TiledMatrix& w) { return divide_up(blocks_of(w.rows), kPartBlocks); }

// y[i][head] = transposed w x[i][head], for all rows i.
void multiply_transposed(const TransposedKernels& kernels, const TiledMatrix& w, const Heads& x,
                         const Heads& y, std::uint64_t head) {
  TransposedArgs args;
  args.blocks = w.first_block;
  args.block_stride = w.block_stride;
  args.block_count = static_cast<std::uint32_t>(blocks_of(w.rows));
  args.last_block_rows = static_cast<std::uint32_t>(w.rows - (args.block_count - 1) * tile16::kBlockRows);
  args.cols = static_cast<std::uint32_t>(w.cols);
  args.x = x.head(0, head);
  args.x_stride = x.stride;
  args.batch = x.count;
  args.y = y.head(0, head);
  args.y_stride = y.stride;
  if (const auto* affine = std::get_if<AffineFormat>(&w.encoding)) {
    args.group = affine->group;
    args.f32_scales = affine->scale_dtype == Dtype::f32;
  }
  kernel_of(kernels, w.encoding)(args);
}

}  // namespace

Input CpuOps::take_prepared(Rows x, Rounding finest) {
  Input input{x};
  const std::uint32_t sums = x.cols / kSumCols;
  if (sums == 0) return input;
  if (precision_ == Precision::exact) {
    input.sums = take(x.count, sums);
    return input;
  }
  // Not a power of two: sixteen rows 4096 bytes apart would share eight ways of the L1 cache.
  input.bytes.stride = std::uint64_t{x.cols} + Workspace::kAlignment;
  input.bytes.codes = take_host<std::int8_t>(x.count * input.bytes.stride).data();
  input.bytes.scales = take(x.count, divide_up(x.cols, kInt8Group));
  input.bytes.sums = take(x.count, sums);
  if (finest == Rounding::coarse) return input;
  input.bytes.fine = take_host<std::int8_t>(x.count * input.bytes.stride).data();
  input.bytes.fine_sums = take(x.count, sums);
  return input;
}

// No affine matrix has a column count that is not a multiple of 32, so such rows need no preparation.
void CpuOps::prepare_part(const Input& input, std::uint32_t row, std::uint32_t first, std::uint32_t cols) {
  if (cols % kSumCols != 0) return;
  const float* const x = input.x.row(row) + first;
  if (precision_ == Precision::exact)
    return kernels_->matmul->sums(x, cols, input.sums.row(row) + first / kSumCols);
  const ByteRows& bytes = input.bytes;
  const std::uint64_t at = row * bytes.stride + first;
  ByteRow to{bytes.codes + at, bytes.scales.row(row) + first / kInt8Group,
             bytes.sums.row(row) + first / kSumCols};
  if (bytes.fine != nullptr) {
    to.fine = bytes.fine + at;
    to.fine_sums = bytes.fine_sums.row(row) + first / kSumCols;
  }
  kernels_->int8->quantize(x, cols, to);
}

Input CpuOps::prepare(Rows x, Rounding finest) {
  if (x.cols % kSumCols != 0) return {x};
  const Input input = take_prepared(x, finest);
  each_row(x.count, [&](std::uint32_t row) { prepare_part(input, row, 0, x.cols); });
  return input;
}

// Reading a weight from memory costs about as much as multiplying it with two rows, at 4 bits.
std::uint64_t CpuOps::block_cost(const TiledMatrix& w, std::uint32_t rows) {
  return w.cols * rows + tile16::block_bytes(w.encoding, w.cols) / 4;
}

CpuOps::Share CpuOps::product_share(const TiledMatrix& w, std::uint32_t rows) const {
  return {parts_of(w), kPartBlocks * block_cost(w, rows)};
}

void CpuOps::multiply_parts(const Product& product, const Input& x, std::uint64_t from, std::uint64_t to) {
  const std::uint64_t block = from * kPartBlocks;
  const std::uint64_t end_block = std::min(blocks_of(product.w.rows), to * kPartBlocks);
  BlockProduct(processor(), product.w, x, {}, product.rounding)
      .run(block, end_block, product.y.data + block * tile16::kBlockRows, product.y.stride);
}

void CpuOps::run_matmul(std::span<const Product> products, const Input& x) {
  const Scope scope(*this);
  const std::span<Share> shares = take_host<Share>(products.size());
  for (std::size_t i = 0; i < products.size(); ++i) {
    const Product& product = products[i];
    MF_REQUIRE(product.w.cols == x.x.cols && product.w.rows == product.y.cols && x.x.count == product.y.count,
               "the shapes agree");
    shares[i] = product_share(product.w, x.x.count);
  }
  each_share(shares, [&](std::size_t i, std::uint64_t from, std::uint64_t to, unsigned) {
    multiply_parts(products[i], x, from, to);
  });
}

void CpuOps::run_head_matmul(const HeadMatrices& w, const Heads& x, const Heads& y) {
  MF_REQUIRE(w.heads == x.heads && w.heads == y.heads && w.first.cols == x.dim && w.first.rows == y.dim,
             "the shapes agree");
  const Scope scope(*this);
  const std::uint32_t sum_cols = x.dim % kSumCols == 0 ? x.dim / kSumCols : 0;
  const Rows sums = take(x.count * x.heads, std::max(sum_cols, 1u));  // [heads][rows][sums]
  if (sum_cols != 0)
    each_head(x, [&](std::uint32_t row, std::uint32_t head) {
      kernels_->matmul->sums(x.head(row, head), x.dim, sums.row(std::uint64_t{head} * x.count + row));
    });
  region(w.heads, [&](std::uint64_t begin, std::uint64_t end, unsigned) {
    for (std::uint64_t head = begin; head < end; ++head) {
      const Input input{{x.head(0, head), x.count, x.dim, x.stride},
                        {sums.row(head * x.count), x.count, sum_cols, sums.stride}};
      BlockProduct(processor(), w.of(head), input).run(0, blocks_of(w.first.rows), y.head(0, head), y.stride);
    }
  });
}

void CpuOps::run_head_matmul_transposed(const HeadMatrices& w, const Heads& x, const Heads& y) {
  MF_REQUIRE(w.heads == x.heads && w.heads == y.heads && w.first.rows == x.dim && w.first.cols == y.dim,
             "the shapes agree");
  region(w.heads, [&](std::uint64_t begin, std::uint64_t end, unsigned) {
    for (std::uint64_t head = begin; head < end; ++head)
      multiply_transposed(*kernels_->transposed, w.of(head), x, y, head);
  });
}

}  // namespace moeflux
