// MLPs of CpuOps: gate, up, SwiGLU and down of experts and of resident MLPs, in two parallel regions.
//
// First region: slices of 64 hidden columns. A slice's gate and up blocks are multiplied into a small buffer
// of the thread, SwiGLU makes them hidden numbers, and these are prepared for the next product while they are
// in the cache. 64 columns share a scale there, so slices are independent. With one or two rows, threads take
// single blocks, because a slice takes as long as the rest of a region with many threads. Second region:
// down. If every thread has whole experts, both regions are one: memory is read in longer runs, and no thread
// waits in between. Products that have nothing to do with each other share a region.

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/arithmetic.h"
#include "base/check.h"
#include "ops/cpu_ops.h"

namespace moeflux {
namespace {

constexpr std::uint32_t kSliceCols = kInt8Group;
constexpr std::uint64_t kSliceBlocks = kSliceCols / tile16::kBlockRows;
constexpr std::uint32_t kBufferCols = 2 * kSliceCols;  // holds a slice's gate and up, or some outputs of down
constexpr std::uint64_t kBufferBlocks = kBufferCols / tile16::kBlockRows;
// An expert with at most this many rows multiplies gate and up of all its slices at once: memory is the
// limit, and is then read in longer runs.
constexpr std::uint32_t kMaxRowsAllSlices = 2;
// From this many experts per thread on, threads take whole experts, although one thread may have one more
// than the others.
constexpr std::size_t kManyVisits = 6;
// Where the sum of a group of experts begins.
constexpr float kZeros[kBufferCols] = {};

std::uint32_t rows_of(const ExpertVisit& visit, const Input& x) {
  return visit.rows.empty() ? x.x.count : static_cast<std::uint32_t>(visit.rows.size());
}

std::uint64_t slices_of(const ExpertVisit& visit) {
  return divide_up<std::uint64_t>(visit.gate.rows, kSliceCols);
}

// Whether gate and up lie in memory as one matrix whose blocks alternate.
bool alternate(const TiledMatrix& gate, const TiledMatrix& up) {
  return gate.encoding == up.encoding && gate.block_stride == up.block_stride &&
         gate.rows % tile16::kBlockRows == 0 && gate.first_block + gate.block_stride / 2 == up.first_block &&
         tile16::block_bytes(gate.encoding, gate.cols) * 2 == gate.block_stride;
}

// Multiplies the blocks of both of a slice, alternating: [rows][gate 0, up 0, gate 1, ...].
void multiply_slice(const Processor& processor, const ExpertVisit& visit, const Input& x, std::uint64_t first,
                    std::uint64_t end, const Rows& both) {
  if (alternate(visit.gate, visit.up)) {
    TiledMatrix matrix = visit.gate;
    matrix.rows *= 2;
    matrix.block_stride /= 2;
    BlockProduct(processor, matrix, x, visit.rows).run(2 * first, 2 * end, both.data, both.stride);
    return;
  }
  constexpr std::uint32_t kPair = 2 * tile16::kBlockRows;
  BlockProduct(processor, visit.gate, x, visit.rows).run(first, end, both.data, both.stride, kPair);
  BlockProduct(processor, visit.up, x, visit.rows)
      .run(first, end, both.data + tile16::kBlockRows, both.stride, kPair);
}

}  // namespace

// The prepared hidden rows of all visits, consecutive, and the buffers of the threads.
struct CpuOps::Hidden {
  std::span<std::uint32_t> first;  // [visits + 1]: first row of each visit
  Input rows;
  Rows buffers;       // [threads * most_rows][kBufferCols]
  Rows wide_buffers;  // [threads * kMaxRowsAllSlices][gate and up of the widest expert]
  std::uint32_t most_rows;
  std::span<std::uint32_t> blocks_done;  // [visits][slices of the widest expert]: by threads, atomically

  std::uint32_t rows_of(std::size_t visit) const { return first[visit + 1] - first[visit]; }
  bool has_few_rows(std::size_t visit) const { return rows_of(visit) <= kMaxRowsAllSlices; }
  Rows buffer(unsigned worker) const { return buffers.some(worker * most_rows, most_rows); }
  Rows wide_buffer(unsigned worker) const {
    return wide_buffers.some(worker * kMaxRowsAllSlices, kMaxRowsAllSlices);
  }
};

CpuOps::Hidden CpuOps::take_hidden(std::span<const ExpertVisit> visits, const Input& x) {
  MF_REQUIRE(visits.size() <= kVisitsAtOnce, "not too many experts at once");
  // The size does not depend on the number of experts: a memory plan does not know how the rows will choose.
  const std::span<std::uint32_t> first = take_host<std::uint32_t>(kVisitsAtOnce + 1);
  std::uint32_t widest = 0;
  first[0] = 0;
  for (std::size_t v = 0; v < visits.size(); ++v) {
    first[v + 1] = first[v] + rows_of(visits[v], x);
    widest = std::max(widest, static_cast<std::uint32_t>(visits[v].gate.rows));
  }
  const Input rows = take_prepared(take(first[visits.size()], widest), Rounding::coarse);
  return with_buffers(first.first(visits.size() + 1), rows, kVisitsAtOnce);
}

CpuOps::Hidden CpuOps::with_buffers(std::span<std::uint32_t> first, const Input& rows,
                                    std::size_t most_visits) {
  const std::uint32_t slices = divide_up(rows.x.cols, kSliceCols);
  std::uint32_t most_rows = 0;
  for (std::size_t v = 0; v + 1 < first.size(); ++v) most_rows = std::max(most_rows, first[v + 1] - first[v]);
  const Hidden hidden{first,
                      rows,
                      take(threads_ * most_rows, kBufferCols),
                      take(threads_ * kMaxRowsAllSlices, 2 * kSliceCols * slices),
                      most_rows,
                      take_host<std::uint32_t>(most_visits * slices)};
  std::ranges::fill(hidden.blocks_done, 0u);
  return hidden;
}

// Computes part of the hidden rows of visit v: blocks [from, to) if it has few rows, else slices.
void CpuOps::compute_part(const ExpertVisit& visit, std::size_t v, const Input& x, const Hidden& hidden,
                          unsigned worker, std::uint64_t from, std::uint64_t to) {
  if (hidden.has_few_rows(v)) return hidden_blocks(visit, v, x, hidden, worker, from, to);
  const std::uint64_t blocks = blocks_of(visit.gate.rows);
  const Rows both = hidden.buffer(worker);
  for (std::uint64_t slice = from; slice < to; ++slice) {
    const std::uint64_t block = slice * kSliceBlocks;
    multiply_slice(processor(), visit, x, block, std::min(blocks, block + kSliceBlocks), both);
    const auto first = static_cast<std::uint32_t>(slice) * kSliceCols;
    const std::uint32_t cols = std::min(kSliceCols, static_cast<std::uint32_t>(visit.gate.rows) - first);
    for (std::uint32_t row = hidden.first[v]; row < hidden.first[v + 1]; ++row) {
      kernels_->rows->swiglu(both.row(row - hidden.first[v]), cols, hidden.rows.x.row(row) + first);
      prepare_part(hidden.rows, row, first, cols);
    }
  }
}

// The thread that completes a slice prepares it.
void CpuOps::hidden_blocks(const ExpertVisit& visit, std::size_t v, const Input& x, const Hidden& hidden,
                           unsigned worker, std::uint64_t from, std::uint64_t to) {
  const Rows both = hidden.wide_buffer(worker);
  multiply_slice(processor(), visit, x, from, to, both);
  const auto all_cols = static_cast<std::uint32_t>(visit.gate.rows);
  const auto first = static_cast<std::uint32_t>(from * tile16::kBlockRows);
  const auto end = std::min(all_cols, static_cast<std::uint32_t>(to * tile16::kBlockRows));
  for (std::uint32_t row = hidden.first[v]; row < hidden.first[v + 1]; ++row)
    kernels_->rows->swiglu(both.row(row - hidden.first[v]), end - first, hidden.rows.x.row(row) + first);
  const std::uint64_t slices = divide_up(hidden.rows.x.cols, kSliceCols);
  for (std::uint64_t slice = from / kSliceBlocks; slice * kSliceBlocks < to; ++slice) {
    const std::uint64_t begin_block = slice * kSliceBlocks;
    const std::uint64_t end_block = std::min(begin_block + kSliceBlocks, blocks_of(all_cols));
    const auto mine = static_cast<std::uint32_t>(std::min(to, end_block) - std::max(from, begin_block));
    std::atomic_ref<std::uint32_t> done(hidden.blocks_done[v * slices + slice]);
    if (done.fetch_add(mine, std::memory_order_acq_rel) + mine != end_block - begin_block) continue;
    const auto col = static_cast<std::uint32_t>(slice) * kSliceCols;
    for (std::uint32_t row = hidden.first[v]; row < hidden.first[v + 1]; ++row)
      prepare_part(hidden.rows, row, col, std::min(kSliceCols, all_cols - col));
  }
}

CpuOps::Share CpuOps::hidden_share(const ExpertVisit& visit, std::uint32_t rows) const {
  const std::uint64_t cost = block_cost(visit.gate, rows) + block_cost(visit.up, rows);
  if (rows <= kMaxRowsAllSlices) return {blocks_of(visit.gate.rows), cost};
  return {slices_of(visit), kSliceBlocks * cost};
}
CpuOps::Share CpuOps::down_share(const ExpertVisit& visit, std::uint32_t rows) const {
  return {divide_up(blocks_of(visit.down.rows), kBufferBlocks), kBufferBlocks * block_cost(visit.down, rows)};
}

CpuOps::Hidden CpuOps::compute_hidden(std::span<const ExpertVisit> visits, const Input& x,
                                      const OwnProduct* beside) {
  const Hidden hidden = take_hidden(visits, x);
  const Scope scope(*this);
  const std::span<Share> shares = take_host<Share>(kVisitsAtOnce + 1).first(visits.size() + (beside ? 1 : 0));
  for (std::size_t v = 0; v < visits.size(); ++v) shares[v] = hidden_share(visits[v], hidden.rows_of(v));
  if (beside != nullptr) shares.back() = product_share(beside->w, beside->x.x.count);
  each_share(shares, [&](std::size_t i, std::uint64_t from, std::uint64_t to, unsigned worker) {
    if (i < visits.size())
      compute_part(visits[i], i, x, hidden, worker, from, to);
    else
      multiply_parts({beside->w, beside->y}, beside->x, from, to);
  });
  return hidden;
}

// The hidden rows belong to the caller's scope.
Input CpuOps::run_hidden(const MlpMatrices& w, const Input& x, std::span<const Product> beside) {
  const Input rows =
      take_prepared(take(x.x.count, static_cast<std::uint32_t>(w.gate.rows)), Rounding::coarse);
  const Scope scope(*this);
  const ExpertVisit visit{w.gate, w.up, w.down, {}, {}, 0};
  const std::span<std::uint32_t> first = take_host<std::uint32_t>(2);
  first[0] = 0;
  first[1] = x.x.count;
  const Hidden hidden = with_buffers(first, rows, 1);
  const std::span<Share> shares = take_host<Share>(beside.size() + 1);
  for (std::size_t i = 0; i < beside.size(); ++i) shares[i] = product_share(beside[i].w, x.x.count);
  shares.back() = hidden_share(visit, x.x.count);
  each_share(shares, [&](std::size_t i, std::uint64_t from, std::uint64_t to, unsigned worker) {
    if (i < beside.size())
      multiply_parts(beside[i], x, from, to);
    else
      compute_part(visit, 0, x, hidden, worker, from, to);
  });
  return rows;
}

void CpuOps::run_visit(std::span<const ExpertVisit> visits, const Input& x, Rows partials,
                       const OwnProduct* beside) {
  const Scope scope(*this);
  const auto multiply_down = [&](std::size_t v, const Hidden& hidden, std::uint64_t block,
                                 std::uint64_t end_block) {
    BlockProduct(processor(), visits[v].down, hidden.rows.some(hidden.first[v], hidden.rows_of(v)))
        .run(block, end_block, partials.row(visits[v].first_partial) + block * tile16::kBlockRows,
             partials.stride);
  };

  if (visits.size() % threads_ == 0 || visits.size() >= kManyVisits * std::size_t{threads_}) {
    const Hidden hidden = take_hidden(visits, x);
    const std::span<Share> shares =
        take_host<Share>(kVisitsAtOnce + 1).first(visits.size() + (beside ? 1 : 0));
    for (std::size_t v = 0; v < visits.size(); ++v) {
      const Share half = hidden_share(visits[v], hidden.rows_of(v));
      const Share down = down_share(visits[v], hidden.rows_of(v));
      shares[v] = {1, half.tasks * half.cost + down.tasks * down.cost};
    }
    if (beside != nullptr) shares.back() = product_share(beside->w, beside->x.x.count);
    each_share(shares, [&](std::size_t i, std::uint64_t from, std::uint64_t to, unsigned worker) {
      if (i == visits.size()) return multiply_parts({beside->w, beside->y}, beside->x, from, to);
      compute_part(visits[i], i, x, hidden, worker, 0, hidden_share(visits[i], hidden.rows_of(i)).tasks);
      multiply_down(i, hidden, 0, blocks_of(visits[i].down.rows));
    });
    return;
  }
  const Hidden hidden = compute_hidden(visits, x, beside);
  const std::span<Share> shares = take_host<Share>(kVisitsAtOnce).first(visits.size());
  for (std::size_t v = 0; v < visits.size(); ++v) shares[v] = down_share(visits[v], hidden.rows_of(v));
  each_share(shares, [&](std::size_t v, std::uint64_t from, std::uint64_t to, unsigned) {
    multiply_down(v, hidden, from * kBufferBlocks,
                  std::min(blocks_of(visits[v].down.rows), to * kBufferBlocks));
  });
}

// Adds some columns of an expert's output to a row. `sum` may be `output`. Requires: cols <= kBufferCols.
void CpuOps::add_output(const ExpertShare& share, const float* output, std::uint32_t cols, float* sum,
                        float* total) {
  const RowKernels& rows = *kernels_->rows;
  rows.add_scaled(share.begins_group ? kZeros : sum, output, share.weight, cols, sum);
  if (share.ends_group) rows.add(total, sum, cols, total);
}

// Each thread owns columns of y, so it can add the experts in their order.
void CpuOps::run_visit_adding(std::span<const ExpertVisit> visits, const Input& x, Rows sums, Rows y) {
  const Scope scope(*this);
  const Hidden hidden = compute_hidden(visits, x, nullptr);
  const std::uint64_t blocks = blocks_of(y.cols);
  region(divide_up(blocks, kBufferBlocks), [&](std::uint64_t begin, std::uint64_t end, unsigned worker) {
    const Rows buffer = hidden.buffer(worker);
    for (std::size_t v = 0; v < visits.size(); ++v) {
      const ExpertVisit& visit = visits[v];
      const std::uint32_t count = hidden.rows_of(v);
      const BlockProduct product(processor(), visit.down, hidden.rows.some(hidden.first[v], count));
      for (std::uint64_t part = begin; part < end; ++part) {
        const std::uint64_t block = part * kBufferBlocks;
        product.run(block, std::min(blocks, block + kBufferBlocks), buffer.data, buffer.stride);
        const auto first = static_cast<std::uint32_t>(part) * kBufferCols;
        const std::uint32_t cols = std::min(kBufferCols, y.cols - first);
        for (std::uint32_t row = 0; row < count; ++row) {
          const ExpertShare& share = visit.shares[row];
          // The only expert of its group: the sum stays in the buffer, which is in the cache.
          const bool is_alone = share.begins_group && share.ends_group;
          float* const output = buffer.row(row);
          add_output(share, output, cols, is_alone ? output : sums.row(visit.rows[row]) + first,
                     y.row(visit.rows[row]) + first);
        }
      }
    }
  });
}

void CpuOps::combine(Rows partials, std::span<const std::uint32_t> places,
                     std::span<const ExpertShare> shares, std::uint32_t per_token, Rows y) {
  each_row(y.count, [&](std::uint32_t row) {
    std::memset(y.row(row), 0, y.cols * sizeof(float));
    float sum[kBufferCols];
    for (std::uint32_t first = 0; first < y.cols; first += kBufferCols)
      for (std::uint32_t k = 0; k < per_token; ++k) {
        const std::uint64_t choice = std::uint64_t{row} * per_token + k;
        add_output(shares[choice], partials.row(places[choice]) + first,
                   std::min(kBufferCols, y.cols - first), sum, y.row(row) + first);
      }
  });
}

}  // namespace moeflux
