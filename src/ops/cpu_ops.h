#pragma once
// Ops on the CPU: a thread pool and a table of kernels.
//
// Each operation is one or a few parallel regions. How the work is split depends on shapes and on the number
// of threads and changes no bit, because outputs are independent of each other (kernel_table.h). The pool and
// the table must outlive it.
//
// A measuring instance has neither. It takes the same scratch memory but skips the regions, so a pass through
// the layers shows how much they need. Its route() chooses the first experts for every row. One thread at a
// time.

#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "ops/block_product.h"
#include "ops/head_attention.h"
#include "ops/ops.h"

namespace moeflux {

class CpuOps final : public Ops {
 public:
  CpuOps(ThreadPool& pool, const KernelTable& kernels, Workspace workspace,
         Precision precision = Precision::exact);
  // Measures for a pool of `measured_threads` threads.
  explicit CpuOps(unsigned measured_threads, Precision precision = Precision::exact);

  void embed(const TiledMatrix& table, std::span<const TokenId> tokens, Rows out) override;
  Input prepare(Rows x, Rounding finest = Rounding::coarse) override;
  void rms_norm(Rows x, std::span<const float> weight, float eps, Rows y) override;
  void rms_norm(Heads x, std::span<const float> weight, float eps, Heads y) override;
  void gated_rms_norm(Heads x, std::span<const float> weight, Heads gate, float eps, Heads y) override;
  void l2_norm(Heads x, float eps, float scale, Heads y) override;
  void rope(Heads x, const RopeTable& table, RopePairing pairing) override;
  void add(Rows x, Rows a, Rows y) override;
  void add_gated(Rows x, Rows a, Rows gate, Rows y) override;
  void sigmoid_gate(Heads x, Heads gate, Heads y) override;
  void append(std::span<const KvSegment> segments, Heads keys, Heads values) override;
  void attend(std::span<const KvSegment> segments, const AttentionShape& shape, Heads queries,
              Heads y) override;
  void conv(std::span<const RecurrentSegment> segments, Rows x, std::span<const float> weight,
            std::uint32_t width, Rows y) override;
  void decay_beta(Rows a, Rows b, std::span<const float> rate, std::span<const float> dt_bias, Rows decay,
                  Rows beta) override;
  void delta_rule(std::span<const RecurrentSegment> segments, const DeltaRuleShape& shape, Heads queries,
                  Heads keys, Heads values, Rows decay, Rows beta, Heads y) override;
  std::uint32_t route(const RouterRule& rule, Rows logits, std::span<std::uint32_t> experts,
                      std::span<float> weights) override;
  void combine(Rows partials, std::span<const std::uint32_t> places, std::span<const ExpertShare> shares,
               std::uint32_t per_token, Rows y) override;
  Input norm_and_prepare(Rows x, std::span<const float> weight, float eps, Rounding finest, Rows y) override;
  Input mix_delta(const DeltaMix& mix, std::span<const RecurrentSegment> conv_states,
                  std::span<const RecurrentSegment> delta_states, Rows qkv, Rows gate, Rows a,
                  Rows b) override;
  Input mix_attention(const AttentionMix& mix, std::span<const KvSegment> segments, const RopeTable& rope,
                      Heads queries, Heads gates, Heads keys, Heads values) override;
  void clear(Rows y) override;
  void copy(Heads x, Heads y) override;
  void read(Rows from, std::span<float> to) override;
  void write(std::span<const float> from, Rows to) override;

 private:
  struct Hidden;
  // Tasks of equal cost: a product's parts, an expert's slices.
  struct Share {
    std::uint64_t tasks, cost;
  };
  using ShareBody = FunctionRef<void(std::size_t share, std::uint64_t first, std::uint64_t end, unsigned)>;

  void run_matmul(std::span<const Product> products, const Input& x) override;
  Input run_hidden(const MlpMatrices& w, const Input& x, std::span<const Product> beside) override;
  void run_head_matmul(const HeadMatrices& w, const Heads& x, const Heads& y) override;
  void run_head_matmul_transposed(const HeadMatrices& w, const Heads& x, const Heads& y) override;
  void run_visit(std::span<const ExpertVisit> visits, const Input& x, Rows partials,
                 const OwnProduct* beside) override;
  void run_visit_adding(std::span<const ExpertVisit> visits, const Input& x, Rows sums, Rows y) override;

  static std::uint64_t block_cost(const TiledMatrix& w, std::uint32_t rows);
  Share product_share(const TiledMatrix& w, std::uint32_t rows) const;
  void multiply_parts(const Product& product, const Input& x, std::uint64_t from, std::uint64_t to);

  Hidden take_hidden(std::span<const ExpertVisit> visits, const Input& x);
  Hidden with_buffers(std::span<std::uint32_t> first, const Input& rows, std::size_t most_visits);
  Hidden compute_hidden(std::span<const ExpertVisit> visits, const Input& x, const OwnProduct* beside);
  Share hidden_share(const ExpertVisit& visit, std::uint32_t rows) const;
  Share down_share(const ExpertVisit& visit, std::uint32_t rows) const;
  void compute_part(const ExpertVisit& visit, std::size_t v, const Input& x, const Hidden& hidden,
                    unsigned worker, std::uint64_t from, std::uint64_t to);
  void hidden_blocks(const ExpertVisit& visit, std::size_t v, const Input& x, const Hidden& hidden,
                     unsigned worker, std::uint64_t from, std::uint64_t to);
  void add_output(const ExpertShare& share, const float* output, std::uint32_t cols, float* sum,
                  float* total);

  struct ByLength;
  ByLength by_length(std::span<const RecurrentSegment> segments);
  struct MixedRow;
  void mix_heads(const DeltaMix& mix, const MixedRow& of, std::uint32_t first, std::uint32_t count,
                 float* memory);
  void convolve_row(const DeltaMix& mix, const MixedRow& of, std::uint32_t first, std::uint32_t channels,
                    bool writes_state, float* y);

  // Called for heads [first, first + count) of a row once their result is complete.
  using HeadsDone = FunctionRef<void(std::uint32_t row, std::uint32_t first, std::uint32_t count)>;
  struct AttentionJob;
  struct SplitRow;
  bool attends_to_bytes(std::span<const KvSegment> segments) const;
  void attend_all(std::span<const KvSegment> segments, const AttentionShape& shape, Heads queries, Heads y,
                  HeadsDone done);
  void append_head(const KvSegment& segment, std::uint32_t row, std::uint32_t head, const Heads& keys,
                   const Heads& values);
  void run_wave(const AttentionJob& job, std::span<const KvSegment* const> whole,
                std::span<const SplitRow> split);
  void attend_rows(const AttentionJob& job, const KvSegment& segment, std::uint64_t task, unsigned worker);
  void attend_block(const AttentionJob& job, const SplitRow& row, std::uint64_t task, unsigned worker);
  void merge_blocks(const AttentionJob& job, const SplitRow& row, std::uint32_t head);

  bool is_measuring() const { return pool_ == nullptr; }
  Processor processor() const { return {*kernels_, wants_prefetch_}; }  // Requires: !is_measuring()
  // Into how many parts a region is split at most.
  std::uint32_t most_parts() const { return threads_ == 1 ? 1 : threads_ * ThreadPool::kPartsPerThread; }
  // A parallel region: body(begin, end, worker) over parts of 0..count.
  void region(std::uint64_t count,
              FunctionRef<void(std::uint64_t begin, std::uint64_t end, unsigned worker)> body);
  // A parallel region: body(task, worker) for each task below `tasks`.
  void each_task(std::uint64_t tasks, FunctionRef<void(std::uint32_t task, unsigned worker)> body);
  // A parallel region over the tasks of all shares, in parts of equal cost.
  void each_share(std::span<const Share> shares, ShareBody body);
  void each_row(std::uint32_t rows, FunctionRef<void(std::uint32_t row)> body);
  void each_head(const Heads& heads, FunctionRef<void(std::uint32_t row, std::uint32_t head)> body);

  // take_prepared: the memory of prepare()'s result, uninitialized. prepare_part: fills in columns [first,
  // first + cols) of a row, where `first` is a multiple of kInt8Group.
  Input take_prepared(Rows x, Rounding finest);
  void prepare_part(const Input& input, std::uint32_t row, std::uint32_t first, std::uint32_t cols);

  Precision precision_;
  ThreadPool* pool_ = nullptr;
  const KernelTable* kernels_ = nullptr;
  bool wants_prefetch_ = false;
  unsigned threads_ = 1;
};

}  // namespace moeflux
