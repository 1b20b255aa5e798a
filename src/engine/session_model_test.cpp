// Model-based tests: any sequence of operations on a session leads to the state that a list of tokens and a
// map of checkpoints predict.
//
// Random sequences of operations run on a session and on a model that only keeps tokens. Both are compared
// after each operation; sometimes the session's next logits are compared with those of a fresh session. Runs
// are reproducible; set GTEST_RANDOM_SEED=N for another seed.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/testing/test_models.h"
#include "model/testing/tiny_packed_model.h"

namespace moeflux {
namespace {

constexpr std::uint32_t kContext = 300;  // more than a block
constexpr std::uint32_t kStepRows = 16;
constexpr int kSequences = 300;
constexpr int kOperations = 60;

// The model: a session as its caller sees it.
struct PlainSession {
  struct Kept {
    Tokens tokens;
    std::uint64_t last_use;
  };
  Tokens tokens;
  std::map<std::uint32_t, Kept> checkpoints;
  std::uint64_t clock = 0;
  std::size_t most = 4;

  std::uint32_t position() const { return static_cast<std::uint32_t>(tokens.size()); }

  void become(Tokens others) {
    tokens = std::move(others);
    checkpoints.clear();
  }
  void cut(std::uint32_t position) {
    tokens.resize(position, TokenId(0));
    checkpoints.erase(checkpoints.upper_bound(position), checkpoints.end());
  }

  void checkpoint() { keep(tokens); }
  void keep(const Tokens& up_to) {
    const auto newest = static_cast<std::uint32_t>(up_to.size());
    checkpoints[newest] = {up_to, ++clock};
    while (checkpoints.size() > most) {
      std::optional<std::uint32_t> oldest;
      for (const auto& [at, kept] : checkpoints) {
        const bool is_protected = at == 0 || at == newest;
        if (!is_protected && (!oldest || kept.last_use < checkpoints[*oldest].last_use)) oldest = at;
      }
      if (!oldest) return;
      checkpoints.erase(*oldest);
    }
  }
  void restore_to(std::uint32_t position) {
    Kept& kept = checkpoints.at(position);
    kept.last_use = ++clock;
    tokens = kept.tokens;
    cut(position);
  }
  // Becomes a session that was saved; its checkpoints are kept in the order of their last use.
  void load(const PlainSession& saved) {
    become(saved.tokens);
    std::map<std::uint64_t, const Tokens*> by_use;
    for (const auto& [at, kept] : saved.checkpoints) by_use[kept.last_use] = &kept.tokens;
    for (const auto& [use, up_to] : by_use) keep(*up_to);
  }
  // The checkpoint that a rewind starts from. The lookup counts as use even if the rewind fails.
  void use_deepest_up_to(std::uint32_t position) {
    const auto after = checkpoints.upper_bound(position);
    if (after != checkpoints.begin()) std::prev(after)->second.last_use = ++clock;
  }
};

// The logits of fresh sessions, each computed once.
class FreshSessions {
 public:
  explicit FreshSessions(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}
  const Logits& after(const Tokens& tokens) {
    Logits& logits = known_[tokens];
    if (logits.empty()) logits = fresh_logits(*engine_, tokens);
    return logits;
  }
  Engine& engine() { return *engine_; }

 private:
  std::shared_ptr<Engine> engine_;
  std::map<Tokens, Logits> known_;
};

// Runs one sequence of operations.
class Walk {
 public:
  Walk(Engine& engine, FailingExperts::Control& control, FreshSessions& fresh, std::uint32_t seed)
      : engine_(engine),
        control_(control),
        fresh_(fresh),
        random_(seed),
        is_recurrent_(state_shape_of(engine.config()).recurrent_size != 0),
        session_(new_session(engine)) {}

  // Counted from the beginning or from the end of the first block.
  void run(int operations, bool at_a_border) {
    if (at_a_border) extend_by(240 + below(20), Disturbance::none);
    for (int i = 0; i < operations; ++i) {
      operate();
      compare();
      if (below(3) == 0) probe();
      if (testing::Test::HasFailure()) {
        ADD_FAILURE() << "after " << fmt::format("{}", fmt::join(history_, ", "));
        return;
      }
    }
    probe();
  }

 private:
  std::uint32_t below(std::uint32_t end) { return static_cast<std::uint32_t>(random_() % end); }
  void note(std::string what) { history_.push_back(std::move(what)); }
  BlockPool& pool() { return engine_.state_pool(); }

  void operate() {
    switch (below(20)) {
      case 0:
      case 1:
      case 2:
      case 3: return extend(Disturbance::none);
      case 4: return extend(Disturbance::fault);
      case 5: return extend(Disturbance::cancel);
      case 6:
      case 7: return rewind(Disturbance::none);
      case 8: return rewind(Disturbance::fault);
      case 9: return rewind(Disturbance::cancel);
      case 10: return rewind_strictly();
      case 11:
      case 12:
      case 13: return checkpoint();
      case 14: return restore_to();
      case 15: return fork();
      case 16: return save();
      case 17: return load();
      case 18: return below(3) == 0 ? clear() : set_max_checkpoints();
      case 19: return below(2) == 0 ? take_snapshot() : restore_snapshot();
      default: FAIL();
    }
  }

  void compare() {
    EXPECT_EQ(session_.position(), plain_.position());
    EXPECT_TRUE(std::ranges::equal(session_.tokens(), plain_.tokens));
    EXPECT_EQ(session_.checkpoint_count(), plain_.checkpoints.size());
    // Equal counts, and none where the model has none, so they are the same.
    for (const std::uint32_t position : ever_kept_)
      if (!plain_.checkpoints.contains(position)) {
        EXPECT_TRUE(fails_with(session_.restore_to(position), ErrorCode::no_checkpoint));
      }
  }

  void probe() {
    if (plain_.position() == kContext) return;
    const Tokens one = {TokenId(7)};
    EXPECT_TRUE(same_bits(logits_ahead(session_, one), fresh_.after(joined(plain_.tokens, one))));
  }

  enum class Disturbance { none, fault, cancel };

  // Runs an operation that may fail or be cancelled; the caller checks how far it came.
  template <class Function>
  auto disturbed(Disturbance kind, Function function) {
    std::atomic<bool> flag = false;
    CountingObserver observer(flag, 1 + below(6));
    StepOptions options;
    if (kind == Disturbance::cancel) options = {.observer = &observer, .cancel = &flag};
    if (kind == Disturbance::fault) control_.fail_at = control_.calls + below(20);
    auto result = function(options);
    control_.fail_at = FailingExperts::kNever;
    return result;
  }
  static ErrorCode code_of(Disturbance kind) {
    return kind == Disturbance::fault ? ErrorCode::io_failed : ErrorCode::cancelled;
  }

  void extend(Disturbance kind) { extend_by(1 + below(below(5) == 0 ? 40 : 6), kind); }

  void extend_by(std::uint32_t count, Disturbance kind) {
    Tokens tokens;
    for (std::uint32_t i = 0; i < count; ++i) tokens.emplace_back(below(engine_.config().vocabulary));
    note(fmt::format("extend by {}{}", count, kind == Disturbance::none ? "" : " or not"));
    const auto result =
        disturbed(kind, [&](const StepOptions& options) { return session_.extend(tokens, {}, options); });
    const std::uint32_t before = plain_.position(), done = session_.position() - before;
    if (result) {
      EXPECT_EQ(done, count);
    } else {  // whole steps are committed, the failed one is not
      const bool is_full = before + count > kContext;
      ASSERT_LT(done, is_full ? 1 : count);
      EXPECT_EQ(done % kStepRows, 0u);
      EXPECT_TRUE(is_full || kind != Disturbance::none);
      EXPECT_TRUE(fails_with(result, is_full ? ErrorCode::context_full : code_of(kind)));
    }
    plain_.tokens = joined(plain_.tokens, std::span(tokens).first(done));
  }

  // A few positions back, anywhere, or one position ahead.
  std::uint32_t some_place() {
    const std::uint32_t now = plain_.position();
    return below(3) == 0 ? below(now + 2) : now - std::min(now, below(20));
  }

  void rewind(Disturbance kind) {
    const std::uint32_t now = plain_.position(), position = some_place();
    note(fmt::format("rewind from {} to {}{}", now, position, kind == Disturbance::none ? "" : " or not"));
    const Result<StepStatistics> result =
        disturbed(kind, [&](const StepOptions& options) { return session_.rewind(position, options); });
    if (position > now) {
      EXPECT_TRUE(fails_with(result, ErrorCode::invalid_argument));
      return;
    }
    if (is_recurrent_ && position < now) plain_.use_deepest_up_to(position);
    if (result)
      plain_.cut(position);
    else
      EXPECT_TRUE(is_recurrent_ && kind != Disturbance::none && fails_with(result, code_of(kind)));
  }

  void rewind_strictly() {
    const std::uint32_t now = plain_.position(), position = below(5) == 0 ? 0 : some_place();
    note(fmt::format("rewind strictly from {} to {}", now, position));
    const std::uint64_t calls = control_.calls;
    const Status result = session_.rewind_strict(position);
    EXPECT_EQ(control_.calls, calls);
    if (position > now)
      EXPECT_TRUE(fails_with(result, ErrorCode::invalid_argument));
    else if (is_recurrent_ && position != 0 && position != now)
      EXPECT_TRUE(fails_with(result, ErrorCode::cannot_truncate_recurrent));
    else if (is_done(result))
      plain_.cut(position);
  }

  void checkpoint() {
    note(fmt::format("checkpoint at {}", plain_.position()));
    const std::uint64_t copied = pool().copied_bytes();
    session_.checkpoint();
    EXPECT_EQ(pool().copied_bytes(), copied);
    plain_.checkpoint();
    ever_kept_.insert(plain_.position());
  }

  void restore_to() {
    if (plain_.checkpoints.empty()) return;
    const auto which =
        std::next(plain_.checkpoints.begin(), below(static_cast<std::uint32_t>(plain_.checkpoints.size())));
    const std::uint32_t position = which->first;
    note(fmt::format("restore to {}", position));
    EXPECT_TRUE(succeeds(session_.restore_to(position)));
    plain_.restore_to(position);
  }

  // Continues with the fork, or with a session that is moved from this one.
  void fork() {
    note("fork");
    const std::uint64_t copied = pool().copied_bytes(), used = pool().used_bytes();
    Session fork = fork_of(session_);
    EXPECT_EQ(pool().copied_bytes(), copied);
    EXPECT_EQ(pool().used_bytes(), used);
    continue_with(std::move(fork), plain_.tokens);
  }

  void continue_with(Session other, Tokens tokens) {
    session_ = std::move(other);
    plain_ = {};
    plain_.tokens = std::move(tokens);
  }

  void save() {
    note(fmt::format("save at {}", plain_.position()));
    saved_.emplace(saved(session_), plain_);
    EXPECT_EQ(saved_->first.size(), session_.saved_bytes());
    if (below(2) == 0) load();
  }

  // Loads the last save, possibly of an older state or damaged, into this session or a new one. The maximum
  // number of checkpoints may have changed since.
  void load() {
    if (!saved_) return;
    auto& [bytes, plain] = *saved_;
    if (below(5) == 0) {
      note("load what is damaged");
      std::byte& damaged = bytes[below(static_cast<std::uint32_t>(bytes.size()))];
      damaged ^= std::byte{4};
      EXPECT_FALSE(session_.load(bytes));
      damaged ^= std::byte{4};
    } else if (below(2) == 0) {
      note("load");
      EXPECT_TRUE(succeeds(session_.load(bytes)));
      plain_.load(plain);
    } else {
      note("load elsewhere");
      Session other = new_session(engine_);
      EXPECT_TRUE(succeeds(other.load(bytes)));
      session_ = std::move(other);
      plain_ = {};
      plain_.load(plain);
    }
  }

  void clear() {
    note("clear");
    session_.clear();
    plain_.become({});
  }

  void set_max_checkpoints() {
    plain_.most = below(6);
    note(fmt::format("keep at most {}", plain_.most));
    session_.set_max_checkpoints(plain_.most);
  }

  void take_snapshot() {
    note(fmt::format("snapshot at {}", plain_.position()));
    snapshot_.emplace(session_.snapshot(), plain_.tokens);
  }

  void restore_snapshot() {
    if (!snapshot_) return;
    note("restore the snapshot");
    EXPECT_TRUE(succeeds(session_.restore(snapshot_->first)));
    plain_.become(snapshot_->second);
  }

  static bool is_done(const Status& status) {
    EXPECT_TRUE(succeeds(status));
    return status.has_value();
  }

  Engine& engine_;
  FailingExperts::Control& control_;
  FreshSessions& fresh_;
  std::mt19937 random_;
  const bool is_recurrent_;
  Session session_;
  PlainSession plain_;
  std::set<std::uint32_t> ever_kept_;
  std::optional<std::pair<std::vector<std::byte>, PlainSession>> saved_;
  std::optional<std::pair<Snapshot, Tokens>> snapshot_;
  std::vector<std::string> history_;
};

class SessionsAndTheirModel : public testing::TestWithParam<const char*> {
 protected:
  ModelOnDisk model{std::string(GetParam()) == "qwen" ? tiny_qwen_config() : tiny_deepseek_config()};
};
INSTANTIATE_TEST_SUITE_P(, SessionsAndTheirModel, testing::Values("qwen", "deepseek"),
                         [](const auto& name) { return std::string(name.param); });

TEST_P(SessionsAndTheirModel, AgreeAfterEveryOperation) {
  const auto base = static_cast<std::uint32_t>(GTEST_FLAG_GET(random_seed));
  FailingExperts::Control control;
  const auto engine = model.open({.threads = 1, .context = kContext, .step_rows = kStepRows}, control);
  FreshSessions fresh(model.open({.threads = 1, .context = kContext}));
  for (int sequence = 0; sequence < kSequences; ++sequence) {
    Walk(*engine, control, fresh, base * 100'000 + static_cast<std::uint32_t>(sequence))
        .run(kOperations, sequence % 8 == 7);
    EXPECT_EQ(engine->state_pool().used_bytes(), 0u);
    if (HasFailure()) FAIL() << "sequence " << sequence << " of GTEST_RANDOM_SEED=" << base;
  }
}

}  // namespace
}  // namespace moeflux
