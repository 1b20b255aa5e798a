// Matrix products of CpuOps: resident matrices, matrices a head, and experts.

#include <algorithm>

#include "base/arithmetic.h"
#include "base/check.h"
#include "base/overloaded.h"
#include "kernels/cpu_ops.h"

namespace moeflux {
namespace {

MatmulKernel kernel_of(const MatmulKernels& kernels, const Encoding& encoding) {
  return std::visit(
      overloaded{
          [&](const PlainFormat& plain) { return plain.dtype == Dtype::bf16 ? kernels.bf16 : kernels.f32; },
          [&](const AffineFormat& affine) { return affine_kernel(kernels, affine.bits); },
          [&](const Fp8BlockFormat&) { return kernels.fp8; },
      },
      encoding);
}

std::uint64_t blocks_of(std::uint64_t rows) { return divide_up(rows, tile16::kBlockRows); }

// The product of some blocks of `w` with x, into y's columns of these blocks. Affine matrices are multiplied with bytes
// where x has them.
class BlockProduct {
 public:
  // `rows`: which rows of x; none: all of them.
  BlockProduct(const KernelTable& kernels, const TiledMatrix& w, const Input& x, Rows y,
               std::span<const std::uint32_t> rows = {})
      : rows_(w.rows) {
    const auto* affine = std::get_if<AffineFormat>(&w.encoding);
    if (affine != nullptr && x.bytes.codes != nullptr) {
      int8_ = affine_kernel(*kernels.int8, affine->bits);
      describe(int8_args_, w, affine, y, rows, x.x.count);
      int8_args_.x = x.bytes.codes;
      int8_args_.x_stride = x.bytes.stride;
      int8_args_.scales = x.bytes.scales.data;
      int8_args_.scales_stride = x.bytes.scales.stride;
      int8_args_.sums = x.bytes.sums.data;
      int8_args_.sums_stride = x.bytes.sums.stride;
      return;
    }
    kernel_ = kernel_of(*kernels.matmul, w.encoding);
    describe(args_, w, affine, y, rows, x.x.count);
    args_.x = x.x.data;
    args_.x_stride = x.x.stride;
    args_.sums = x.sums.data;
    args_.sums_stride = x.sums.stride;
  }

  void run(std::uint64_t first_block, std::uint64_t end_block) const {
    if (int8_ != nullptr)
      run_part(int8_, int8_args_, first_block, end_block);
    else
      run_part(kernel_, args_, first_block, end_block);
  }

 private:
  template <class Args>
  static void describe(Args& args, const TiledMatrix& w, const AffineFormat* affine, Rows y,
                       std::span<const std::uint32_t> rows, std::uint32_t count) {
    args.blocks = w.first_block;
    args.block_stride = w.block_stride;
    args.cols = static_cast<std::uint32_t>(w.cols);
    if (affine != nullptr) {
      args.group = affine->group;
      args.f32_scales = affine->scale_dtype == Dtype::f32;
    }
    args.x_rows = rows.empty() ? nullptr : rows.data();
    args.batch = rows.empty() ? count : static_cast<std::uint32_t>(rows.size());
    args.y = y.data;
    args.y_stride = y.stride;
  }

  template <class Kernel, class Args>
  void run_part(Kernel kernel, const Args& args, std::uint64_t first_block, std::uint64_t end_block) const {
    Args some = args;
    some.blocks += first_block * args.block_stride;
    some.block_count = static_cast<std::uint32_t>(end_block - first_block);
    const std::uint64_t end_row = std::min(rows_, end_block * tile16::kBlockRows);
    some.last_block_rows = static_cast<std::uint32_t>(end_row - (end_block - 1) * tile16::kBlockRows);
    some.y += first_block * tile16::kBlockRows;
    kernel(some);
  }

  MatmulKernel kernel_ = nullptr;
  Int8Kernel int8_ = nullptr;
  MatmulArgs args_;  // of the whole matrix
  Int8Args int8_args_;
  std::uint64_t rows_;
};

}  // namespace

Input CpuOps::take_prepared(Rows x) {
  Input input{x};
  const std::uint32_t sums = x.cols / kSumCols;
  if (sums == 0) return input;
  if (precision_ == Precision::exact) {
    input.sums = take(x.count, sums);
    return input;
  }
  input.bytes.stride = x.cols;
  input.bytes.codes = take_host<std::int8_t>(std::size_t{x.count} * x.cols).data();
  input.bytes.scales = take(x.count, divide_up(x.cols, kInt8Group));
  input.bytes.sums = take(x.count, sums);
  return input;
}

// No affine matrix has columns that are no multiple of 32.
void CpuOps::prepare_row(const Input& input, std::uint32_t row, std::uint32_t cols) {
  if (cols % kSumCols != 0) return;
  if (precision_ == Precision::exact)
    kernels_->matmul->sums(input.x.row(row), cols, input.sums.row(row));
  else
    kernels_->int8->quantize(input.x.row(row), cols, input.bytes.row(row), input.bytes.scales.row(row),
                             input.bytes.sums.row(row));
}

Input CpuOps::prepare(Rows x) {
  if (x.cols % kSumCols != 0) return {x};
  const Input input = take_prepared(x);
  each_row(x.count, [&](std::uint32_t row) { prepare_row(input, row, x.cols); });
  return input;
}

void CpuOps::run_matmul(const TiledMatrix& w, const Input& x, Rows y) {
  MF_REQUIRE(w.cols == x.x.cols && w.rows == y.cols && x.x.count == y.count, "the shapes agree");
  if (is_measuring()) return;
  const BlockProduct product(*kernels_, w, x, y);
  region(blocks_of(w.rows),
         [&](std::uint64_t begin, std::uint64_t end, unsigned) { product.run(begin, end); });
}

void CpuOps::run_head_matmul(const HeadMatrices& w, const Heads& x, const Heads& y) {
  MF_REQUIRE(w.heads == x.heads && w.heads == y.heads && w.all.cols == x.dim && w.rows == y.dim,
             "the shapes agree");
  const Scope scope(*this);
  const std::uint64_t head_blocks = blocks_of(w.rows);
  const std::uint32_t sum_cols = x.dim % kSumCols == 0 ? x.dim / kSumCols : 0;
  const Rows sums = take(x.count * x.heads, std::max(sum_cols, 1u));  // [heads][rows][sums]
  if (sum_cols != 0)
    each_head(x, [&](std::uint32_t row, std::uint32_t head) {
      kernels_->matmul->sums(x.head(row, head), x.dim, sums.row(std::uint64_t{head} * x.count + row));
    });
  region(w.heads, [&](std::uint64_t begin, std::uint64_t end, unsigned) {
    for (std::uint64_t head = begin; head < end; ++head) {
      TiledMatrix matrix = w.all;
      matrix.rows = w.rows;
      matrix.first_block += head * head_blocks * w.all.block_stride;
      const Input input{{x.head(0, head), x.count, x.dim, x.stride},
                        {sums.row(head * x.count), x.count, sum_cols, sums.stride}};
      BlockProduct(*kernels_, matrix, input, {y.head(0, head), y.count, y.dim, y.stride}).run(0, head_blocks);
    }
  });
}

// Where one visit's rows lie among those of all visits of a call.
struct CpuOps::HiddenRows {
  std::uint32_t first;
  std::uint64_t first_hidden_block, first_down_block;
};

// Three regions whatever the number of experts: gate, up and SwiGLU; preparing what is between them; down.
void CpuOps::run_visit(std::span<const ExpertVisit> visits, const Input& x, Rows partials) {
  MF_REQUIRE(visits.size() <= kVisitsAtOnce, "not too many experts at once");
  const Scope scope(*this);
  // As much for few experts as for many: a plan does not know how the rows will choose.
  const std::span<HiddenRows> places = take_host<HiddenRows>(kVisitsAtOnce + 1);
  std::uint32_t rows = 0;
  std::uint32_t widest = 0;
  std::uint64_t hidden_blocks = 0, down_blocks = 0;
  for (std::size_t v = 0; v < visits.size(); ++v) {
    places[v] = {rows, hidden_blocks, down_blocks};
    rows += static_cast<std::uint32_t>(visits[v].rows.size());
    widest = std::max(widest, static_cast<std::uint32_t>(visits[v].gate.rows));
    hidden_blocks += blocks_of(visits[v].gate.rows);
    down_blocks += blocks_of(visits[v].down.rows);
  }
  places[visits.size()] = {rows, hidden_blocks, down_blocks};
  const Rows hidden = take(rows, widest);
  const Rows ups = take(rows, widest);

  // Calls body(visit, first block, end block) for the part of all visits' blocks [begin, end).
  const auto each_part = [&](std::uint64_t HiddenRows::*first, std::uint64_t begin, std::uint64_t end,
                             auto body) {
    for (std::size_t v = 0; v < visits.size(); ++v) {
      const std::uint64_t from = std::max(begin, places[v].*first);
      const std::uint64_t to = std::min(end, places[v + 1].*first);
      if (from < to) body(v, from - places[v].*first, to - places[v].*first);
    }
  };
  const auto rows_of = [&](const Rows& all, std::size_t v, std::uint64_t cols) {
    return all.some(places[v].first, static_cast<std::uint32_t>(visits[v].rows.size()))
        .columns(0, static_cast<std::uint32_t>(cols));
  };

  region(hidden_blocks, [&](std::uint64_t begin, std::uint64_t end, unsigned) {
    each_part(&HiddenRows::first_hidden_block, begin, end,
              [&](std::size_t v, std::uint64_t from, std::uint64_t to) {
                const ExpertVisit& visit = visits[v];
                const Rows gate = rows_of(hidden, v, visit.gate.rows), up = rows_of(ups, v, visit.gate.rows);
                for (const auto& [matrix, out] : {std::pair(&visit.gate, &gate), std::pair(&visit.up, &up)}) {
                  BlockProduct(*kernels_, *matrix, x, *out, visit.rows).run(from, to);
                }
                const std::uint64_t first = from * tile16::kBlockRows;
                const std::uint64_t count = std::min(visit.gate.rows, to * tile16::kBlockRows) - first;
                for (std::uint32_t row = 0; row < gate.count; ++row)
                  kernels_->rows->swiglu(gate.row(row) + first, up.row(row) + first,
                                         static_cast<std::uint32_t>(count), gate.row(row) + first);
              });
  });

  const Input inner = take_prepared(hidden);
  each_row(rows, [&](std::uint32_t row) {
    std::size_t v = 0;
    while (row >= places[v + 1].first) ++v;
    prepare_row(inner, row, static_cast<std::uint32_t>(visits[v].down.cols));
  });

  region(down_blocks, [&](std::uint64_t begin, std::uint64_t end, unsigned) {
    each_part(&HiddenRows::first_down_block, begin, end,
              [&](std::size_t v, std::uint64_t from, std::uint64_t to) {
                const ExpertVisit& visit = visits[v];
                const auto count = static_cast<std::uint32_t>(visit.rows.size());
                const Rows out = partials.some(visit.first_partial, count);
                BlockProduct(*kernels_, visit.down, inner.some(places[v].first, count), out).run(from, to);
              });
  });
}

void CpuOps::run_visit_adding(const ExpertVisit& visit, const Input& x, Rows y) {
  const Scope scope(*this);
  const auto rows = static_cast<std::uint32_t>(visit.rows.size());
  const auto width = static_cast<std::uint32_t>(visit.gate.rows);
  const Rows hidden = take(rows, width);
  const Rows up = take(rows, width);
  const Rows outputs = take(rows, y.cols);
  region(blocks_of(width), [&](std::uint64_t begin, std::uint64_t end, unsigned) {
    for (const auto& [matrix, out] : {std::pair(&visit.gate, &hidden), std::pair(&visit.up, &up)}) {
      BlockProduct(*kernels_, *matrix, x, *out, visit.rows).run(begin, end);
    }
    const std::uint64_t first = begin * tile16::kBlockRows;
    const auto count =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(width, end * tile16::kBlockRows) - first);
    for (std::uint32_t row = 0; row < rows; ++row)
      kernels_->rows->swiglu(hidden.row(row) + first, up.row(row) + first, count, hidden.row(row) + first);
  });
  const Input input = prepare(hidden);
  run_matmul(visit.down, input, outputs);
  each_row(rows, [&](std::uint32_t row) {
    float* const out = y.row(visit.rows[row]);
    kernels_->rows->add_scaled(out, outputs.row(row), visit.weights[row], y.cols, out);
  });
}

}  // namespace moeflux
