// Attention of CpuOps: storing keys and values, and attending to them.
//
// By the law, a query's positions are split into blocks of 256, and the blocks are merged in ascending order.
// With many queries, a task is a few rows of one key/value head, block after block. With few queries, a task
// is one block, and the results of the blocks are merged afterwards. Both do the same operations on the same
// numbers.

#include <algorithm>
#include <cstring>

#include "base/arithmetic.h"
#include "base/check.h"
#include "ops/cpu_ops.h"
#include "ops/head_attention.h"

namespace moeflux {
namespace {

// Rows that use a block of keys while it is in the cache.
constexpr std::uint32_t kMaxRowsPerTask = 16;

KvDtype dtype_of(std::span<const KvSegment> segments) {
  return segments.empty() ? KvDtype::f32 : segments.front().dtype;
}

// Positions of block `block` that a query at `position` sees; 0 if the block lies after it.
std::uint32_t visible_of(std::uint64_t block, std::uint64_t position) {
  const std::uint64_t first = block * kAttentionBlock;
  if (position < first) return 0;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(kAttentionBlock, position - first + 1));
}

}  // namespace

// What a worker keeps for the rows of a task: the max and sum so far of each query, [2][rows][heads], and the
// results of one block for one row.
struct CpuOps::RunningRows {
  float* running;
  Partial fresh;
};

void CpuOps::append(std::span<const KvSegment> segments, Heads keys, Heads values) {
  const auto put = [this](const Heads& from, KvDtype dtype, std::uint32_t row, float* block,
                          std::uint64_t place) {
    const std::size_t words = kv_row_words(dtype, from.dim);
    for (std::uint32_t head = 0; head < from.heads; ++head) {
      float* const to = block + (std::uint64_t{head} * kAttentionBlock + place) * words;
      const float* const x = from.head(row, head);
      switch (dtype) {
        case KvDtype::f32: std::memcpy(to, x, from.dim * sizeof(float)); break;
        case KvDtype::bf16: kernels_->attention->narrow_bf16(x, from.dim, to); break;
        case KvDtype::int8: kernels_->attention->narrow_int8(x, from.dim, to); break;
      }
    }
  };
  for (const KvSegment& segment : segments)
    each_row(segment.rows, [&](std::uint32_t i) {
      const std::uint64_t position = std::uint64_t{segment.position} + i;
      const KvBlockView& block = segment.blocks[position / kAttentionBlock];
      put(keys, segment.dtype, segment.first_row + i, block.keys, position % kAttentionBlock);
      if (block.values != nullptr)
        put(values, segment.dtype, segment.first_row + i, block.values, position % kAttentionBlock);
    });
}

bool CpuOps::attends_to_bytes(std::span<const KvSegment> segments) const {
  return precision_ == Precision::fast && dtype_of(segments) == KvDtype::int8;
}

void CpuOps::attend(std::span<const KvSegment> segments, const AttentionShape& shape, Heads queries,
                    Heads y) {
  MF_REQUIRE(queries.heads == shape.heads && queries.dim == shape.key_dim && y.dim == shape.value_dim,
             "the shapes agree");
  std::uint64_t rows = 0;
  for (const KvSegment& segment : segments) rows += segment.rows;
  const std::uint64_t tasks_of_rows = rows * HeadRanges(shape).count / (4 * std::uint64_t{threads_});
  if (threads_ == 1 || tasks_of_rows >= 1)
    attend_rows(segments, shape,
                static_cast<std::uint32_t>(std::clamp<std::uint64_t>(tasks_of_rows, 1, kMaxRowsPerTask)),
                queries, y);
  else
    attend_blocks(segments, shape, queries, y);
}

void CpuOps::attend_rows(std::span<const KvSegment> segments, const AttentionShape& shape,
                         std::uint32_t rows_of_task, Heads queries, Heads y) {
  const Scope scope(*this);
  const HeadRanges ranges(shape);
  // Per thread: the running max and sum of a task's queries, and the results of one block for one row.
  const Rows running = take(threads_, 2 * kMaxRowsPerTask * kMaxHeadsPerTask);
  const Rows fresh = take(threads_, kMaxHeadsPerTask * (shape.value_dim + 2));
  const HeadAttention::Plan plan{kernels_, shape, dtype_of(segments), attends_to_bytes(segments),
                                 rows_of_task};
  const Rows scratch = take(threads_, plan.scratch_floats());
  // One region for all segments. Later rows see more positions, so the longest tasks of a segment come first.
  const std::span<std::uint64_t> end_task = take_host<std::uint64_t>(segments.size());
  std::uint64_t tasks = 0;
  for (std::size_t i = 0; i < segments.size(); ++i)
    end_task[i] = tasks += std::uint64_t{divide_up(segments[i].rows, rows_of_task)} * ranges.count;
  each_task(tasks, [&](std::uint32_t task, unsigned worker) {
    const auto i = static_cast<std::size_t>(std::ranges::upper_bound(end_task, task) - end_task.begin());
    const KvSegment& segment = segments[i];
    const std::uint64_t left = end_task[i] - 1 - task;  // tasks of the segment after this one
    const auto first_row = static_cast<std::uint32_t>(left / ranges.count) * rows_of_task;
    const std::uint32_t rows = std::min(rows_of_task, segment.rows - first_row);
    float* const memory = fresh.row(worker);
    const RunningRows state{
        running.row(worker),
        {memory, memory + kMaxHeadsPerTask, memory + std::size_t{2} * kMaxHeadsPerTask, shape.value_dim}};
    attend_task(plan, segment, ranges[left % ranges.count], first_row, rows, state, scratch.row(worker),
                queries, y);
  });
}

// Rows [first_row, first_row + rows) of a segment, for the queries of `heads`: block after block.
void CpuOps::attend_task(const HeadAttention::Plan& plan, const KvSegment& segment, const HeadRange& heads,
                         std::uint32_t first_row, std::uint32_t rows, const RunningRows& state,
                         float* scratch, Heads queries, Heads y) {
  const std::uint32_t value_dim = plan.shape.value_dim;
  float* const running_sum = state.running + std::size_t{kMaxRowsPerTask} * kMaxHeadsPerTask;
  const std::uint64_t last_position = std::uint64_t{segment.position} + first_row + rows - 1;
  const auto blocks = segment.blocks.first(last_position / kAttentionBlock + 1);
  HeadAttention attention(plan, heads, queries, segment.first_row + first_row, rows, scratch);
  for (std::uint64_t block = 0; block < blocks.size(); ++block) {
    const auto source = [&](std::uint64_t index) {
      return HeadAttention::Source{&blocks[index], heads.kv_head, visible_of(index, last_position)};
    };
    attention.open(source(block), block + 1 < blocks.size() ? source(block + 1) : HeadAttention::Source{});
    for (std::uint32_t i = 0; i < rows; ++i) {
      const std::uint64_t position = std::uint64_t{segment.position} + first_row + i;
      const std::uint32_t visible = visible_of(block, position);
      if (visible == 0) continue;
      const std::uint32_t row = segment.first_row + first_row + i;
      float* const max = state.running + std::size_t{i} * kMaxHeadsPerTask;
      float* const sum = running_sum + std::size_t{i} * kMaxHeadsPerTask;
      const bool is_first = block == 0;
      const Partial result =
          is_first ? Partial{max, sum, y.head(row, heads.first), y.head_stride} : state.fresh;
      const bool is_last = block == position / kAttentionBlock;
      attention.attend(i, visible, result);
      for (std::uint32_t h = 0; h < heads.count; ++h) {
        float* const out = y.head(row, heads.first + h);
        if (!is_first)
          kernels_->attention->merge(&max[h], &sum[h], out, result.max[h], result.sum[h],
                                     result.out + std::uint64_t{h} * value_dim, value_dim);
        if (is_last) kernels_->attention->finish(out, sum[h], value_dim, out);
      }
    }
  }
}

void CpuOps::attend_blocks(std::span<const KvSegment> segments, const AttentionShape& shape, Heads queries,
                           Heads y) {
  const HeadRanges ranges(shape);
  const HeadAttention::Plan plan{kernels_, shape, dtype_of(segments), attends_to_bytes(segments), 1};
  const Scope all(*this);
  const Rows scratch = take(threads_, plan.scratch_floats());
  for (const KvSegment& segment : segments)
    for (std::uint32_t i = 0; i < segment.rows; ++i) {
      const Scope scope(*this);
      const std::uint32_t row = segment.first_row + i;
      const std::uint64_t position = std::uint64_t{segment.position} + i;
      const auto blocks = static_cast<std::uint32_t>(position / kAttentionBlock + 1);
      const Rows max = take(blocks, shape.heads), sum = take(blocks, shape.heads);
      const Rows out = take(blocks, shape.heads * shape.value_dim);
      const std::uint64_t tasks = std::uint64_t{blocks} * ranges.count;
      const auto source = [&](std::uint64_t task) {
        const std::uint64_t block = task / ranges.count;
        return HeadAttention::Source{&segment.blocks[block], ranges[task % ranges.count].kv_head,
                                     visible_of(block, position)};
      };
      each_task(tasks, [&](std::uint32_t task, unsigned worker) {
        const auto block = static_cast<std::uint32_t>(task / ranges.count);
        const HeadRange heads = ranges[task % ranges.count];
        const Partial result{max.row(block) + heads.first, sum.row(block) + heads.first,
                             out.row(block) + std::uint64_t{heads.first} * shape.value_dim, shape.value_dim};
        HeadAttention attention(plan, heads, queries, row, 1, scratch.row(worker));
        attention.open(source(task), task + 1 < tasks ? source(task + 1) : HeadAttention::Source{});
        attention.attend(0, visible_of(block, position), result);
      });
      region(shape.heads, [&](std::uint64_t begin, std::uint64_t end, unsigned) {
        for (std::uint64_t head = begin; head < end; ++head) {
          float running_max = max.row(0)[head], running_sum = sum.row(0)[head];
          float* const merged = out.row(0) + head * shape.value_dim;
          for (std::uint32_t block = 1; block < blocks; ++block)
            kernels_->attention->merge(&running_max, &running_sum, merged, max.row(block)[head],
                                       sum.row(block)[head], out.row(block) + head * shape.value_dim,
                                       shape.value_dim);
          kernels_->attention->finish(merged, running_sum, shape.value_dim, y.head(row, head));
        }
      });
    }
}

}  // namespace moeflux
