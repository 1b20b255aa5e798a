// Attention of CpuOps: appending keys and values, and attending to them.
//
// By the law a query's positions are cut into blocks of 256, and the blocks merge in ascending order. Many queries:
// a task is a few rows of one key/value head, block after block. Few queries and many positions: a task is one
// block, and the blocks' results are merged after. Both do the same operations on the same numbers.

#include <algorithm>
#include <cstring>

#include "base/arithmetic.h"
#include "base/check.h"
#include "kernels/byte_attention.h"
#include "kernels/cpu_ops.h"

namespace moeflux {
namespace {

constexpr std::uint32_t kRowsOfTask =
    16;  // at most: so many rows use a block of keys while it is in the cache
constexpr std::uint32_t kHeadsOfTask = 16;  // of those that share a key/value head

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
  std::uint64_t out_stride;
};

// The blocks of one head, one after another, and the queries of a few rows that attend to them: what a worker does.
//
// Floats are attended to where they lie; what is kept in fewer bytes is opened in scratch memory, once for all queries: as
// floats or, bytes in the precision `fast`, for products of integers (byte_attention.h).
class HeadAttention {
 public:
  // What every task of a step has in common.
  struct Plan {
    const KernelTable* kernels;  // null while measuring
    const AttentionShape& shape;
    KvNumbers numbers;
    bool has_bytes;           // queries are bytes too
    std::uint32_t most_rows;  // of queries

    ByteBlockShape bytes() const { return {shape.key_dim, shape.value_dim}; }
    std::uint64_t query_stride() const { return byte_query_words(shape.key_dim); }
    // Scratch memory of a worker: an opened block, and the queries as bytes.
    std::uint32_t block_floats() const {
      if (has_bytes) return static_cast<std::uint32_t>(bytes().bytes() / sizeof(float));
      return numbers == KvNumbers::f32 ? 0 : kAttentionBlock * (shape.key_dim + shape.value_dim);
    }
    std::uint32_t scratch_floats() const {
      const std::uint64_t queries = has_bytes ? most_rows * kHeadsOfTask * query_stride() : 0;
      return std::max(1u, block_floats() + static_cast<std::uint32_t>(queries));
    }
  };

  // Queries [first_row, first_row + rows) of some heads.
  HeadAttention(const Plan& plan, const HeadRange& heads, const Heads& queries, std::uint32_t first_row,
                std::uint32_t rows, float* scratch)
      : plan_(plan), heads_(heads), queries_(queries), first_row_(first_row), scratch_(scratch) {
    if (!plan.has_bytes) return;
    for (std::uint32_t i = 0; i < rows; ++i)
      for (std::uint32_t h = 0; h < heads.count; ++h)
        plan.kernels->byte_attention->narrow_query(queries.head(first_row + i, heads.first + h),
                                                   plan.shape.key_dim,
                                                   byte_queries(i) + h * plan.query_stride());
  }

  // The first `rows` positions of a block, of one head.
  struct Source {
    const KvBlockView* block = nullptr;  // null: none
    std::uint32_t kv_head = 0;
    std::uint32_t rows = 0;
  };

  // From now on this block is attended to; `next` is what this worker opens after it.
  void open(const Source& source, const Source& next) {
    const KeptBlock kept(*source.block, plan_, source.kv_head);
    is_far_ = true;
    next_ = next;
    if (plan_.has_bytes) {
      const KeptBytes keys = kept.bytes(kept.keys, kept.key_words, plan_.shape.key_dim);
      // Values that are parts of the keys share their scales.
      const KeptBytes values =
          kept.values == nullptr ? keys : kept.bytes(kept.values, kept.value_words, plan_.shape.value_dim);
      plan_.kernels->byte_attention->open(plan_.bytes(), keys, values, source.rows, opened_bytes());
    } else if (plan_.numbers == KvNumbers::f32) {
      set_floats(kept.keys, kept.key_words, kept.values, kept.value_words);
    } else {
      widen(kept, source.rows);
    }
  }

  // Row `i` of the queries, which sees so many positions of the block.
  void attend(std::uint32_t i, std::uint32_t visible, const Partial& result) {
    if (plan_.has_bytes) {
      attend_bytes(i, visible, result);
    } else {
      attend_floats(i, visible, result);
    }
    is_far_ = false;  // the next row finds it in the cache
  }

 private:
  // A block's keys and values of one head as they are kept: rows of so many words.
  struct KeptBlock {
    const float* keys;
    const float* values = nullptr;  // null: parts of the keys
    std::size_t key_words, value_words;

    KeptBlock(const KvBlockView& block, const Plan& plan, std::uint32_t kv_head)
        : key_words(kv_row_words(plan.numbers, plan.shape.key_dim)),
          value_words(kv_row_words(plan.numbers, plan.shape.value_dim)) {
      keys = block.keys + std::uint64_t{kv_head} * kAttentionBlock * key_words;
      if (block.values != nullptr)
        values = block.values + std::uint64_t{kv_head} * kAttentionBlock * value_words;
    }
    static Stretch stretch(const float* rows, std::size_t words, std::size_t count) {
      return {reinterpret_cast<const std::byte*>(rows), count * words * sizeof(float)};
    }
    static KeptBytes bytes(const float* rows, std::size_t words, std::uint32_t dim) {
      return {reinterpret_cast<const std::int8_t*>(rows), rows + kv_code_words(dim), words};
    }
  };

  void attend_floats(std::uint32_t i, std::uint32_t visible, const Partial& result) {
    std::uint32_t visible_of_each[kHeadsOfTask];
    for (std::uint32_t h = 0; h < heads_.count; ++h) visible_of_each[h] = visible;
    AttendArgs args;
    args.queries = queries_.head(first_row_ + i, heads_.first);
    args.query_stride = queries_.head_stride;
    args.count = heads_.count;
    args.visible = visible_of_each;
    args.keys = keys_;
    args.key_stride = key_stride_;
    args.key_dim = plan_.shape.key_dim;
    args.values = values_;
    args.value_stride = value_stride_;
    args.value_dim = plan_.shape.value_dim;
    args.scale = plan_.shape.scale;
    args.is_far = is_far_ && plan_.numbers == KvNumbers::f32;
    if (args.is_far && next_.block != nullptr)
      args.next_keys = KeptBlock(*next_.block, plan_, next_.kv_head).keys;
    args.max = result.max;
    args.sum = result.sum;
    args.out = result.out;
    args.out_stride = result.out_stride;
    plan_.kernels->attention->attend(args);
  }

  std::byte* opened_bytes() const { return reinterpret_cast<std::byte*>(scratch_); }
  float* byte_queries(std::uint32_t i) const {
    return scratch_ + plan_.block_floats() + i * kHeadsOfTask * plan_.query_stride();
  }

  void set_floats(const float* keys, std::uint64_t key_stride, const float* values,
                  std::uint64_t value_stride) {
    keys_ = keys;
    key_stride_ = key_stride;
    values_ = values != nullptr ? values : keys;
    value_stride_ = values != nullptr ? value_stride : key_stride;
  }

  void widen(const KeptBlock& kept, std::uint32_t rows) {
    const AttentionKernels& kernels = *plan_.kernels->attention;
    const auto widen_row = plan_.numbers == KvNumbers::bf16 ? kernels.widen_bf16 : kernels.widen_int8;
    const std::size_t key_dim = plan_.shape.key_dim, value_dim = plan_.shape.value_dim;
    float* const values = kept.values != nullptr ? scratch_ + kAttentionBlock * key_dim : nullptr;
    for (std::size_t row = 0; row < rows; ++row) {
      widen_row(kept.keys + row * kept.key_words, plan_.shape.key_dim, scratch_ + row * key_dim);
      if (values != nullptr)
        widen_row(kept.values + row * kept.value_words, plan_.shape.value_dim, values + row * value_dim);
    }
    set_floats(scratch_, key_dim, values, value_dim);
  }

  void attend_bytes(std::uint32_t i, std::uint32_t visible, const Partial& result) {
    Stretch keys, values;
    if (is_far_ && next_.block != nullptr) {
      const KeptBlock next(*next_.block, plan_, next_.kv_head);
      keys = next.stretch(next.keys, next.key_words, next_.rows);
      if (next.values != nullptr) values = next.stretch(next.values, next.value_words, next_.rows);
    }
    plan_.kernels->byte_attention->attend({.shape = plan_.bytes(),
                                           .block = opened_bytes(),
                                           .queries = byte_queries(i),
                                           .query_stride = plan_.query_stride(),
                                           .count = heads_.count,
                                           .visible = visible,
                                           .scale = plan_.shape.scale,
                                           .next = {keys, values},
                                           .max = result.max,
                                           .sum = result.sum,
                                           .out = result.out,
                                           .out_stride = result.out_stride});
  }

  const Plan& plan_;
  const HeadRange heads_;
  const Heads queries_;
  const std::uint32_t first_row_;
  float* const scratch_;
  // The open block as floats.
  const float *keys_ = nullptr, *values_ = nullptr;
  std::uint64_t key_stride_ = 0, value_stride_ = 0;
  bool is_far_ = false;  // nobody has attended to it
  Source next_;
};

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

bool CpuOps::attends_to_bytes(std::span<const KvSegment> segments) const {
  return precision_ == Precision::fast && numbers_of(segments) == KvNumbers::int8;
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
  const HeadAttention::Plan plan{kernels_, shape, numbers_of(segments), attends_to_bytes(segments),
                                 rows_of_task};
  const Rows scratch = take(threads_, plan.scratch_floats());
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
      const Partial block_result{memory, memory + kHeadsOfTask, memory + std::size_t{2} * kHeadsOfTask,
                                 shape.value_dim};
      const std::uint64_t last_position = std::uint64_t{segment.position} + first_row + rows - 1;
      const auto blocks = segment.blocks.first(last_position / kAttentionBlock + 1);
      HeadAttention attention(plan, heads, queries, segment.first_row + first_row, rows, scratch.row(worker));
      for (std::uint64_t block = 0; block < blocks.size(); ++block) {
        const auto source = [&](std::uint64_t index) {
          return HeadAttention::Source{&blocks[index], heads.kv_head, visible_of(index, last_position)};
        };
        attention.open(source(block),
                       block + 1 < blocks.size() ? source(block + 1) : HeadAttention::Source{});
        for (std::uint32_t i = 0; i < rows; ++i) {
          const std::uint64_t position = std::uint64_t{segment.position} + first_row + i;
          const std::uint32_t visible = visible_of(block, position);
          if (visible == 0) continue;
          const std::uint32_t row = segment.first_row + first_row + i;
          float* const max = running_max + std::size_t{i} * kHeadsOfTask;
          float* const sum = running_sum + std::size_t{i} * kHeadsOfTask;
          const bool is_first = block == 0;
          const Partial result =
              is_first ? Partial{max, sum, y.head(row, heads.first), y.head_stride} : block_result;
          const bool is_last = block == position / kAttentionBlock;
          attention.attend(i, visible, result);
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
  const HeadAttention::Plan plan{kernels_, shape, numbers_of(segments), attends_to_bytes(segments), 1};
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
      each_task(tasks, [&](std::uint64_t task, unsigned worker) {
        const auto block = static_cast<std::uint32_t>(task / ranges.count);
        const HeadRange heads = ranges[task % ranges.count];
        const Partial result{max.row(block) + heads.first, sum.row(block) + heads.first,
                             out.row(block) + std::uint64_t{heads.first} * shape.value_dim, shape.value_dim};
        HeadAttention attention(plan, heads, queries, row, 1, scratch.row(worker));
        attention.open(source(task),
                       task + threads_ < tasks ? source(task + threads_) : HeadAttention::Source{});
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
