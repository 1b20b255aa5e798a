// Attention of CpuOps: appending keys and values, and attending to them.
//
// By the law a query's positions are cut into blocks of 256, and the blocks merge in ascending order. Many queries:
// a task is a few rows of one key/value head, block after block. Few queries and many positions: a task is one
// block, and the blocks' results are merged after. Both do the same operations on the same numbers.

#include <algorithm>
#include <cstring>

#include "base/arithmetic.h"
#include "base/check.h"
#include "kernels/cpu_ops.h"

namespace moeflux {
namespace {

constexpr std::uint32_t kRowsOfTask =
    16;  // at most: so many rows use a block of keys while it is in the cache
constexpr std::uint32_t kHeadsOfTask = 16;  // of those that share a key/value head

// A block's keys and values of one head.
struct HeadBlock {
  const float* keys;
  const float* values;
  std::uint64_t key_stride, value_stride;
};

HeadBlock head_of(const KvBlockView& block, const AttentionShape& shape, std::uint32_t kv_head) {
  const float* keys = block.keys + std::uint64_t{kv_head} * kAttentionBlock * shape.key_dim;
  if (block.values == nullptr) return {keys, keys, shape.key_dim, shape.key_dim};
  return {keys, block.values + std::uint64_t{kv_head} * kAttentionBlock * shape.value_dim, shape.key_dim,
          shape.value_dim};
}

// The queries of one row that share a key/value head, or a part of them.
struct HeadRange {
  std::uint32_t kv_head, first, count;  // `first` counts query heads
};

struct HeadRanges {
  std::uint32_t sharing, of_each, count;

  explicit HeadRanges(const AttentionShape& shape)
      : sharing(shape.heads / shape.kv_heads),
        of_each(divide_up(sharing, kHeadsOfTask)),
        count(of_each * shape.kv_heads) {}

  HeadRange operator[](std::uint64_t index) const {
    const auto kv_head = static_cast<std::uint32_t>(index / of_each);
    const auto part = static_cast<std::uint32_t>(index % of_each);
    const std::uint32_t first = part * kHeadsOfTask;
    return {kv_head, kv_head * sharing + first, std::min(kHeadsOfTask, sharing - first)};
  }
};

// Positions of block `block` that a query at `position` sees; 0 when the block is after it.
std::uint32_t visible_of(std::uint64_t block, std::uint64_t position) {
  const std::uint64_t first = block * kAttentionBlock;
  if (position < first) return 0;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(kAttentionBlock, position - first + 1));
}

// A block's results for the queries of one row: max [heads], sum [heads], out [heads][value_dim].
struct Partial {
  float *max, *sum, *out;
};

void attend_block(const KernelTable& kernels, const AttentionShape& shape, const KvBlockView& block,
                  const HeadRange& heads, const Heads& queries, std::uint32_t row, std::uint32_t visible,
                  const Partial& result, std::uint64_t out_stride) {
  std::uint32_t visible_of_each[kHeadsOfTask];
  for (std::uint32_t i = 0; i < heads.count; ++i) visible_of_each[i] = visible;
  const HeadBlock head = head_of(block, shape, heads.kv_head);
  AttendArgs args;
  args.queries = queries.head(row, heads.first);
  args.query_stride = queries.head_stride;
  args.count = heads.count;
  args.visible = visible_of_each;
  args.keys = head.keys;
  args.key_stride = head.key_stride;
  args.key_dim = shape.key_dim;
  args.values = head.values;
  args.value_stride = head.value_stride;
  args.value_dim = shape.value_dim;
  args.scale = shape.scale;
  args.max = result.max;
  args.sum = result.sum;
  args.out = result.out;
  args.out_stride = out_stride;
  kernels.attention->attend(args);
}

}  // namespace

void CpuOps::append(std::span<const KvSegment> segments, Heads keys, Heads values) {
  const auto put = [](const Heads& from, std::uint32_t row, float* block, std::uint64_t place) {
    for (std::uint32_t head = 0; head < from.heads; ++head)
      std::memcpy(block + (std::uint64_t{head} * kAttentionBlock + place) * from.dim, from.head(row, head),
                  from.dim * sizeof(float));
  };
  for (const KvSegment& segment : segments)
    each_row(segment.rows, [&](std::uint32_t i) {
      const std::uint64_t position = std::uint64_t{segment.position} + i;
      const KvBlockView& block = segment.blocks[position / kAttentionBlock];
      put(keys, segment.first_row + i, block.keys, position % kAttentionBlock);
      if (block.values != nullptr)
        put(values, segment.first_row + i, block.values, position % kAttentionBlock);
    });
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
                static_cast<std::uint32_t>(std::clamp<std::uint64_t>(tasks_of_rows, 1, kRowsOfTask)), queries,
                y);
  else
    attend_blocks(segments, shape, queries, y);
}

void CpuOps::attend_rows(std::span<const KvSegment> segments, const AttentionShape& shape,
                         std::uint32_t rows_of_task, Heads queries, Heads y) {
  const Scope scope(*this);
  const HeadRanges ranges(shape);
  // Of each thread: the running max and sum of a task's queries, and one block's results of one row.
  const Rows running = take(threads_, 2 * kRowsOfTask * kHeadsOfTask);
  const Rows fresh = take(threads_, kHeadsOfTask * (shape.value_dim + 2));
  std::uint64_t first_task = 0;
  for (const KvSegment& segment : segments) {
    const std::uint32_t row_tasks = divide_up(segment.rows, rows_of_task);
    // The later rows see more positions, so tasks are dealt out in turn, and the turn goes on over segments.
    each_task(first_task + std::uint64_t{row_tasks} * ranges.count, [&](std::uint64_t dealt,
                                                                        unsigned worker) {
      if (dealt < first_task) return;
      const std::uint64_t task = dealt - first_task;
      const HeadRange heads = ranges[task % ranges.count];
      const auto first_row = static_cast<std::uint32_t>(task / ranges.count) * rows_of_task;
      const std::uint32_t rows = std::min(rows_of_task, segment.rows - first_row);
      float* const running_max = running.row(worker);
      float* const running_sum = running_max + std::size_t{kRowsOfTask} * kHeadsOfTask;
      float* const memory = fresh.row(worker);
      const Partial block_result{memory, memory + kHeadsOfTask, memory + std::size_t{2} * kHeadsOfTask};
      const std::uint64_t last_position = std::uint64_t{segment.position} + first_row + rows - 1;
      for (std::uint64_t block = 0; block <= last_position / kAttentionBlock; ++block)
        for (std::uint32_t i = 0; i < rows; ++i) {
          const std::uint64_t position = std::uint64_t{segment.position} + first_row + i;
          const std::uint32_t visible = visible_of(block, position);
          if (visible == 0) continue;
          const std::uint32_t row = segment.first_row + first_row + i;
          float* const max = running_max + std::size_t{i} * kHeadsOfTask;
          float* const sum = running_sum + std::size_t{i} * kHeadsOfTask;
          const bool is_first = block == 0;
          const Partial result = is_first ? Partial{max, sum, y.head(row, heads.first)} : block_result;
          attend_block(*kernels_, shape, segment.blocks[block], heads, queries, row, visible, result,
                       is_first ? y.head_stride : shape.value_dim);
          const bool is_last = block == position / kAttentionBlock;
          for (std::uint32_t h = 0; h < heads.count; ++h) {
            float* const out = y.head(row, heads.first + h);
            if (!is_first)
              kernels_->attention->merge(&max[h], &sum[h], out, result.max[h], result.sum[h],
                                         result.out + std::uint64_t{h} * shape.value_dim, shape.value_dim);
            if (is_last) kernels_->attention->finish(out, sum[h], shape.value_dim, out);
          }
        }
    });
    first_task = (first_task + std::uint64_t{row_tasks} * ranges.count) % threads_;
  }
}

void CpuOps::attend_blocks(std::span<const KvSegment> segments, const AttentionShape& shape, Heads queries,
                           Heads y) {
  const HeadRanges ranges(shape);
  for (const KvSegment& segment : segments)
    for (std::uint32_t i = 0; i < segment.rows; ++i) {
      const Scope scope(*this);
      const std::uint32_t row = segment.first_row + i;
      const std::uint64_t position = std::uint64_t{segment.position} + i;
      const auto blocks = static_cast<std::uint32_t>(position / kAttentionBlock + 1);
      const Rows max = take(blocks, shape.heads), sum = take(blocks, shape.heads);
      const Rows out = take(blocks, shape.heads * shape.value_dim);
      each_task(std::uint64_t{blocks} * ranges.count, [&](std::uint64_t task, unsigned) {
        const auto block = static_cast<std::uint32_t>(task / ranges.count);
        const HeadRange heads = ranges[task % ranges.count];
        const Partial result{max.row(block) + heads.first, sum.row(block) + heads.first,
                             out.row(block) + std::uint64_t{heads.first} * shape.value_dim};
        attend_block(*kernels_, shape, segment.blocks[block], heads, queries, row,
                     visible_of(block, position), result, shape.value_dim);
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
