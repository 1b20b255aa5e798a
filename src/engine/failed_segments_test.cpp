// Segments that fail or are cancelled alone: the others of their step commit, with the bits of a run alone.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/testing/expect_contract.h"
#include "engine/testing/test_models.h"
#include "layers/weights.h"

namespace moeflux {
namespace {

using test::States;

enum class Fate { succeeds, has_bad_token, leaves_context, lacks_memory, is_not_finite, is_cancelled };
constexpr std::array kFates{Fate::succeeds,     Fate::has_bad_token, Fate::leaves_context,
                            Fate::lacks_memory, Fate::is_not_finite, Fate::is_cancelled};

ErrorCode code_of(Fate fate) {
  switch (fate) {
    case Fate::succeeds: break;
    case Fate::has_bad_token: return ErrorCode::token_out_of_range;
    case Fate::leaves_context: return ErrorCode::context_full;
    case Fate::lacks_memory: return ErrorCode::out_of_memory;
    case Fate::is_not_finite: return ErrorCode::corrupt_data;
    case Fate::is_cancelled: return ErrorCode::cancelled;
  }
  return ErrorCode::unsupported;
}

// What happens to a segment, and before or in which layer.
struct Plan {
  Fate fate = Fate::succeeds;
  std::uint32_t layer = 0;  // is_not_finite: 1 or later; is_cancelled: the last layer that runs
  bool runs_in(std::uint32_t at) const {
    if (fate == Fate::succeeds) return true;
    return (fate == Fate::is_not_finite || fate == Fate::is_cancelled) && at <= layer;
  }
};

constexpr std::uint32_t kContext = 600;
// Sessions begin near the end of a block of keys and values: few tokens fit into it, kMany do not.
constexpr std::uint32_t kStart = 230;
constexpr std::uint32_t kMany = 30;

// Takes the memory that a pool has, except for a recurrent block per session.
class Pressure {
 public:
  Pressure(BlockPool& pool, const StateShape& shape, std::size_t sessions) : pool_(pool) {
    std::vector<BlockRef> spare;
    for (std::size_t i = 0; i < sessions && shape.recurrent_size != 0; ++i)
      spare.push_back(*pool.acquire(shape.recurrent_bytes()));
    pool.set_budget_bytes(pool.slab_bytes());
    for (const KvShape& kv : shape.kv)
      if (kv.heads != 0) hold_all(kv.block_bytes());
    if (shape.recurrent_size != 0) hold_all(shape.recurrent_bytes());
  }
  ~Pressure() { pool_.set_budget_bytes(BlockPool::kNoBudget); }

 private:
  void hold_all(std::size_t size) {
    while (Result<BlockRef> block = pool_.acquire(size)) held_.push_back(*std::move(block));
  }

  BlockPool& pool_;
  std::vector<BlockRef> held_;
};

// The sessions of an engine, each with the tokens that a plain model says it has.
class Sessions {
 public:
  Sessions(Engine& engine, std::size_t count, std::uint32_t seed) : engine_(engine), random_(seed) {
    for (std::size_t i = 0; i < count; ++i) {
      sessions_.push_back(new_session(engine));
      tokens_.push_back(random_tokens(engine, kStart + i, seed + static_cast<std::uint32_t>(i)));
      EXPECT_TRUE(succeeds(sessions_[i].extend(tokens_[i])));
    }
    flags_ = std::deque<std::atomic<bool>>(count);
  }

  // Runs a step of one segment per plan and compares everything with the model.
  void step(const std::vector<Plan>& plans) {
    std::vector<Tokens> tokens;
    std::vector<Segment> batch;
    std::vector<Logits> logits(plans.size(), Logits(engine_.config().vocabulary));
    for (std::size_t i = 0; i < plans.size(); ++i) {
      tokens.push_back(tokens_of(plans[i].fate));
      flags_[i] = false;
    }
    std::optional<Pressure> pressure;
    if (std::ranges::any_of(plans, [](const Plan& plan) { return plan.fate == Fate::lacks_memory; }))
      pressure.emplace(engine_.state_pool(), state_shape_of(engine_.config()), plans.size());
    for (std::size_t i = 0; i < plans.size(); ++i)
      batch.push_back({&sessions_[i], tokens[i], WantedLogits::last, logits[i], &flags_[i]});
    Director director(*this, plans, batch);
    std::vector<Status> outcomes(batch.size());
    const Result<StepStatistics> done = engine_.step_each(batch, outcomes, {.observer = &director});
    pressure.reset();
    ASSERT_TRUE(succeeds(done));
    for (std::size_t i = 0; i < plans.size(); ++i) {
      SCOPED_TRACE(fmt::format("segment {}", i));
      if (plans[i].fate == Fate::succeeds) {
        ASSERT_TRUE(succeeds(outcomes[i]));
        tokens_[i].insert(tokens_[i].end(), tokens[i].begin(), tokens[i].end());
        EXPECT_TRUE(same_bits(logits[i], fresh_logits(engine_, tokens_[i])));
      } else {
        ASSERT_FALSE(outcomes[i]);
        EXPECT_EQ(name_of(outcomes[i].error().code()), name_of(code_of(plans[i].fate)));
        if (plans[i].fate == Fate::is_not_finite) {
          EXPECT_THAT(outcomes[i], States(fmt::format("layer {}", plans[i].layer), "row 0"));
        }
      }
      EXPECT_TRUE(std::ranges::equal(sessions_[i].tokens(), tokens_[i]));
    }
    EXPECT_EQ(director.wrong_rows, 0u) << "a layer computed rows of segments that had failed";
    std::uint64_t used = 0;
    for (const Session& session : sessions_)
      used += state_shape_of(engine_.config()).session_bytes(session.position());
    EXPECT_EQ(engine_.state_pool().used_bytes(), used) << "failed segments returned their blocks";
  }

  // Begins new sessions if one of them is near the end of its block.
  void restart_if_long() {
    for (std::size_t i = 0; i < sessions_.size(); ++i) {
      if (tokens_[i].size() + kMany / 10 < kKvBlockPositions) continue;
      sessions_[i].clear();
      tokens_[i].resize(kStart, TokenId(0));
      ASSERT_TRUE(succeeds(sessions_[i].extend(tokens_[i])));
    }
  }

  Session fork(std::size_t i) const { return fork_of(sessions_[i]); }

  // A step of `token` in session 0 and of `rows` rows, which are not finite from layer 0 on, in session 1.
  StepStatistics step_beside_a_spoiled_one(TokenId token, std::size_t rows) {
    const Tokens many = random_tokens(engine_, rows);
    const std::vector<Segment> batch{{&sessions_[0], {&token, 1}, WantedLogits::none, {}},
                                     {&sessions_[1], many, WantedLogits::none, {}}};
    const std::vector<Plan> plans{{}, {Fate::is_not_finite, 0}};
    Director director(*this, plans, batch);
    std::vector<Status> outcomes(2);
    const Result<StepStatistics> done = engine_.step_each(batch, outcomes, {.observer = &director});
    EXPECT_TRUE(succeeds(done));
    EXPECT_TRUE(succeeds(outcomes[0]));
    EXPECT_FALSE(outcomes[1]);
    return done ? *done : StepStatistics();
  }

  void expect_undisturbed() {
    for (std::size_t i = 0; i < sessions_.size(); ++i) {
      const Tokens next = random_tokens(engine_, 2, 99);
      EXPECT_TRUE(
          same_bits(logits_ahead(sessions_[i], next), fresh_logits(engine_, joined(tokens_[i], next))));
    }
  }

 private:
  // Spoils the rows of segments that shall not be finite, sets flags, and counts the rows of each layer.
  class Director : public IdleObserver {
   public:
    Director(Sessions& sessions, const std::vector<Plan>& plans, const std::vector<Segment>& batch)
        : sessions_(sessions), plans_(plans), batch_(batch) {}
    bool replace_residual(LayerId layer, std::span<float> rows, std::uint32_t cols) override {
      std::size_t first = 0;
      for (std::size_t i = 0; i < plans_.size(); ++i) {
        if (!plans_[i].runs_in(layer.index())) continue;
        if (plans_[i].fate == Fate::is_not_finite && plans_[i].layer == layer.index() && first < rows.size())
          rows[first + 3] = std::numeric_limits<float>::quiet_NaN();
        first += batch_[i].tokens.size() * cols;
      }
      if (first != rows.size()) ++wrong_rows;
      return true;
    }
    void saw(StepPoint point, LayerId layer, std::span<const float>, std::uint32_t) override {
      if (point != StepPoint::residual) return;
      for (std::size_t i = 0; i < plans_.size(); ++i)
        if (plans_[i].fate == Fate::is_cancelled && plans_[i].layer == layer.index())
          sessions_.flags_[i] = true;
    }
    std::size_t wrong_rows = 0;

   private:
    Sessions& sessions_;
    const std::vector<Plan>& plans_;
    const std::vector<Segment>& batch_;
  };

  Tokens tokens_of(Fate fate) {
    const auto seed = static_cast<std::uint32_t>(random_());
    Tokens tokens = random_tokens(engine_, fate == Fate::lacks_memory ? kMany : 1 + seed % 3, seed);
    if (fate == Fate::has_bad_token) tokens.back() = TokenId(engine_.config().vocabulary);
    if (fate == Fate::leaves_context) tokens = random_tokens(engine_, kContext, seed);
    return tokens;
  }

  Engine& engine_;
  std::mt19937 random_;
  std::vector<Session> sessions_;
  std::vector<Tokens> tokens_;
  std::deque<std::atomic<bool>> flags_;
};

class Segments : public OnSmallModels {
 protected:
  std::uint32_t layers() const { return static_cast<std::uint32_t>(config.layers.size()); }
  // The layer varies with the segment, so that several segments fail in different layers.
  Plan plan(Fate fate, std::size_t segment) const {
    const auto at = static_cast<std::uint32_t>(segment);
    if (fate == Fate::is_not_finite) return {fate, 1 + at % (layers() - 1)};
    if (fate == Fate::is_cancelled) return {fate, at % (layers() - 1)};
    return {fate, 0};
  }
};
INSTANTIATE_TEST_SUITE_P(, Segments, testing::Values("qwen", "deepseek"), name_of_model);

TEST_P(Segments, FailAloneInEveryOrderOfThreeFates) {
  const auto engine = model.open({.threads = 2, .context = kContext, .step_rows = 100});
  Sessions sessions(*engine, 3, 7);
  for (const Fate first : kFates)
    for (const Fate second : kFates)
      for (const Fate third : kFates) {
        SCOPED_TRACE(fmt::format("fates {}, {}, {}", static_cast<int>(first), static_cast<int>(second),
                                 static_cast<int>(third)));
        sessions.restart_if_long();
        sessions.step({plan(first, 0), plan(second, 1), plan(third, 2)});
        if (HasFailure()) return;
      }
  sessions.expect_undisturbed();
}

TEST_P(Segments, FailAloneInRandomStepsOfEightSessions) {
  const auto engine = model.open({.threads = 2, .context = kContext, .step_rows = 300});
  Sessions sessions(*engine, 8, 11);
  std::mt19937 random(12);
  for (int step = 0; step < 60 && !HasFailure(); ++step) {
    SCOPED_TRACE(fmt::format("step {}", step));
    std::vector<Plan> plans;
    for (std::size_t i = 0; i < 8; ++i)
      plans.push_back(plan(kFates[random() % 2 == 0 ? 0 : random() % kFates.size()], random() % 8));
    sessions.restart_if_long();
    sessions.step(plans);
  }
  sessions.expect_undisturbed();
}

TEST_P(Segments, MayAllFail) {
  const auto engine = model.open({.threads = 2, .context = kContext, .step_rows = 100});
  for (const Fate fate : kFates) {
    SCOPED_TRACE(static_cast<int>(fate));
    if (fate == Fate::succeeds) continue;
    Sessions sessions(*engine, 2, 3);
    sessions.step({plan(fate, 1), plan(fate, 1)});
    sessions.expect_undisturbed();
  }
}

TEST_P(Segments, ThatFailBeforeTheStepCountNoRows) {
  const auto engine = model.open({.threads = 1, .context = 20, .step_rows = 4});
  Session first = new_session(*engine), second = new_session(*engine);
  const Tokens few = random_tokens(*engine, 4), many = random_tokens(*engine, 30);
  const std::vector<Segment> batch{{&first, many, WantedLogits::none, {}},
                                   {&second, few, WantedLogits::none, {}}};
  std::vector<Status> outcomes(2);
  const Result<StepStatistics> done = engine->step_each(batch, outcomes);
  ASSERT_TRUE(succeeds(done));
  EXPECT_EQ(done->rows, 4u);
  EXPECT_TRUE(fails_with(outcomes[0], ErrorCode::context_full, "30 tokens"));
  EXPECT_EQ(second.position(), 4u);
}

TEST_P(Segments, AreNotReadAfterTheFirstOneFailsInAStepThatCommitsAllOrNone) {
  const auto engine = model.open({.threads = 1, .context = 20});
  Session first = new_session(*engine), second = new_session(*engine);
  const Tokens few = random_tokens(*engine, 4);
  const std::atomic<bool> cancel = true;
  const std::vector<Segment> batch{{&first, few, WantedLogits::none, {}},
                                   {&second, few, WantedLogits::none, {}, &cancel}};
  EXPECT_TRUE(fails_with(engine->step(batch), ErrorCode::cancelled, "segment 1"));
  EXPECT_EQ(first.position() + second.position(), 0u);
  EXPECT_EQ(engine->state_pool().used_bytes(), 0u);
}

TEST_P(Segments, FailForTheLastOutputOnlyIfTheyWantLogits) {
  const auto engine = model.open({.threads = 2, .context = 20});
  const std::span<const float> norm = Weights(engine->model(), engine->resident_weights()).vector("norm");
  const_cast<float&>(norm[1]) = std::numeric_limits<float>::quiet_NaN();
  Session first = new_session(*engine), second = new_session(*engine);
  const Tokens few = random_tokens(*engine, 4);
  Logits logits(config.vocabulary);
  const std::vector<Segment> batch{{&first, few, WantedLogits::last, logits},
                                   {&second, few, WantedLogits::none, {}}};
  std::vector<Status> outcomes(2);
  ASSERT_TRUE(succeeds(engine->step_each(batch, outcomes)));
  EXPECT_TRUE(fails_with(outcomes[0], ErrorCode::corrupt_data, "row 3"));
  EXPECT_TRUE(succeeds(outcomes[1]));
  EXPECT_EQ(first.position(), 0u);
  EXPECT_EQ(second.position(), 4u);
  EXPECT_TRUE(fails_with(engine->step(std::vector{batch[0]}), ErrorCode::corrupt_data));
}

// Experts are fetched for rows that go on, whatever the others chose.
TEST_P(Segments, ThatHaveFailedWantNoExpertsOfTheirOwn) {
  FailingExperts::Control control;
  const auto engine = model.open({.threads = 1, .context = kContext}, control);
  Sessions sessions(*engine, 2, 5);
  ChoiceObserver alone;
  {
    Session fork = sessions.fork(0);
    const TokenId token(3);
    const Segment segment{&fork, {&token, 1}, WantedLogits::none, {}};
    ASSERT_TRUE(succeeds(engine->step({&segment, 1}, {.observer = &alone})));
  }
  const StepStatistics statistics = sessions.step_beside_a_spoiled_one(TokenId(3), 20);
  EXPECT_EQ(statistics.experts_served, alone.distinct());
}

}  // namespace
}  // namespace moeflux
