// Attention of CpuOps: storing keys and values, and attending to them.
//
// By the law, a query's positions are split into blocks of 256, and the blocks are merged in ascending order.
// A task is usually a few rows of one key/value head, block after block. The blocks of a row that would take
// longer than the others' share of the work are tasks of their own, merged in a second region. Both do the
// same operations on the same numbers. All segments of a step share the regions.

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
// Tasks per thread that a step aims at.
constexpr std::uint64_t kTasksPerThread = 4;
// Results of single blocks that are kept at once, in floats; one row may take more.
constexpr std::uint64_t kMostPartials = std::uint64_t{8} << 20;

KvDtype dtype_of(std::span<const KvSegment> segments) {
  return segments.empty() ? KvDtype::f32 : segments.front().dtype;
}

// Positions of block `block` that a query at `position` sees; 0 if the block lies after it.
std::uint32_t visible_of(std::uint64_t block, std::uint64_t position) {
  const std::uint64_t first = block * kAttentionBlock;
  if (position < first) return 0;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(kAttentionBlock, position - first + 1));
}

// The work of a segment, in positions of one key/value head.
std::uint64_t work_of(const KvSegment& segment) {
  return segment.rows * (segment.position + std::uint64_t{segment.rows} / 2 + 1);
}

}  // namespace

// What all tasks of a call share.
struct CpuOps::AttentionJob {
  HeadRanges ranges;
  HeadAttention::Plan plan;
  Heads queries, y;
  HeadsDone done;
  // Per thread: the running max and sum of a task's queries, the results of one block for one row, and the
  // scratch memory of HeadAttention.
  Rows running, fresh, scratch;

  std::uint64_t whole_tasks(const KvSegment& segment) const {
    return std::uint64_t{divide_up(segment.rows, plan.most_rows)} * ranges.count;
  }
};

// A row whose blocks are tasks of their own: the head ranges of block 0, of block 1, and so on.
struct CpuOps::SplitRow {
  const KvSegment* segment;
  std::uint32_t row;
  std::uint64_t position;
  Rows max = {}, sum = {}, out = {};  // [blocks][heads], [blocks][heads], [blocks][heads * value_dim]

  std::uint32_t blocks() const { return static_cast<std::uint32_t>(position / kAttentionBlock + 1); }
};

void CpuOps::append_head(const KvSegment& segment, std::uint32_t row, std::uint32_t head, const Heads& keys,
                         const Heads& values) {
  const std::uint64_t position = std::uint64_t{segment.position} + row - segment.first_row;
  const KvBlockView& block = segment.blocks[position / kAttentionBlock];
  const auto put = [&](const Heads& from, float* to_block) {
    const std::size_t words = kv_row_words(segment.dtype, from.dim);
    float* const to = to_block + (std::uint64_t{head} * kAttentionBlock + position % kAttentionBlock) * words;
    const float* const x = from.head(row, head);
    switch (segment.dtype) {
      case KvDtype::f32: std::memcpy(to, x, from.dim * sizeof(float)); break;
      case KvDtype::bf16: kernels_->attention->narrow_bf16(x, from.dim, to); break;
      case KvDtype::int8: kernels_->attention->narrow_int8(x, from.dim, to); break;
    }
  };
  put(keys, block.keys);
  if (block.values != nullptr) put(values, block.values);
}

void CpuOps::append(std::span<const KvSegment> segments, Heads keys, Heads values) {
  for (const KvSegment& segment : segments)
    each_row(segment.rows, [&](std::uint32_t i) {
      for (std::uint32_t head = 0; head < keys.heads; ++head)
        append_head(segment, segment.first_row + i, head, keys, values);
    });
}

bool CpuOps::attends_to_bytes(std::span<const KvSegment> segments) const {
  return precision_ == Precision::fast && dtype_of(segments) == KvDtype::int8;
}

void CpuOps::attend(std::span<const KvSegment> segments, const AttentionShape& shape, Heads queries,
                    Heads y) {
  attend_all(segments, shape, queries, y, [](std::uint32_t, std::uint32_t, std::uint32_t) {});
}

Input CpuOps::mix_attention(const AttentionMix& mix, std::span<const KvSegment> segments,
                            const RopeTable& table, Heads queries, Heads gates, Heads keys, Heads values) {
  if (mix.shape.value_dim % kInt8Group != 0)
    return Ops::mix_attention(mix, segments, table, queries, gates, keys, values);
  const Rows mixed = take(queries.count, queries.heads * queries.dim);
  const Input result = take_prepared(mixed, Rounding::coarse);
  const RowKernels* const rows = kernels_ == nullptr ? nullptr : kernels_->rows;
  const auto turn = [&](const Heads& x, std::span<const float> norm, std::uint32_t row, std::uint32_t head) {
    float* const at = x.head(row, head);
    rows->rms_norm(at, norm.data(), x.dim, mix.norm_eps, at);
    (mix.pairing == RopePairing::half_split ? rows->rope_half : rows->rope_interleaved)(
        at, table.cos.row(row), table.sin.row(row), mix.rope_dims / 2);
  };
  const std::uint32_t tasks_of_row = queries.heads + keys.heads;
  for (const KvSegment& segment : segments)
    region(std::uint64_t{segment.rows} * tasks_of_row, [&](std::uint64_t begin, std::uint64_t end, unsigned) {
      for (std::uint64_t task = begin; task < end; ++task) {
        const auto row = segment.first_row + static_cast<std::uint32_t>(task / tasks_of_row);
        const auto head = static_cast<std::uint32_t>(task % tasks_of_row);
        if (head < queries.heads) {
          turn(queries, mix.query_norm, row, head);
        } else {
          turn(keys, mix.key_norm, row, head - queries.heads);
          append_head(segment, row, head - queries.heads, keys, values);
        }
      }
    });

  const Heads heads = as_heads(mixed, queries.heads, queries.dim);
  attend_all(
      segments, mix.shape, queries, heads, [&](std::uint32_t row, std::uint32_t first, std::uint32_t count) {
        for (std::uint32_t head = first; head < first + count; ++head)
          rows->sigmoid_gate(heads.head(row, head), gates.head(row, head), heads.dim, heads.head(row, head));
        prepare_part(result, row, first * heads.dim, count * heads.dim);
      });
  return result;
}

void CpuOps::attend_all(std::span<const KvSegment> segments, const AttentionShape& shape, Heads queries,
                        Heads y, HeadsDone done) {
  MF_REQUIRE(queries.heads == shape.heads && queries.dim == shape.key_dim && y.dim == shape.value_dim,
             "the shapes agree");
  const Scope scope(*this);
  const HeadRanges ranges(shape);
  std::uint64_t rows = 0, work = 0;
  for (const KvSegment& segment : segments) {
    rows += segment.rows;
    work += work_of(segment);
  }
  const std::uint64_t wanted_tasks = kTasksPerThread * threads_;
  const auto rows_of_task = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(rows * ranges.count / wanted_tasks, 1, kMaxRowsPerTask));
  AttentionJob job{ranges,
                   {kernels_, shape, dtype_of(segments), attends_to_bytes(segments), rows_of_task},
                   queries,
                   y,
                   done,
                   take(threads_, 2 * kMaxRowsPerTask * kMaxHeadsPerTask),
                   take(threads_, kMaxHeadsPerTask * (shape.value_dim + 2)),
                   {}};
  job.scratch = take(threads_, job.plan.scratch_floats());

  // The rows of a segment are split if they are too few to be shared out, and one of them takes longer than
  // the tasks that the step should have.
  std::span<const KvSegment*> whole = take_host<const KvSegment*>(segments.size());
  std::span<SplitRow> split = take_host<SplitRow>(rows);
  std::size_t wholes = 0, splits = 0;
  for (const KvSegment& segment : segments) {
    const std::uint64_t end = std::uint64_t{segment.position} + segment.rows;
    if (threads_ == 1 || end <= kAttentionBlock ||
        std::uint64_t{segment.rows} * ranges.count >= wanted_tasks ||
        end * wanted_tasks <= work * ranges.count) {
      whole[wholes++] = &segment;
      continue;
    }
    for (std::uint32_t i = 0; i < segment.rows; ++i)
      split[splits++] = {&segment, segment.first_row + i, std::uint64_t{segment.position} + i};
  }
  whole = whole.first(wholes);
  split = split.first(splits);

  // In waves, so that the results of single blocks take a bounded amount of memory.
  do {
    const Scope of_wave(*this);
    std::size_t count = 0;
    for (std::uint64_t floats = 0; count < split.size(); ++count) {
      SplitRow& row = split[count];
      floats += std::uint64_t{row.blocks()} * shape.heads * (shape.value_dim + 2);
      if (count != 0 && floats > kMostPartials) break;
      row.max = take(row.blocks(), shape.heads);
      row.sum = take(row.blocks(), shape.heads);
      row.out = take(row.blocks(), shape.heads * shape.value_dim);
    }
    run_wave(job, whole, split.first(count));
    whole = {};
    split = split.subspan(count);
  } while (!split.empty());
}

void CpuOps::run_wave(const AttentionJob& job, std::span<const KvSegment* const> whole,
                      std::span<const SplitRow> split) {
  const std::size_t units = whole.size() + split.size();
  const std::span<std::uint64_t> end_task = take_host<std::uint64_t>(units);
  std::uint64_t tasks = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) end_task[i] = tasks += job.whole_tasks(*whole[i]);
  for (std::size_t i = 0; i < split.size(); ++i)
    end_task[whole.size() + i] = tasks += std::uint64_t{split[i].blocks()} * job.ranges.count;
  each_task(tasks, [&](std::uint32_t task, unsigned worker) {
    const auto i = static_cast<std::size_t>(std::ranges::upper_bound(end_task, task) - end_task.begin());
    const std::uint64_t after = end_task[i] - 1 - task;  // tasks of the same segment or row
    // Later rows see more positions, so the longest tasks of a segment come first.
    if (i < whole.size())
      attend_rows(job, *whole[i], after, worker);
    else
      attend_block(job, split[i - whole.size()], after, worker);
  });
  const std::uint32_t heads = job.plan.shape.heads;
  region(split.size() * std::uint64_t{heads}, [&](std::uint64_t begin, std::uint64_t end, unsigned) {
    for (std::uint64_t i = begin; i < end; ++i)
      merge_blocks(job, split[i / heads], static_cast<std::uint32_t>(i % heads));
  });
}

// Task `task` of a segment: some rows, for the queries of a head range, block after block.
void CpuOps::attend_rows(const AttentionJob& job, const KvSegment& segment, std::uint64_t task,
                         unsigned worker) {
  const HeadRange heads = job.ranges[task % job.ranges.count];
  const auto first_row = static_cast<std::uint32_t>(task / job.ranges.count) * job.plan.most_rows;
  const std::uint32_t rows = std::min(job.plan.most_rows, segment.rows - first_row);
  const std::uint32_t value_dim = job.plan.shape.value_dim;
  float* const running_max = job.running.row(worker);
  float* const running_sum = running_max + std::size_t{kMaxRowsPerTask} * kMaxHeadsPerTask;
  float* const fresh = job.fresh.row(worker);
  const Partial of_block{fresh, fresh + kMaxHeadsPerTask, fresh + std::size_t{2} * kMaxHeadsPerTask,
                         value_dim};
  const std::uint64_t last_position = std::uint64_t{segment.position} + first_row + rows - 1;
  const auto blocks = segment.blocks.first(last_position / kAttentionBlock + 1);
  HeadAttention attention(job.plan, heads, job.queries, segment.first_row + first_row, rows,
                          job.scratch.row(worker));
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
      float* const max = running_max + std::size_t{i} * kMaxHeadsPerTask;
      float* const sum = running_sum + std::size_t{i} * kMaxHeadsPerTask;
      const bool is_first = block == 0, is_last = block == position / kAttentionBlock;
      const Partial result =
          is_first ? Partial{max, sum, job.y.head(row, heads.first), job.y.head_stride} : of_block;
      attention.attend(i, visible, result);
      for (std::uint32_t h = 0; h < heads.count; ++h) {
        float* const out = job.y.head(row, heads.first + h);
        if (!is_first)
          kernels_->attention->merge(&max[h], &sum[h], out, result.max[h], result.sum[h],
                                     result.out + std::uint64_t{h} * value_dim, value_dim);
        if (is_last) kernels_->attention->finish(out, sum[h], value_dim, out);
      }
      if (is_last) job.done(row, heads.first, heads.count);
    }
  }
}

// Task `task` of a split row: one block, for the queries of a head range.
void CpuOps::attend_block(const AttentionJob& job, const SplitRow& row, std::uint64_t task, unsigned worker) {
  const auto source = [&](std::uint64_t index) {
    const std::uint64_t block = index / job.ranges.count;
    return HeadAttention::Source{&row.segment->blocks[block], job.ranges[index % job.ranges.count].kv_head,
                                 visible_of(block, row.position)};
  };
  const std::uint64_t block = task / job.ranges.count;
  const HeadRange heads = job.ranges[task % job.ranges.count];
  const std::uint32_t value_dim = job.plan.shape.value_dim;
  const Partial result{row.max.row(block) + heads.first, row.sum.row(block) + heads.first,
                       row.out.row(block) + std::uint64_t{heads.first} * value_dim, value_dim};
  HeadAttention attention(job.plan, heads, job.queries, row.row, 1, job.scratch.row(worker));
  // Tasks of a row run in descending order.
  attention.open(source(task), task != 0 ? source(task - 1) : HeadAttention::Source{});
  attention.attend(0, visible_of(block, row.position), result);
}

void CpuOps::merge_blocks(const AttentionJob& job, const SplitRow& row, std::uint32_t head) {
  const std::uint32_t value_dim = job.plan.shape.value_dim;
  const std::uint64_t first = std::uint64_t{head} * value_dim;
  float max = row.max.row(0)[head], sum = row.sum.row(0)[head];
  float* const merged = row.out.row(0) + first;
  for (std::uint32_t block = 1; block < row.blocks(); ++block)
    kernels_->attention->merge(&max, &sum, merged, row.max.row(block)[head], row.sum.row(block)[head],
                               row.out.row(block) + first, value_dim);
  kernels_->attention->finish(merged, sum, value_dim, job.y.head(row.row, head));
  job.done(row.row, head, 1);
}

}  // namespace moeflux
