#include "engine/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/arithmetic.h"
#include "base/check.h"
#include "base/sizes.h"
#include "io/atomic_file.h"
#include "io/memory_file.h"

namespace moeflux {

Session::Session(std::shared_ptr<Engine> engine, SessionState state, ExpertHistory history)
    : engine_(std::move(engine)), state_(std::move(state)), history_(std::move(history)) {}

// The engine is assigned last: this session may hold its last reference, and the old blocks return to its
// pool.
Session& Session::operator=(Session&& other) noexcept {
  history_ = std::move(other.history_);
  checkpoints_ = std::move(other.checkpoints_);
  state_ = std::move(other.state_);
  engine_ = std::move(other.engine_);
  return *this;
}

Result<StepStatistics> Session::extend(std::span<const TokenId> tokens, std::span<float> logits,
                                       const StepOptions& options) {
  return extend(tokens, logits, ExtendOptions{.step = options},
                [](const StepStatistics&) { return Status(); });
}

Result<StepStatistics> Session::extend(std::span<const TokenId> tokens, std::span<float> logits,
                                       const ExtendOptions& options, StepProgress progress) {
  if (tokens.empty()) return StepStatistics();
  MF_TRY_STATUS(engine_->check_tokens(position(), tokens));
  ExtendOptions affordable = options;
  MF_TRY_STATUS(reserve(tokens.size(), affordable));
  return run_steps(tokens, logits, affordable, progress);
}

Result<StepStatistics> Session::replace_after(std::uint32_t kept, std::span<const TokenId> tokens,
                                              std::span<float> logits, const ExtendOptions& options,
                                              StepProgress progress) {
  MF_REQUIRE(kept <= position(), "a session keeps positions that it has");
  if (kept == position()) return extend(tokens, logits, options, progress);
  MF_TRY_STATUS(engine_->check_tokens(kept, tokens));
  const StateShape& shape = state_.shape();
  const std::uint64_t needed_bytes =
      shape.kv_bytes(kept + std::uint64_t{tokens.size()}) + shape.recurrent_block_bytes();
  if (needed_bytes > engine_->state_pool().budget_bytes())
    return Error(ErrorCode::out_of_memory,
                 fmt::format("{} tokens at position {} need {} for the session's state; the budget is {}",
                             tokens.size(), kept, human_bytes(needed_bytes),
                             human_bytes(engine_->state_pool().budget_bytes())));
  MF_TRY(Replay replay, plan_replay(kept));
  replay.tokens.insert(replay.tokens.end(), tokens.begin(), tokens.end());
  go_back_to_begin(replay);
  checkpoints_.drop_after(kept);
  ExtendOptions affordable = options;
  MF_TRY_STATUS(reserve(replay.tokens.size(), affordable));
  return run_steps(replay.tokens, logits, affordable, progress);
}

std::size_t Session::rows_per_step(const ExtendOptions& options) const {
  const std::size_t most = engine_->options().step_rows;
  if (options.logits_of_step.empty()) return most;
  return std::min(most, options.logits_of_step.size() / engine_->config().vocabulary);
}

Status Session::reserve(std::size_t rows, ExtendOptions& options) {
  const std::uint64_t end = position() + std::uint64_t{rows};
  for (;;) {
    const bool has_checkpoint = options.checkpoint_at > position() && options.checkpoint_at < end;
    const std::uint64_t steps = divide_up(rows, rows_per_step(options)) + (has_checkpoint ? 1 : 0);
    Status reserved = engine_->reserve(*this, rows, steps, has_checkpoint ? 1 : 0);
    if (reserved || reserved.error().code() != ErrorCode::out_of_memory) return reserved;
    if (has_checkpoint)
      options.checkpoint_at = 0;
    else if (!checkpoints_.evict_one())
      return reserved;
  }
}

Result<StepStatistics> Session::run_steps(std::span<const TokenId> tokens, std::span<float> logits,
                                          const ExtendOptions& options, StepProgress progress) {
  const std::size_t vocabulary = engine_->config().vocabulary;
  const std::span<float> every_row = options.logits_of_step;
  MF_REQUIRE(logits.empty() || logits.size() == vocabulary, "room for one row of logits");
  MF_REQUIRE(every_row.empty() || (logits.empty() && every_row.size() >= vocabulary),
             "the logits of every row or of the last, and room for at least one row");
  const std::size_t most_rows = rows_per_step(options);

  StepStatistics total;
  const std::uint64_t end = position() + std::uint64_t{tokens.size()};
  while (position() < end) {
    const std::uint64_t step_end =
        options.checkpoint_at > position() && options.checkpoint_at < end ? options.checkpoint_at : end;
    const auto rows = std::min<std::size_t>(step_end - position(), most_rows);
    Segment segment{this, tokens.first(rows), WantedLogits::none, {}};
    if (!every_row.empty()) {
      segment.logits = WantedLogits::all;
      segment.out = every_row.first(rows * vocabulary);
    } else if (rows == tokens.size() && !logits.empty()) {
      segment.logits = WantedLogits::last;
      segment.out = logits;
    }
    MF_TRY(const StepStatistics statistics, engine_->step({&segment, 1}, options.step));
    total += statistics;
    tokens = tokens.subspan(rows);
    if (position() == options.checkpoint_at && !tokens.empty()) checkpoint();
    if (Status goes_on = progress(statistics); !goes_on) {
      engine_->abandon(*this);
      return std::move(goes_on).error();
    }
  }
  return total;
}

Status Session::expect_position(std::uint32_t position) const {
  if (position == this->position()) return {};
  return Error(ErrorCode::position_mismatch,
               fmt::format("the session is at position {}, expected {}", this->position(), position));
}

void Session::clear() {
  state_.clear();
  checkpoints_.clear();
  history_.forget();
}

void Session::checkpoint() { checkpoints_.keep(snapshot()); }

Status Session::restore_to(std::uint32_t position) {
  const Snapshot* const kept = checkpoints_.find(position);
  if (kept == nullptr)
    return Error(ErrorCode::no_checkpoint, fmt::format("no checkpoint at position {}", position));
  state_.restore(*kept);
  history_.forget();
  checkpoints_.drop_after(position);
  return {};
}

Result<StepStatistics> Session::rewind(std::uint32_t position, const StepOptions& options) {
  const std::uint32_t now = this->position();
  if (position > now)
    return Error(ErrorCode::invalid_argument,
                 fmt::format("cannot go back to position {}: the session is at {}", position, now));
  if (position == now) return StepStatistics();
  MF_TRY(const Replay replay, plan_replay(position));
  if (replay.begin == position) {
    go_back_to_begin(replay);
    checkpoints_.drop_after(position);
    return StepStatistics();
  }
  const Snapshot before = snapshot();
  go_back_to_begin(replay);
  Result<StepStatistics> run = extend(replay.tokens, {}, options);
  if (!run) {
    state_.restore(before);
    return std::move(run).error().during(fmt::format("going back to position {}", position));
  }
  checkpoints_.drop_after(position);
  return run;
}

Result<Session::Replay> Session::plan_replay(std::uint32_t position) {
  if (state_.can_truncate()) return Replay{position, nullptr, {}};
  const Snapshot* const base = checkpoints_.deepest_up_to(position);
  Replay replay{base != nullptr ? base->position() : 0, base, {}};
  if (replay.begin == position) return replay;
  if (replay.begin < tokens_begin())
    return Error(ErrorCode::tokens_unknown, fmt::format("cannot go back to position {}: tokens before {} are "
                                                        "unknown, and the last checkpoint before it is at {}",
                                                        position, tokens_begin(), replay.begin));
  const auto again = tokens().subspan(replay.begin - tokens_begin(), position - replay.begin);
  replay.tokens.assign(again.begin(), again.end());
  return replay;
}

void Session::go_back_to_begin(const Replay& replay) {
  history_.forget();
  if (state_.can_truncate())
    state_.truncate(replay.begin);
  else if (replay.base != nullptr)
    state_.restore(*replay.base);
  else
    state_.clear();
}

Status Session::rewind_strict(std::uint32_t position) {
  const std::uint32_t now = this->position();
  if (position > now)
    return Error(ErrorCode::invalid_argument,
                 fmt::format("cannot go back to position {}: the session is at {}", position, now));
  if (position == now) return {};
  if (!state_.can_truncate() && position != 0)
    return Error(
        ErrorCode::cannot_truncate_recurrent,
        fmt::format(
            "a recurrent state at position {} cannot be truncated to {}; rewind() runs the tokens again", now,
            position));
  if (state_.can_truncate())
    state_.truncate(position);
  else
    state_.clear();
  checkpoints_.drop_after(position);
  history_.forget();
  return {};
}

Snapshot Session::snapshot() const { return state_.snapshot(engine_); }

Result<Session> Session::fork() const {
  MF_TRY(Session other, engine_->new_session());
  other.state_.restore(snapshot());
  other.history_ = history_;
  return other;
}

Status Session::restore(const Snapshot& snapshot) {
  if (snapshot.position() > context())
    return Error(ErrorCode::context_full,
                 fmt::format("a snapshot of {} positions does not fit into a context of {}",
                             snapshot.position(), context()));
  MF_REQUIRE(snapshot.contents().owner.get() == engine_.get(), "a snapshot of this session's engine");
  state_.restore(snapshot);
  checkpoints_.clear();
  history_.forget();
  return {};
}

SavedSession Session::to_save() const {
  return session_to_save(state_.shape(), snapshot(), checkpoints_.by_last_use());
}

Status Session::save(SnapshotSink sink) const {
  return write_snapshot(state_.shape(), engine_->snapshot_identity(), to_save(), sink);
}

Status Session::save(FileSystem& files, const std::filesystem::path& path) const {
  MF_TRY(const auto file, AtomicFile::begin(files, path));
  MF_TRY_STATUS(save([&](std::span<const std::byte> bytes) { return file->append(bytes); }));
  return file->commit();
}

std::uint64_t Session::saved_bytes() const { return snapshot_bytes(state_.shape(), to_save()); }

Status Session::load(std::span<const std::byte> bytes) { return load(MemoryFile(bytes)); }

Status Session::load(FileSystem& files, const std::filesystem::path& path) {
  MF_TRY(const auto file, files.open_read(path));
  Status loaded = load(*file);
  if (!loaded) return std::move(loaded).error().during(fmt::format("loading '{}'", path.native()));
  return {};
}

Result<SnapshotTokens> Session::read_tokens(FileSystem& files, const std::filesystem::path& path) const {
  MF_TRY(const auto file, files.open_read(path));
  Result<SnapshotTokens> tokens =
      read_snapshot_tokens(*file, engine_->config(), engine_->snapshot_identity().fingerprint, context());
  if (!tokens) return std::move(tokens).error().during(fmt::format("loading '{}'", path.native()));
  return tokens;
}

Result<StepStatistics> Session::replay(const SnapshotTokens& saved, const StepOptions& options,
                                       StepProgress progress) {
  MF_TRY_STATUS(engine_->check_tokens(0, saved.tokens));
  std::vector<std::uint32_t> checkpoints = saved.checkpoints;
  checkpoints.resize(std::min(checkpoints.size(), std::max<std::size_t>(checkpoints_.most(), 1)));
  std::ranges::sort(checkpoints);
  clear();
  StepStatistics total;
  const auto run_to = [&](std::size_t end) -> Status {
    const auto tokens = std::span(saved.tokens).first(end).subspan(position());
    MF_TRY(const StepStatistics run, extend(tokens, {}, ExtendOptions{.step = options}, progress));
    total += run;
    return {};
  };
  for (const std::uint32_t checkpoint_at : checkpoints) {
    MF_REQUIRE(checkpoint_at <= saved.tokens.size(), "a checkpoint is where there are tokens");
    MF_TRY_STATUS(run_to(checkpoint_at));
    checkpoint();
  }
  MF_TRY_STATUS(run_to(saved.tokens.size()));
  return total;
}

Status Session::load(const ReadFile& file) {
  // The newest checkpoint is kept whatever the maximum is.
  MF_TRY(SavedSession saved,
         read_snapshot(file, {.config = engine_->config(),
                              .identity = engine_->snapshot_identity(),
                              .pool = engine_->state_pool(),
                              .context = context(),
                              .owner = engine_,
                              .most_checkpoints = std::max<std::size_t>(checkpoints_.most(), 1)}));
  MF_TRY_STATUS(restore(saved.snapshot));
  for (std::size_t i = saved.checkpoints.size(); i-- > 0;) checkpoints_.keep(std::move(saved.checkpoints[i]));
  return {};
}

}  // namespace moeflux
