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

// A block's keys and values of one head, as floats.
struct HeadBlock {
  const float* keys;
  const float* values;
  std::uint64_t key_stride, value_stride;
  bool is_far = false;               // nobody has touched them
  const float* next_keys = nullptr;  // of the block that is used after this one, if those are far too
};

// The same as they are kept: rows of so many words.
struct KeptBlock {
  const float* keys;
  const float* values;  // null: parts of the keys
  std::size_t key_words, value_words;

  KeptBlock(const KvBlockView& block, const AttentionShape& shape, KvNumbers numbers, std::uint32_t kv_head)
      : keys(nullptr),
        values(nullptr),
        key_words(kv_row_words(numbers, shape.key_dim)),
        value_words(kv_row_words(numbers, shape.value_dim)) {
    keys = block.keys + std::uint64_t{kv_head} * kAttentionBlock * key_words;
    if (block.values != nullptr)
      values = block.values + std::uint64_t{kv_head} * kAttentionBlock * value_words;
  }
};

// The first `rows` rows of the first of some blocks as floats: where they lie, or widened into `scratch`.
HeadBlock open_block(const KernelTable& kernels, std::span<const KvBlockView> blocks,
                     const AttentionShape& shape, KvNumbers numbers, std::uint32_t kv_head,
                     std::uint32_t rows, float* scratch) {
  const KeptBlock kept(blocks[0], shape, numbers, kv_head);
  if (numbers == KvNumbers::f32) {
    const float* const next =
        blocks.size() > 1 ? KeptBlock(blocks[1], shape, numbers, kv_head).keys : nullptr;
    if (kept.values == nullptr) return {kept.keys, kept.keys, kept.key_words, kept.key_words, true, next};
    return {kept.keys, kept.values, kept.key_words, kept.value_words, true, next};
  }
  const auto widen =
      numbers == KvNumbers::bf16 ? kernels.attention->widen_bf16 : kernels.attention->widen_int8;
  float* const values = scratch + std::size_t{kAttentionBlock} * shape.key_dim;
  for (std::size_t row = 0; row < rows; ++row) {
    widen(kept.keys + row * kept.key_words, shape.key_dim, scratch + row * shape.key_dim);
    if (kept.values != nullptr)
      widen(kept.values + row * kept.value_words, shape.value_dim, values + row * shape.value_dim);
  }
  if (kept.values == nullptr) return {scratch, scratch, shape.key_dim, shape.key_dim};
  return {scratch, values, shape.key_dim, shape.value_dim};
}

// Floats that open_block() wants.
std::uint32_t open_floats(const AttentionShape& shape, KvNumbers numbers) {
  return numbers == KvNumbers::f32 ? 0 : kAttentionBlock * (shape.key_dim + shape.value_dim);
}

KvNumbers numbers_of(std::span<const KvSegment> segments) {
  return segments.empty() ? KvNumbers::f32 : segments.front().numbers;
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

void attend_block(const KernelTable& kernels, const AttentionShape& shape, const HeadBlock& head,
                  const HeadRange& heads, const Heads& queries, std::uint32_t row, std::uint32_t visible,
                  const Partial& result, std::uint64_t out_stride) {
  std::uint32_t visible_of_each[kHeadsOfTask];
  for (std::uint32_t i = 0; i < heads.count; ++i) visible_of_each[i] = visible;
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
  args.is_far = head.is_far;
  args.next_keys = head.next_keys;
  args.max = result.max;
  args.sum = result.sum;
  args.out = result.out;
  args.out_stride = out_stride;
  kernels.attention->attend(args);
}

}  // namespace

void CpuOps::append(std::span<const KvSegment> segments, Heads keys, Heads values) {
  const auto put = [this](const Heads& from, KvNumbers numbers, std::uint32_t row, float* block,
                          std::uint64_t place) {
    const std::size_t words = kv_row_words(numbers, from.dim);
    for (std::uint32_t head = 0; head < from.heads; ++head) {
      float* const to = block + (std::uint64_t{head} * kAttentionBlock + place) * words;
      const float* const x = from.head(row, head);
      switch (numbers) {
        case KvNumbers::f32: std::memcpy(to, x, from.dim * sizeof(float)); break;
        case KvNumbers::bf16: kernels_->attention->narrow_bf16(x, from.dim, to); break;
        case KvNumbers::int8: kernels_->attention->narrow_int8(x, from.dim, to); break;
      }
    }
  };
  for (const KvSegment& segment : segments)
    each_row(segment.rows, [&](std::uint32_t i) {
      const std::uint64_t position = std::uint64_t{segment.position} + i;
      const KvBlockView& block = segment.blocks[position / kAttentionBlock];
      put(keys, segment.numbers, segment.first_row + i, block.keys, position % kAttentionBlock);
      if (block.values != nullptr)
        put(values, segment.numbers, segment.first_row + i, block.values, position % kAttentionBlock);
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
  const KvNumbers numbers = numbers_of(segments);
  const Rows opened = take(threads_, std::max(1u, open_floats(shape, numbers)));
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
      const auto blocks = segment.blocks.first(last_position / kAttentionBlock + 1);
      for (std::uint64_t block = 0; block < blocks.size(); ++block) {
        HeadBlock head = open_block(*kernels_, blocks.subspan(block), shape, numbers, heads.kv_head,
                                    visible_of(block, last_position), opened.row(worker));
        for (std::uint32_t i = 0; i < rows; ++i) {
          const std::uint64_t position = std::uint64_t{segment.position} + first_row + i;
          const std::uint32_t visible = visible_of(block, position);
          if (visible == 0) continue;
          const std::uint32_t row = segment.first_row + first_row + i;
          float* const max = running_max + std::size_t{i} * kHeadsOfTask;
          float* const sum = running_sum + std::size_t{i} * kHeadsOfTask;
          const bool is_first = block == 0;
          const Partial result = is_first ? Partial{max, sum, y.head(row, heads.first)} : block_result;
          const bool is_last = block == position / kAttentionBlock;
          attend_block(*kernels_, shape, head, heads, queries, row, visible, result,
                       is_first ? y.head_stride : shape.value_dim);
          head.is_far = false;  // the next row finds it in the cache
          for (std::uint32_t h = 0; h < heads.count; ++h) {
            float* const out = y.head(row, heads.first + h);
            if (!is_first)
              kernels_->attention->merge(&max[h], &sum[h], out, result.max[h], result.sum[h],
                                         result.out + std::uint64_t{h} * shape.value_dim, shape.value_dim);
            if (is_last) kernels_->attention->finish(out, sum[h], shape.value_dim, out);
          }
        }
      }
    });
    first_task = (first_task + std::uint64_t{row_tasks} * ranges.count) % threads_;
  }
}

void CpuOps::attend_blocks(std::span<const KvSegment> segments, const AttentionShape& shape, Heads queries,
                           Heads y) {
  const HeadRanges ranges(shape);
  const KvNumbers numbers = numbers_of(segments);
  const Scope all(*this);
  const Rows opened = take(threads_, std::max(1u, open_floats(shape, numbers)));
  for (const KvSegment& segment : segments)
    for (std::uint32_t i = 0; i < segment.rows; ++i) {
      const Scope scope(*this);
      const std::uint32_t row = segment.first_row + i;
      const std::uint64_t position = std::uint64_t{segment.position} + i;
      const auto blocks = static_cast<std::uint32_t>(position / kAttentionBlock + 1);
      const Rows max = take(blocks, shape.heads), sum = take(blocks, shape.heads);
      const Rows out = take(blocks, shape.heads * shape.value_dim);
      each_task(std::uint64_t{blocks} * ranges.count, [&](std::uint64_t task, unsigned worker) {
        const auto block = static_cast<std::uint32_t>(task / ranges.count);
        const HeadRange heads = ranges[task % ranges.count];
        const Partial result{max.row(block) + heads.first, sum.row(block) + heads.first,
                             out.row(block) + std::uint64_t{heads.first} * shape.value_dim};
        const std::uint32_t visible = visible_of(block, position);
        const HeadBlock head = open_block(*kernels_, segment.blocks.subspan(block, blocks - block), shape,
                                          numbers, heads.kv_head, visible, opened.row(worker));
        attend_block(*kernels_, shape, head, heads, queries, row, visible, result, shape.value_dim);
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
