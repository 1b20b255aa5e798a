#pragma once
// A loaded model, and the timelines that run over it.
//
// Engine: weights and config are immutable; it owns one executor (threads, scratch memory, experts), so steps are
// serialised and any thread may call. Several engines may live in one process. Nothing is global.
// Session: one timeline of tokens. Move-only, one thread at a time; it keeps its engine alive.
//
// A step runs a batch of segments, one a session, through all layers, and commits all of them or none: whatever
// fails, and when it is cancelled, no session has moved and the next step has the bits of an undisturbed run.
// What a session computes does not depend on who else is in the batch, nor on how its tokens are cut into steps.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/thread_annotations.h"
#include "base/thread_pool.h"
#include "engine/checkpoints.h"
#include "engine/memory_plan.h"
#include "engine/options.h"
#include "io/file_system.h"
#include "kernels/cpu_ops.h"
#include "kernels/kernel_table.h"
#include "layers/decoder_layer.h"
#include "layers/rope.h"
#include "layers/step_observer.h"
#include "model/packed_model.h"
#include "state/session_state.h"
#include "state/snapshot_file.h"

namespace moeflux {

class Session;

// How the engine gets at its experts, for people.
struct StreamingReport {
  std::string drive;  // "io_uring, direct reads, fixed buffers"; empty: nothing is streamed
  std::uint32_t slots = 0, records = 0;
  std::vector<std::string> notes;  // what was refused, and what is slow
};

enum class WantedLogits { none, last, all };

// A session's part of a step.
struct Segment {
  Session* session = nullptr;
  std::span<const TokenId> tokens;  // at least one
  WantedLogits logits = WantedLogits::none;
  std::span<float> out;  // none: empty; last: [vocabulary]; all: [tokens][vocabulary]
};

struct StepOptions {
  StepObserver* observer = nullptr;
  const std::atomic<bool>* cancel = nullptr;  // looked at before every layer
  Routing* routing = nullptr;                 // instead of the router's choices; for benchmarks
};

// Work, counted where it is begun, and what it took.
struct StepStatistics {
  std::uint64_t rows = 0;
  std::uint64_t matrix_calls = 0;  // products of the batch with a resident matrix
  std::uint64_t fetches = 0;       // of experts
  std::uint64_t experts_handed_out = 0;
  std::uint64_t expert_visits = 0;  // experts multiplied with their rows

  ExpertStatistics experts = {};  // how they were streamed
  std::chrono::nanoseconds took{0};

  // The same work was done: whatever was in memory, and however long it took.
  friend bool operator==(const StepStatistics& a, const StepStatistics& b) {
    return a.rows == b.rows && a.matrix_calls == b.matrix_calls && a.fetches == b.fetches &&
           a.experts_handed_out == b.experts_handed_out && a.expert_visits == b.expert_visits;
  }
  StepStatistics& operator+=(const StepStatistics& other);
};

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  static Result<std::shared_ptr<Engine>> open(FileSystem& files, const std::filesystem::path& path,
                                              const EngineOptions& options = {});
  ~Engine();

  const PackedModel& model() const { return model_; }
  const ModelConfig& config() const { return model_.config(); }
  const EngineOptions& options() const { return options_; }  // as they came out: no zeros left
  const KernelTable& kernels() const { return *kernels_; }
  unsigned threads() const { return pool_.threads(); }
  const MemoryPlan& memory_plan() const { return memory_plan_; }
  const StreamingReport& streaming() const { return streaming_; }
  // The weights that stay in memory, as the packed model has them.
  std::span<const std::byte> resident_weights() const { return weights_.bytes(); }
  // Since the engine was opened.
  ExpertStatistics expert_statistics() MF_EXCLUDES(mutex_);

  Result<Session> new_session();

  // What a saved session of this engine is marked with.
  SnapshotIdentity snapshot_identity() const;
  KvPool& kv_pool() { return kv_pool_; }

  // Errors that are found before any work: token_out_of_range, context_full, out_of_memory, invalid_argument.
  Result<StepStatistics> step(std::span<const Segment> batch, const StepOptions& options = {})
      MF_EXCLUDES(mutex_);

 private:
  Engine(PackedModel model, const KernelTable& kernels, const EngineOptions& options);

  Status make_layers();
  Result<MemoryPlan> plan_memory(FileSystem& files) const;
  std::uint64_t expert_budget_bytes(const MemoryPlan& others) const;
  ExpertStoreOptions store_options() const;
  Status open_experts() MF_REQUIRES(mutex_);
  Result<std::uint64_t> measure_workspace() const;
  Status load_weights();
  Status make_executor();

  friend class Session;
  // Errors of Session::extend that are known before its first step; makes room for all of its tokens.
  Status prepare(Session& session, std::span<const TokenId> tokens) MF_EXCLUDES(mutex_);
  Status check_tokens(const Session& session, std::span<const TokenId> tokens) const;
  Status check(std::span<const Segment> batch) const;
  Result<StepStatistics> reserve_and_run(std::span<const Segment> batch, const StepOptions& options)
      MF_REQUIRES(mutex_);
  Result<StepStatistics> run(std::span<const Segment> batch, const StepOptions& options) MF_REQUIRES(mutex_);

  // The pass itself, also when it only measures: then the segments have no sessions.
  struct Pass;
  Status forward(const Pass& pass) const;
  void hint_experts(const Pass& pass, std::span<const Segment> batch) const;
  void sweep_ahead(const Pass& pass, std::uint32_t layer) const;
  void compute_logits(const Pass& pass, Rows residual) const;
  std::span<const RopeTable> rope_tables(Ops& ops, std::span<const StepSegment> segments,
                                         std::uint32_t rows) const;

  const PackedModel model_;
  const KernelTable* const kernels_;
  const EngineOptions options_;

  HugeBuffer weights_;  // resident.bin
  std::vector<Rope> ropes_;
  std::vector<DecoderLayer> layers_;
  TiledMatrix embedding_, head_;  // [vocabulary, dim]
  std::span<const float> final_norm_;
  KvPool kv_pool_;

  MemoryPlan memory_plan_;
  StreamingReport streaming_;
  std::vector<std::uint32_t> all_experts_;  // 0, 1, 2, ...: of the layer that has most
  Mutex mutex_;
  ThreadPool pool_;
  std::unique_ptr<CpuOps> ops_ MF_GUARDED_BY(mutex_);
  std::unique_ptr<ExpertSource> experts_ MF_GUARDED_BY(mutex_);
};

class Session {
 public:
  Session(Session&&) noexcept = default;
  Session& operator=(Session&& other) noexcept;

  Engine& engine() const { return *engine_; }
  std::uint32_t position() const { return state_.position(); }
  std::uint32_t context() const { return state_.context(); }
  // The tokens at positions tokens_begin() .. position(); those before it are not known (an imported snapshot).
  std::span<const TokenId> tokens() const { return state_.tokens(); }
  std::uint32_t tokens_begin() const { return state_.tokens_begin(); }

  // Steps over `tokens`, at most EngineOptions::step_rows at a time. `logits`: empty, or [vocabulary] for those after
  // the last token. Tokens, room in the context and memory for keys and values are checked for all of them first.
  // When a later step fails or is cancelled, the session stands after the last that succeeded: position() says where.
  Result<StepStatistics> extend(std::span<const TokenId> tokens, std::span<float> logits = {},
                                const StepOptions& options = {});
  // position_mismatch unless the session stands at `position`.
  Status expect_position(std::uint32_t position) const;

  // As new; checkpoints are gone.
  void clear();

  // The next step is not guessed at: which experts the last token chose is forgotten.
  void forget_predictions() { history_.forget(); }

  // ---- Checkpoints: see engine/checkpoints.h ----
  // Keeps the state under its position.
  Status checkpoint();
  // Goes back to a checkpoint at exactly `position`, or no_checkpoint. Later ones are dropped.
  Status restore_to(std::uint32_t position);
  // Goes back to any earlier position: from the deepest checkpoint before it the session's own tokens are run again.
  // On an error, a cancel included, the session is where it was. Gives what was run.
  Result<StepStatistics> rewind(std::uint32_t position, const StepOptions& options = {});
  // Goes back without running anything, or cannot_truncate_recurrent and no change.
  Status rewind_strict(std::uint32_t position);
  void set_max_checkpoints(std::size_t count) { checkpoints_.set_most(count); }
  void set_checkpoint_budget_bytes(std::uint64_t bytes) { checkpoints_.set_budget_bytes(bytes); }
  std::size_t checkpoint_count() const { return checkpoints_.count(); }

  // ---- Snapshots ----
  Result<Snapshot> snapshot() const;
  // Another session at the same position, sharing what both have seen.
  Result<Session> fork() const;
  // Becomes a snapshot of the same engine. Checkpoints are gone: they were of another timeline.
  Status restore(const Snapshot& snapshot);
  // As a file, whole or not at all; and as bytes, handed over piece by piece. docs/formats/snapshot.md
  Status save(FileSystem& files, const std::filesystem::path& path) const;
  Status save(SnapshotSink sink) const;
  std::uint64_t saved_bytes() const;
  // A load that fails changes nothing.
  Status load(FileSystem& files, const std::filesystem::path& path);
  Status load(std::span<const std::byte> bytes);

 private:
  friend class Engine;
  Session(std::shared_ptr<Engine> engine, SessionState state, ExpertHistory history);

  std::shared_ptr<Engine> engine_;  // goes last: the blocks are the engine's
  SessionState state_;
  Checkpoints checkpoints_;
  ExpertHistory history_;
};

}  // namespace moeflux
