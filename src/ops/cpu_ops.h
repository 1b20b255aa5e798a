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
  Status route(const RouterRule& rule, Rows logits, std::span<std::uint32_t> experts,
               std::span<float> weights) override;
  void combine(Rows partials, std::span<const std::uint32_t> places, std::span<const ExpertShare> shares,
               std::uint32_t per_token, Rows y) override;
  void clear(Rows y) override;
  void copy(Heads x, Heads y) override;
  void read(Rows from, std::span<float> to) override;
  void write(std::span<const float> from, Rows to) override;

 private:
  struct Hidden;

  void run_matmul(std::span<const Product> products, const Input& x) override;
  void run_mlp(const TiledMatrix& gate, const TiledMatrix& up, const TiledMatrix& down, const Input& x,
               Rows y) override;
  void run_head_matmul(const HeadMatrices& w, const Heads& x, const Heads& y) override;
  void run_head_matmul_transposed(const HeadMatrices& w, const Heads& x, const Heads& y) override;
  void run_visit(std::span<const ExpertVisit> visits, const Input& x, Rows partials) override;
  void run_visit_adding(std::span<const ExpertVisit> visits, const Input& x, Rows sums, Rows y) override;
  void add_output(const ExpertShare& share, const float* output, std::uint32_t cols, float* sum,
                  float* total);
  Hidden take_hidden(std::span<const ExpertVisit> visits, const Input& x);
  Hidden compute_hidden(std::span<const ExpertVisit> visits, const Input& x);
  void hidden_slices(const ExpertVisit& visit, std::size_t v, const Input& x, const Hidden& hidden,
                     unsigned worker, std::uint64_t from, std::uint64_t to);

  struct ByLength;
  ByLength by_length(std::span<const RecurrentSegment> segments);

  bool attends_to_bytes(std::span<const KvSegment> segments) const;
  void attend_rows(std::span<const KvSegment> segments, const AttentionShape& shape,
                   std::uint32_t rows_of_task, Heads queries, Heads y);
  struct RunningRows;
  void attend_task(const HeadAttention::Plan& plan, const KvSegment& segment, const HeadRange& heads,
                   std::uint32_t first_row, std::uint32_t rows, const RunningRows& state, float* scratch,
                   Heads queries, Heads y);
  void attend_blocks(std::span<const KvSegment> segments, const AttentionShape& shape, Heads queries,
                     Heads y);

  bool is_measuring() const { return pool_ == nullptr; }
  Processor processor() const { return {*kernels_, wants_prefetch_}; }  // Requires: !is_measuring()
  // A parallel region: body(begin, end, worker) over parts of 0..count.
  void region(std::uint64_t count,
              FunctionRef<void(std::uint64_t begin, std::uint64_t end, unsigned worker)> body);
  // A parallel region: body(task, worker) for each task below `tasks`.
  void each_task(std::uint64_t tasks, FunctionRef<void(std::uint32_t task, unsigned worker)> body);
  void each_row(std::uint32_t rows, FunctionRef<void(std::uint32_t row)> body);
  void each_head(const Heads& heads, FunctionRef<void(std::uint32_t row, std::uint32_t head)> body);

  // Into how many parts the work on experts is split.
  unsigned parts_of_shares() const { return threads_ == 1 ? 1 : threads_ * ThreadPool::kPartsPerThread; }

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
