#pragma once
// The blocks of one key/value head in order, and the queries of a few rows that attend to them: the unit into
// which CpuOps splits attention.
//
// Stored floats are used in place. Narrower dtypes are converted in scratch memory, once for all queries: to
// floats or, for int8 in the precision `fast`, to a block for integer products (byte_attention.h). Call
// open() for each block, then attend() for each row. Refers to its plan, the queries and the scratch memory
// of its worker. One thread at a time.

#include <algorithm>
#include <cstdint>

#include "base/arithmetic.h"
#include "kernels/byte_attention.h"
#include "kernels/kernel_table.h"
#include "ops/ops.h"
#include "quant/kv_dtype.h"

namespace moeflux {

inline constexpr std::uint32_t kMaxHeadsPerTask = 16;  // query heads that share a key/value head

// The queries of one row that share a key/value head, or part of them.
struct HeadRange {
  std::uint32_t kv_head, first, count;  // `first` counts query heads
};

struct HeadRanges {
  std::uint32_t sharing, of_each, count;

  explicit HeadRanges(const AttentionShape& shape)
      : sharing(shape.heads / shape.kv_heads),
        of_each(divide_up(sharing, kMaxHeadsPerTask)),
        count(of_each * shape.kv_heads) {}

  HeadRange operator[](std::uint64_t index) const {
    const auto kv_head = static_cast<std::uint32_t>(index / of_each);
    const auto part = static_cast<std::uint32_t>(index % of_each);
    const std::uint32_t first = part * kMaxHeadsPerTask;
    return {kv_head, kv_head * sharing + first, std::min(kMaxHeadsPerTask, sharing - first)};
  }
};

// The results of a block for the queries of one row: max [heads], sum [heads], out [heads][value_dim].
struct Partial {
  float *max, *sum, *out;
  std::uint64_t out_stride;
};

class HeadAttention {
 public:
  // What all tasks of a step have in common.
  struct Plan {
    const KernelTable* kernels;  // null while measuring
    const AttentionShape& shape;
    KvDtype dtype;
    bool has_bytes;           // integer products: queries become bytes too
    std::uint32_t most_rows;  // query rows per task

    ByteBlockShape bytes() const { return {shape.key_dim, shape.value_dim}; }
    std::uint64_t query_stride() const { return byte_query_words(shape.key_dim); }
    // Scratch memory of a worker: an opened block, and the queries as bytes.
    std::uint32_t block_floats() const {
      if (has_bytes) return static_cast<std::uint32_t>(bytes().bytes() / sizeof(float));
      return dtype == KvDtype::f32 ? 0 : kAttentionBlock * (shape.key_dim + shape.value_dim);
    }
    std::uint32_t scratch_floats() const {
      const std::uint64_t queries =
          has_bytes ? std::uint64_t{most_rows} * kMaxHeadsPerTask * query_stride() : 0;
      return std::max(1u, block_floats() + static_cast<std::uint32_t>(queries));
    }
  };

  // The queries of rows [first_row, first_row + rows), for `heads`.
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

  // The first `rows` positions of a block, for one key/value head.
  struct Source {
    const KvBlockView* block = nullptr;  // null: none
    std::uint32_t kv_head = 0;
    std::uint32_t rows = 0;
  };

  // Makes this the block that attend() uses. `next` is the block that this worker opens after it, for
  // prefetching.
  void open(const Source& source, const Source& next) {
    const StoredBlock kept(*source.block, plan_, source.kv_head);
    is_cold_ = true;
    next_ = next;
    if (plan_.has_bytes) {
      const StoredBytes keys = kept.bytes(kept.keys, kept.key_words, plan_.shape.key_dim);
      // Values that are part of the keys share their scales.
      const StoredBytes values =
          kept.values == nullptr ? keys : kept.bytes(kept.values, kept.value_words, plan_.shape.value_dim);
      plan_.kernels->byte_attention->open(plan_.bytes(), keys, values, source.rows, opened_bytes());
    } else if (plan_.dtype == KvDtype::f32) {
      set_floats(kept.keys, kept.key_words, kept.values, kept.value_words);
    } else {
      widen(kept, source.rows);
    }
  }

  // Attends with row `i` of the queries, which sees `visible` leading positions of the block.
  void attend(std::uint32_t i, std::uint32_t visible, const Partial& result) {
    if (plan_.has_bytes) {
      attend_bytes(i, visible, result);
    } else {
      attend_floats(i, visible, result);
    }
    is_cold_ = false;  // the next row finds the block in the cache
  }

 private:
  // The stored keys and values of one head of a block: rows of `words` floats.
  struct StoredBlock {
    const float* keys;
    const float* values = nullptr;  // null: parts of the keys
    std::size_t key_words, value_words;

    StoredBlock(const KvBlockView& block, const Plan& plan, std::uint32_t kv_head)
        : key_words(kv_row_words(plan.dtype, plan.shape.key_dim)),
          value_words(kv_row_words(plan.dtype, plan.shape.value_dim)) {
      keys = block.keys + std::uint64_t{kv_head} * kAttentionBlock * key_words;
      if (block.values != nullptr)
        values = block.values + std::uint64_t{kv_head} * kAttentionBlock * value_words;
    }
    static MemoryRange range(const float* rows, std::size_t words, std::size_t count) {
      return {reinterpret_cast<const std::byte*>(rows), count * words * sizeof(float)};
    }
    static StoredBytes bytes(const float* rows, std::size_t words, std::uint32_t dim) {
      return {reinterpret_cast<const std::int8_t*>(rows), rows + kv_code_words(dim), words};
    }
  };

  void attend_floats(std::uint32_t i, std::uint32_t visible, const Partial& result) {
    std::uint32_t visible_of_each[kMaxHeadsPerTask];
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
    args.is_cold = is_cold_ && plan_.dtype == KvDtype::f32;
    if (args.is_cold && next_.block != nullptr)
      args.next_keys = StoredBlock(*next_.block, plan_, next_.kv_head).keys;
    args.max = result.max;
    args.sum = result.sum;
    args.out = result.out;
    args.out_stride = result.out_stride;
    plan_.kernels->attention->attend(args);
  }

  std::byte* opened_bytes() const { return reinterpret_cast<std::byte*>(scratch_); }
  float* byte_queries(std::uint32_t i) const {
    return scratch_ + plan_.block_floats() + std::uint64_t{i} * kMaxHeadsPerTask * plan_.query_stride();
  }

  void set_floats(const float* keys, std::uint64_t key_stride, const float* values,
                  std::uint64_t value_stride) {
    keys_ = keys;
    key_stride_ = key_stride;
    values_ = values != nullptr ? values : keys;
    value_stride_ = values != nullptr ? value_stride : key_stride;
  }

  void widen(const StoredBlock& kept, std::uint32_t rows) {
    const AttentionKernels& kernels = *plan_.kernels->attention;
    const auto widen_row = plan_.dtype == KvDtype::bf16 ? kernels.widen_bf16 : kernels.widen_int8;
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
    MemoryRange keys, values;
    if (is_cold_ && next_.block != nullptr) {
      const StoredBlock next(*next_.block, plan_, next_.kv_head);
      keys = next.range(next.keys, next.key_words, next_.rows);
      if (next.values != nullptr) values = next.range(next.values, next.value_words, next_.rows);
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
  bool is_cold_ = false;  // the block has not been used yet
  Source next_;
};

}  // namespace moeflux
