#pragma once
// A loaded model, shared by its sessions (engine/session.h).
//
// Owns the resident weights, the layers and one executor: threads, scratch memory, experts. Weights and
// config are immutable. Thread-safe: steps from several threads run one after another. A process may hold
// several engines; nothing is global. Sessions and snapshots keep their engine alive.
//
// A step runs a batch of segments, one per session, through all layers. A segment that fails or is cancelled
// leaves its session where it was and has no effect on the others. A step that fails or is cancelled moves no
// session. The next step computes the bits of an undisturbed run.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/published.h"
#include "base/result.h"
#include "base/thread_annotations.h"
#include "base/thread_pool.h"
#include "engine/batch.h"
#include "engine/engine_statistics.h"
#include "engine/memory_plan.h"
#include "engine/options.h"
#include "io/file_system.h"
#include "kernels/kernel_table.h"
#include "layers/decoder_layer.h"
#include "model/packed_model.h"
#include "model/rope.h"
#include "ops/cpu_ops.h"
#include "state/block_pool.h"
#include "state/snapshot_file.h"

namespace moeflux {

// How the engine reads its experts, for display.
struct StreamingReport {
  std::string drive;  // "io_uring, direct reads, fixed buffers"; empty: nothing is streamed
  std::uint32_t slots = 0, records = 0;
  std::vector<std::string> notes;  // what the machine refused, and what will be slow
};

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  // Plans the memory, loads the resident weights of `model` and starts the threads. `files` is used while
  // opening only, to query the machine. Errors: invalid_argument for options that this model or this build
  // does not have, out_of_memory for a plan that does not fit, and whatever reading the weights and opening
  // the experts returns.
  static Result<std::shared_ptr<Engine>> open(FileSystem& files, PackedModel model,
                                              const EngineOptions& options = {});
  ~Engine();

  const PackedModel& model() const { return model_; }
  const ModelConfig& config() const { return model_.config(); }
  const EngineOptions& options() const { return options_; }  // resolved: no zero stands for a default
  const KernelTable& kernels() const { return *kernels_; }
  unsigned threads() const { return pool_.threads(); }
  const MemoryPlan& memory_plan() const { return memory_plan_; }
  const StreamingReport& streaming() const { return streaming_; }
  // The bytes of resident.bin.
  std::span<const std::byte> resident_weights() const { return weights_.bytes(); }

  // ---- At any time, from any thread, without waiting for a running step ----
  // Since the engine was opened, as of a moment between two layers of a step; see ExpertSource.
  ExpertStatistics expert_statistics() const;
  // Which experts are in memory. If they all are from the start, all are ready.
  const ResidencyMap& residency() const;
  EngineStatistics statistics() const;

  Result<Session> new_session();

  // What a saved session must match to be loaded into this engine.
  SnapshotIdentity snapshot_identity() const;
  BlockPool& state_pool() { return state_pool_; }

  // Runs one step and commits all of its segments, or none if one of them fails. Errors found before any
  // work: token_out_of_range, context_full, out_of_memory, invalid_argument. Requires that every session
  // belongs to this engine.
  Result<StepStatistics> step(std::span<const Segment> batch, const StepOptions& options = {})
      MF_EXCLUDES(mutex_);
  // Runs one step and commits each segment that does not fail; outcomes[i] is that of batch[i]. A segment
  // fails alone for its tokens, its room in the context, memory for its state, numbers that are not finite,
  // and its `cancel`. An error means that the step failed as a whole, for its shape, a read of experts or
  // options.cancel: no session has moved, and the outcomes are indeterminate.
  Result<StepStatistics> step_each(std::span<const Segment> batch, std::span<Status> outcomes,
                                   const StepOptions& options = {}) MF_EXCLUDES(mutex_);

 private:
  Engine(PackedModel model, const KernelTable& kernels, const EngineOptions& options);

  Status make_layers();
  Result<MemoryPlan> plan_memory(FileSystem& files) const;
  std::uint64_t state_budget_bytes() const;
  std::uint64_t expert_budget_bytes(const MemoryPlan& others) const;
  ExpertStoreOptions store_options() const;
  Status open_experts() MF_REQUIRES(mutex_);
  Result<std::uint64_t> measure_workspace() const;
  Result<std::uint64_t> measure_step(std::uint32_t rows, std::uint32_t rows_per_session) const;
  Status load_weights();
  Status make_executor();

  friend class Session;
  // Reserves memory like SessionState::reserve(); abandon() returns the memory that no step used.
  Status reserve(Session& session, std::size_t rows, std::uint64_t steps, std::uint64_t snapshots)
      MF_EXCLUDES(mutex_);
  // Whether `reserved` found no room and the owner then dropped snapshots.
  bool has_made_room(const Status& reserved) const;
  void abandon(Session& session) MF_EXCLUDES(mutex_);
  // Whether a session at `position` can run `tokens`: their ids, and room in the context.
  Status check_tokens(std::uint32_t position, std::span<const TokenId> tokens) const;
  // Checks what is wrong with a batch as a whole, before any work.
  Status check(std::span<const Segment> batch) const;
  Status check(const Segment& segment) const;
  Status check_rows(std::span<const Segment> batch, std::span<const Status> outcomes) const;
  Status begin(const Segment& segment) MF_REQUIRES(mutex_);
  enum class Commit { all_or_none, each };
  Result<StepStatistics> begin_and_run(std::span<const Segment> batch, std::span<Status> outcomes,
                                       Commit commit, const StepOptions& options) MF_REQUIRES(mutex_);
  Result<StepStatistics> run(std::span<const Segment> batch, std::span<Status> outcomes, Commit commit,
                             const StepOptions& options) MF_REQUIRES(mutex_);
  void count(const Result<StepStatistics>& step) MF_REQUIRES(mutex_);

  // A step with the engine's own options; Step::options is not set.
  Step step_over(Ops& ops, ExpertSource& experts, std::span<const StepSegment> segments) const;
  // Runs `segments` through the model and writes their logits; sets Step::segments and Step::rope. Also runs
  // steps that only measure.
  Status forward(Step step, std::span<StepSegment> segments) const;
  void hint_experts(const Step& step) const;
  void sweep_ahead(const Step& step, std::uint32_t layer) const;
  static void fail_not_finite(const Step& step, Rows normed);
  void compute_logits(const Step& step, Rows residual) const;
  struct Pass;
  Status drop_failed(Step& step, Pass& pass) const;
  static void replace_residual(const Step& step, LayerId layer, Rows residual);
  std::span<RopeTable> take_rope_tables(const Step& step) const;
  void fill_rope_tables(const Step& step, std::span<const RopeTable> tables) const;

  const PackedModel model_;
  const KernelTable* const kernels_;
  const EngineOptions options_;

  HugeBuffer weights_;  // resident.bin
  std::vector<Rope> ropes_;
  std::vector<DecoderLayer> layers_;
  TiledMatrix embedding_, head_;  // [vocabulary, dim]
  std::span<const float> final_norm_;
  BlockPool state_pool_;

  MemoryPlan memory_plan_;
  StreamingReport streaming_;
  std::vector<std::uint32_t> all_experts_;  // 0, 1, 2, ..., for the layer with the most experts
  Mutex mutex_;
  ThreadPool pool_;
  std::vector<Status> outcomes_ MF_GUARDED_BY(mutex_);  // of the segments of step()
  std::unique_ptr<CpuOps> ops_ MF_GUARDED_BY(mutex_);
  std::unique_ptr<ExpertSource> experts_ MF_GUARDED_BY(mutex_);
  const ExpertSource* observed_experts_ = nullptr;  // experts_, for what any thread may read of it
  Published<StepTotals> totals_;                    // written with mutex_ held
};

}  // namespace moeflux
