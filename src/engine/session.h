#pragma once
// One timeline of tokens over an engine, and its past: checkpoints, snapshots, forks, files.
//
// A session computes the same bits whatever other sessions share its steps and however its tokens are cut
// into steps. Owns its state and a share in its engine. Move-only; one thread at a time.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "base/ids.h"
#include "base/result.h"
#include "engine/batch.h"
#include "engine/checkpoints.h"
#include "engine/engine.h"
#include "experts/expert_history.h"
#include "io/file_system.h"
#include "state/session_state.h"
#include "state/snapshot.h"
#include "state/snapshot_file.h"

namespace moeflux {

// What a long extend() does besides running its steps.
struct ExtendOptions {
  StepOptions step = {};
  // Keeps a checkpoint at this position if it lies strictly between the positions before and after extend().
  // Best effort: if there is no memory for the checkpoint, a later rewind() reruns more tokens.
  std::uint32_t checkpoint_at = 0;
  // Room for the logits of every token of a step: [rows][vocabulary]. If not empty, a step has at most `rows`
  // tokens, and its logits are here when `progress` is called. For measurements.
  std::span<float> logits_of_step = {};
};

// Called after each step of an extend() with what that step did. An error stops extend(), which returns it.
using StepProgress = FunctionRef<Status(const StepStatistics& step)>;

class Session {
 public:
  Session(Session&&) noexcept = default;
  Session& operator=(Session&& other) noexcept;

  Engine& engine() const { return *engine_; }
  std::uint32_t position() const { return state_.position(); }
  std::uint32_t context() const { return state_.context(); }
  // The tokens at positions [tokens_begin(), position()). Earlier ones are unknown: an imported snapshot has
  // none.
  std::span<const TokenId> tokens() const { return state_.tokens(); }
  std::uint32_t tokens_begin() const { return state_.tokens_begin(); }

  // Runs `tokens` in steps of at most EngineOptions::step_rows rows and returns the sum of their statistics.
  // `logits`: empty, or [vocabulary] for those after the last token. Token ids, room in the context and
  // memory for keys and values are checked for all tokens before the first step, so those errors mean that
  // nothing was computed. If a later step fails or is cancelled, the session stands after the last step that
  // succeeded; see position().
  Result<StepStatistics> extend(std::span<const TokenId> tokens, std::span<float> logits = {},
                                const StepOptions& options = {});
  Result<StepStatistics> extend(std::span<const TokenId> tokens, std::span<float> logits,
                                const ExtendOptions& options, StepProgress progress);
  // Goes back to `kept`, at most position(), and runs `tokens` from there like extend(). A session with
  // recurrent layers first runs its own tokens again from its last checkpoint at or before `kept`. Everything
  // is checked before the first step, for those tokens too, and after a failed check the session is where it
  // was. Exception: if other sessions leave too little room in the pool, the call fails after it has dropped
  // the positions after `kept`; a session with recurrent layers is then at that checkpoint.
  Result<StepStatistics> replace_after(std::uint32_t kept, std::span<const TokenId> tokens,
                                       std::span<float> logits, const ExtendOptions& options,
                                       StepProgress progress);
  // Returns position_mismatch unless the session is at `position`.
  Status expect_position(std::uint32_t position) const;

  // Resets to position 0 and drops all checkpoints.
  void clear();

  // Forgets which experts the last token chose, so the next step prefetches nothing; for benchmarks.
  void forget_predictions() { history_.forget(); }

  // ---- Checkpoints: see engine/checkpoints.h ----
  // Keeps the current state under its position.
  void checkpoint();
  // Goes back to the checkpoint at exactly `position` and drops later ones; no_checkpoint if there is none.
  Status restore_to(std::uint32_t position);
  // Goes back to any earlier position. A session with recurrent layers runs its own tokens again from the
  // last checkpoint at or before it. On an error or a cancel the session is where it was. Returns the work of
  // the rerun.
  Result<StepStatistics> rewind(std::uint32_t position, const StepOptions& options = {});
  // Goes back without running anything; cannot_truncate_recurrent, and no change, where that is impossible.
  Status rewind_strict(std::uint32_t position);
  void set_max_checkpoints(std::size_t count) { checkpoints_.set_most(count); }
  void set_checkpoint_budget_bytes(std::uint64_t bytes) { checkpoints_.set_budget_bytes(bytes); }
  std::size_t checkpoint_count() const { return checkpoints_.count(); }

  // ---- Snapshots ----
  Snapshot snapshot() const;
  // A new session at the same position. Both share their blocks.
  Result<Session> fork() const;
  // Replaces the state by a snapshot of the same engine. Drops the checkpoints: they belong to another
  // timeline.
  Status restore(const Snapshot& snapshot);
  // Writes a snapshot file, whole or not at all, or the same bytes piece by piece. It has the checkpoints
  // too, at most kMostSavedCheckpoints. See docs/formats/snapshot.md.
  Status save(FileSystem& files, const std::filesystem::path& path) const;
  Status save(SnapshotSink sink) const;
  std::uint64_t saved_bytes() const;
  // Reads such a file, in pieces. Its checkpoints replace those of the session, as many as the session keeps
  // and the pool has room for. A load that fails changes nothing.
  Status load(FileSystem& files, const std::filesystem::path& path);
  Status load(std::span<const std::byte> bytes);
  // A file that another arithmetic computed cannot be loaded (wrong_numerics), but its tokens can run again.
  // Reads them from a file of the same model, and changes nothing.
  Result<SnapshotTokens> read_tokens(FileSystem& files, const std::filesystem::path& path) const;
  // Becomes a session that has run the tokens of such a file, with checkpoints at the positions of its most
  // recently used ones, as many as the session keeps. Token ids and room in the context are checked first. If
  // a later step fails or is cancelled, the session stands after the last step that succeeded.
  Result<StepStatistics> replay(const SnapshotTokens& saved, const StepOptions& options,
                                StepProgress progress);

 private:
  friend class Engine;
  Session(std::shared_ptr<Engine> engine, SessionState state, ExpertHistory history);

  // How to get back to an earlier position: the state to begin at, and the session's own tokens from there.
  struct Replay {
    std::uint32_t begin = 0;
    const Snapshot* base = nullptr;  // null: the state is truncated, or begins at position 0
    std::vector<TokenId> tokens;
  };
  Result<Replay> plan_replay(std::uint32_t position);
  void go_back_to_begin(const Replay& replay);
  // Reserves memory for run_steps(). If there is too little, gives up options.checkpoint_at and then the
  // session's checkpoints, the least recently used first.
  Status reserve(std::size_t rows, ExtendOptions& options);
  SavedSession to_save() const;
  Status load(const ReadFile& file);
  std::size_t rows_per_step(const ExtendOptions& options) const;
  // Runs `tokens`, for which memory is reserved, in steps.
  Result<StepStatistics> run_steps(std::span<const TokenId> tokens, std::span<float> logits,
                                   const ExtendOptions& options, StepProgress progress);

  std::shared_ptr<Engine> engine_;  // destroyed last: it owns the blocks
  SessionState state_;
  Checkpoints checkpoints_;
  ExpertHistory history_;
};

}  // namespace moeflux
