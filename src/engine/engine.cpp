#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/overloaded.h"
#include "base/sizes.h"
#include "base/tokens.h"
#include "engine/session.h"
#include "io/machine.h"
#include "io/parallel_read.h"

namespace moeflux {
namespace {

// Replaces the zeros of the options by their defaults and refuses what this build or this model does not
// have.
Result<EngineOptions> settle(const EngineOptions& asked, const ModelConfig& config, FileSystem& files) {
  EngineOptions options = asked;
  if (options.threads == 0) options.threads = read_machine(files).physical_cores;
  if (options.threads > kMaxEngineThreads)
    return Error(ErrorCode::invalid_argument,
                 fmt::format("{} threads: an engine takes at most {}", options.threads, kMaxEngineThreads));
  if (options.context == 0) options.context = std::min(kDefaultContext, config.max_positions);
  if (options.context > config.max_positions)
    return Error(ErrorCode::invalid_argument, fmt::format("a context of {} exceeds the model's own of {}",
                                                          options.context, config.max_positions));
  if (options.step_rows == 0)
    return Error(ErrorCode::invalid_argument, "step_rows is 0; a step needs at least one row");
  options.step_rows = std::min(options.step_rows, kMaxStepRows);
  std::uint32_t most_experts = 0;
  for (const LayerConfig& layer : config.layers) {
    const auto* moe = std::get_if<MoeConfig>(&layer.mlp);
    if (moe == nullptr) continue;
    if (options.experts_per_token > moe->experts_per_token)
      return Error(ErrorCode::invalid_argument,
                   fmt::format("{} experts per token exceed the model's own {}", options.experts_per_token,
                               moe->experts_per_token));
    most_experts = std::max(most_experts, moe->experts_per_token);
  }
  if (options.experts_per_token == 0) options.experts_per_token = most_experts;
  return options;
}

const RopeConfig* rope_of(const MixerConfig& mixer) {
  return std::visit(overloaded{
                        [](const GatedDeltaNetConfig&) -> const RopeConfig* { return nullptr; },
                        [](const GatedAttentionConfig& attention) { return &attention.rope; },
                        [](const MlaConfig& mla) { return &mla.rope; },
                    },
                    mixer);
}

}  // namespace

Engine::Engine(PackedModel model, const KernelTable& kernels, const EngineOptions& options)
    : model_(std::move(model)),
      kernels_(&kernels),
      options_(options),
      state_pool_(BlockPool::kNoBudget),
      pool_(options.threads) {}

Engine::~Engine() = default;

Result<std::shared_ptr<Engine>> Engine::open(FileSystem& files, PackedModel model,
                                             const EngineOptions& options) {
  MF_TRY(const KernelTable* const kernels, select_kernels(options.isa));
  MF_TRY(EngineOptions settled, settle(options, model.config(), files));
  settled.isa = kernels->name;
  std::shared_ptr<Engine> engine(new Engine(std::move(model), *kernels, settled));
  MF_TRY_STATUS(engine->make_layers());
  MF_TRY(engine->memory_plan_, engine->plan_memory(files));
  MF_TRY_STATUS(engine->memory_plan_.check());
  engine->state_pool_.set_budget_bytes(engine->state_budget_bytes());
  MF_TRY_STATUS(engine->load_weights());
  MF_TRY_STATUS(engine->make_executor());
  return engine;
}

// The layers are views of memory that is only reserved: nothing is read and no page is touched before the
// memory plan is known to fit.
Status Engine::make_layers() {
  MF_TRY(weights_, HugeBuffer::create(model_.manifest().resident_bytes));
  const Weights weights(model_, std::as_const(weights_).bytes());
  std::vector<RopeConfig> rope_configs;  // layers with the same rope share its tables
  layers_.reserve(config().layers.size());
  for (std::uint32_t i = 0; i < config().layers.size(); ++i) {
    std::size_t rope = 0;
    if (const RopeConfig* wanted = rope_of(config().layers[i].mixer)) {
      rope = static_cast<std::size_t>(std::ranges::find(rope_configs, *wanted) - rope_configs.begin());
      if (rope == rope_configs.size()) {
        rope_configs.push_back(*wanted);
        ropes_.emplace_back(*wanted);
      }
    }
    MF_TRY(DecoderLayer layer, DecoderLayer::create(config(), LayerId(i), rope, weights.of_layer(i)));
    layers_.push_back(std::move(layer));
  }
  embedding_ = weights.matrix("embed_tokens");
  head_ = config().tied_embeddings ? embedding_ : weights.matrix("lm_head");
  final_norm_ = weights.vector("norm");
  for (const LayerConfig& layer : config().layers)
    if (const auto* moe = std::get_if<MoeConfig>(&layer.mlp);
        moe != nullptr && moe->experts > all_experts_.size())
      all_experts_.resize(moe->experts);
  std::iota(all_experts_.begin(), all_experts_.end(), 0u);
  return {};
}

Result<MemoryPlan> Engine::plan_memory(FileSystem& files) const {
  MemoryPlan plan;
  plan.weights_bytes = model_.manifest().resident_bytes;
  for (const DecoderLayer& layer : layers_) plan.derived_bytes += layer.derived_bytes();
  // A session has the recurrent states of its position and of the step that runs, and its checkpoints.
  const StateShape shape = state_shape_of(config(), options_.kv_dtype);
  plan.kv_bytes = options_.sessions * shape.kv_bytes(options_.context);
  plan.recurrent_bytes = options_.sessions * (2 + Checkpoints::kDefaultMost) * shape.recurrent_block_bytes();
  std::uint64_t states = BlockPool::budget_for(plan.state_bytes(), shape.block_sizes());
  if (options_.kv_budget_bytes != 0) states = std::min(states, options_.kv_budget_bytes);
  plan.recurrent_bytes = std::min(plan.recurrent_bytes, states);
  plan.kv_bytes = states - plan.recurrent_bytes;
  MF_TRY(plan.workspace_bytes, measure_workspace());
  plan.usable_bytes = options_.usable_memory_bytes != 0 ? options_.usable_memory_bytes
                                                        : read_machine(files).usable_memory_bytes();
  plan.experts_bytes =
      options_.experts ? options_.experts_bytes : ExpertStore::bytes_of(model_, expert_budget_bytes(plan));
  return plan;
}

std::uint64_t Engine::state_budget_bytes() const {
  const MemoryPlan& plan = memory_plan_;
  if (options_.kv_budget_bytes != 0) return options_.kv_budget_bytes;
  if (plan.usable_bytes == 0) return BlockPool::kNoBudget;
  const std::uint64_t taken = plan.total_bytes() + reserve_bytes(plan.usable_bytes);
  return plan.state_bytes() + (plan.usable_bytes > taken ? plan.usable_bytes - taken : 0);
}

Status Engine::load_weights() {
  MF_TRY_STATUS(read_in_parallel(model_.resident_file(), 0, weights_.bytes()));
  for (DecoderLayer& layer : layers_) layer.derive();
  return {};
}

Status Engine::make_executor() {
  const Lock lock(mutex_);
  MF_TRY(Workspace workspace, Workspace::create(memory_plan_.workspace_bytes));
  ops_ = std::make_unique<CpuOps>(pool_, *kernels_, std::move(workspace), options_.precision);
  outcomes_.resize(options_.step_rows);  // the most segments of a step
  MF_TRY_STATUS(open_experts());
  observed_experts_ = experts_.get();
  return {};
}

Result<Session> Engine::new_session() {
  MF_TRY(SessionState state,
         SessionState::create(config(), state_pool_, options_.context, options_.kv_dtype));
  return Session(shared_from_this(), std::move(state),
                 ExpertHistory(config().layers.size(), options_.experts_per_token));
}

SnapshotIdentity Engine::snapshot_identity() const {
  SnapshotIdentity identity;
  identity.fingerprint = model_.manifest().fingerprint;
  identity.precision = options_.precision == Precision::exact ? 0 : 1;
  identity.experts_per_token = options_.experts_per_token;
  identity.kv_dtype = static_cast<std::uint32_t>(options_.kv_dtype);
  return identity;
}

Status Engine::check_tokens(std::uint32_t position, std::span<const TokenId> tokens) const {
  MF_TRY_STATUS(check_vocabulary(tokens, config().vocabulary));
  if (position + std::uint64_t{tokens.size()} > options_.context)
    return Error(ErrorCode::context_full,
                 fmt::format("{} tokens at position {} do not fit into a context of {}", tokens.size(),
                             position, options_.context));
  return {};
}

Status Engine::check(std::span<const Segment> batch) const {
  if (batch.empty()) return Error(ErrorCode::invalid_argument, "a step needs at least one segment");
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const Segment& segment = batch[i];
    MF_REQUIRE(segment.session != nullptr && segment.session->engine_.get() == this,
               "a session is stepped by its own engine");
    for (std::size_t j = 0; j < i; ++j)
      if (batch[j].session == segment.session)
        return Error(ErrorCode::invalid_argument, "a session may appear only once in a batch");
    MF_REQUIRE(segment.out.size() == segment.logits_rows() * config().vocabulary,
               "room for the logits that are wanted");
  }
  return {};
}

Status Engine::check(const Segment& segment) const {
  if (segment.tokens.empty()) return Error(ErrorCode::invalid_argument, "a segment needs at least one token");
  return check_tokens(segment.session->position(), segment.tokens);
}

Status Engine::check_rows(std::span<const Segment> batch, std::span<const Status> outcomes) const {
  std::uint64_t rows = 0;
  for (std::size_t i = 0; i < batch.size(); ++i)
    if (outcomes[i]) rows += batch[i].tokens.size();
  if (rows <= options_.step_rows) return {};
  return Error(ErrorCode::invalid_argument,
               fmt::format("a step of {} rows exceeds step_rows, {}", rows, options_.step_rows));
}

Result<StepStatistics> Engine::step(std::span<const Segment> batch, const StepOptions& options) {
  const Lock lock(mutex_);
  if (outcomes_.size() < batch.size()) outcomes_.resize(batch.size());  // refused, unless a row has no tokens
  return begin_and_run(batch, std::span(outcomes_).first(batch.size()), Commit::all_or_none, options);
}

Result<StepStatistics> Engine::step_each(std::span<const Segment> batch, std::span<Status> outcomes,
                                         const StepOptions& options) {
  MF_REQUIRE(outcomes.size() == batch.size(), "an outcome per segment");
  const Lock lock(mutex_);
  return begin_and_run(batch, outcomes, Commit::each, options);
}

Result<StepStatistics> Engine::begin_and_run(std::span<const Segment> batch, std::span<Status> outcomes,
                                             Commit commit, const StepOptions& options) {
  MF_TRY_STATUS(check(batch));
  const auto first_failure = [&] {
    return std::ranges::find_if(outcomes, [](const Status& outcome) { return !outcome; });
  };
  const auto goes_on = [&] { return commit == Commit::each || first_failure() == outcomes.end(); };
  for (std::size_t i = 0; i < batch.size(); ++i) outcomes[i] = check(batch[i]);
  if (goes_on()) MF_TRY_STATUS(check_rows(batch, outcomes));
  for (std::size_t i = 0; i < batch.size() && goes_on(); ++i)
    if (outcomes[i]) outcomes[i] = begin(batch[i]);
  Result<StepStatistics> statistics = StepStatistics();
  const bool runs =
      goes_on() && std::ranges::any_of(outcomes, [](const Status& outcome) { return outcome.has_value(); });
  if (runs) statistics = run(batch, outcomes, commit, options);
  if (options_.after_step) options_.after_step();
  if (commit == Commit::all_or_none && first_failure() != outcomes.end()) {
    statistics = first_failure()->error();
    if (batch.size() > 1)
      statistics =
          std::move(statistics).error().during(fmt::format("segment {}", first_failure() - outcomes.begin()));
  }
  if (runs) count(statistics);
  for (std::size_t i = 0; i < batch.size(); ++i)
    if (!statistics || !outcomes[i]) batch[i].session->state_.abandon();
  return statistics;
}

Status Engine::begin(const Segment& segment) {
  Status begun;
  do {
    begun = segment.session->state_.begin_step(segment.tokens);
  } while (has_made_room(begun));
  return begun;
}

Status Engine::reserve(Session& session, std::size_t rows, std::uint64_t steps, std::uint64_t snapshots) {
  const Lock lock(mutex_);
  Status reserved;
  do {
    reserved = session.state_.reserve(static_cast<std::uint32_t>(rows), steps, snapshots);
  } while (has_made_room(reserved));
  return reserved;
}

bool Engine::has_made_room(const Status& reserved) const {
  return !reserved && reserved.error().code() == ErrorCode::out_of_memory && options_.release_snapshots &&
         options_.release_snapshots();
}

void Engine::abandon(Session& session) {
  const Lock lock(mutex_);
  session.state_.abandon();
}

Result<StepStatistics> Engine::run(std::span<const Segment> batch, std::span<Status> outcomes, Commit commit,
                                   const StepOptions& options) {
  Ops& ops = *ops_;
  const Ops::Scope scope(ops);
  const OpsCounters ops_before = ops.counters();
  const ExpertCounters experts_before = experts_->counters();
  const ExpertStatistics streamed_before = experts_->statistics();
  const TraceClock::time_point began = TraceClock::now();

  const auto begun =
      std::ranges::count_if(outcomes, [](const Status& outcome) { return outcome.has_value(); });
  const std::span<StepSegment> segments = ops.take_host<StepSegment>(static_cast<std::size_t>(begun));
  std::size_t count = 0;
  std::uint32_t rows = 0;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (!outcomes[i]) continue;
    Session& session = *batch[i].session;
    segments[count] = {.state = &session.state_,
                       .history = &session.history_,
                       .tokens = batch[i].tokens,
                       .first_row = rows,
                       .position = session.position(),
                       .logits_rows = static_cast<std::uint32_t>(batch[i].logits_rows()),
                       .logits = batch[i].out,
                       .cancel = batch[i].cancel,
                       .outcome = &outcomes[i]};
    rows += segments[count++].rows();
  }
  Step step = step_over(ops, *experts_, segments);
  step.options = options;
  step.all_or_none = commit == Commit::all_or_none;
  hint_experts(step);
  MF_TRY_STATUS(forward(step, segments));
  for (std::size_t i = 0; i < batch.size(); ++i)
    if (outcomes[i]) batch[i].session->state_.commit();

  StepStatistics statistics;
  statistics.rows = rows;
  statistics.matrix_calls = ops.counters().matrix_calls - ops_before.matrix_calls;
  statistics.expert_visits = ops.counters().expert_visits - ops_before.expert_visits;
  statistics.fetches = experts_->counters().fetches - experts_before.fetches;
  statistics.experts_served = experts_->counters().served - experts_before.served;
  statistics.experts = experts_->statistics() - streamed_before;
  const TraceClock::time_point ended = TraceClock::now();
  statistics.took = ended - began;
  if (options_.trace != nullptr)
    options_.trace->add({.name = "step", .track = TraceTrack::step, .begin = began, .end = ended});
  return statistics;
}

}  // namespace moeflux
