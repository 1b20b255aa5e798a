// How an engine streams its experts: the size of their cache, the drive, and hints about the next step.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/sizes.h"
#include "engine/engine.h"
#include "experts/resident_experts.h"

namespace moeflux {
namespace {

// Bytes of the experts that one token visits.
std::uint64_t bytes_per_token(const PackedModel& model, std::uint32_t per_token) {
  std::uint64_t bytes = 0;
  for (const ExpertFile& file : model.manifest().experts) {
    std::uint64_t largest = 0;
    for (const ExpertRecord& record : file.records) largest = std::max(largest, record.bytes);
    bytes += largest * std::min<std::uint64_t>(per_token, file.records.size());
  }
  return bytes;
}

std::uint64_t all_expert_bytes(const PackedModel& model) {
  std::uint64_t bytes = 0;
  for (const ExpertFile& file : model.manifest().experts) bytes += file.bytes;
  return bytes;
}

std::size_t record_count(const PackedModel& model) {
  std::size_t count = 0;
  for (const ExpertFile& file : model.manifest().experts) count += file.records.size();
  return count;
}

// Confidence of the guess that a token chooses its predecessor's experts. Measured: about a third are chosen
// again.
constexpr float kPreviousConfidence = 0.35F;

}  // namespace

// `others`: the plan without experts. If the usable memory is unknown, the cache holds all experts.
std::uint64_t Engine::expert_budget_bytes(const MemoryPlan& others) const {
  if (options_.expert_cache_bytes != 0) return options_.expert_cache_bytes;
  if (others.usable_bytes == 0) return ExpertStore::bytes_of(model_, ~std::uint64_t{0});
  const std::uint64_t taken = others.total_bytes() + reserve_bytes(others.usable_bytes);
  const std::uint64_t left = others.usable_bytes > taken ? others.usable_bytes - taken : 0;
  return std::max(left, ExpertStore::least_bytes(model_));
}

ExpertStoreOptions Engine::store_options() const {
  const MemoryPlan& plan = memory_plan_;
  ExpertStoreOptions store = options_.store;
  MemoryPlan others = plan;
  others.experts_bytes = 0;
  store.budget_bytes = expert_budget_bytes(others);
  store.speculates = options_.prefetches;
  store.verifies_reads = options_.verifies_reads;
  store.trace = options_.trace;
  // With room for all expert files beside the plan, the page cache is a second cache. Without it, cached
  // pages would only evict what is needed sooner.
  const std::uint64_t all = all_expert_bytes(model_);
  const bool fits_page_cache =
      plan.usable_bytes == 0 || (all + plan.total_bytes()) / 3 <= plan.usable_bytes / 4;
  store.drops_from_page_cache = !fits_page_cache;
  if (options_.drive)
    store.drive = *options_.drive;
  else
    store.drive.kind = plan.experts_bytes < all && fits_page_cache ? DriveKind::buffered : DriveKind::uring;
  return store;
}

Status Engine::open_experts() {
  streaming_.records = static_cast<std::uint32_t>(record_count(model_));
  if (options_.experts) {
    MF_TRY(experts_, options_.experts(model_));
    streaming_.slots = streaming_.records;
    return {};
  }
  if (streaming_.records == 0) {
    MF_TRY(experts_, ResidentExperts::open(model_));  // there are none
    return {};
  }
  const ExpertStoreOptions options = store_options();
  MF_TRY(std::unique_ptr<ExpertStore> store, ExpertStore::open(model_, options));
  streaming_.drive = store->drive().describe();
  streaming_.slots = store->slots();
  streaming_.notes = store->refusals();
  const std::uint64_t token = bytes_per_token(model_, options_.experts_per_token);
  if (!store->holds_all() && memory_plan_.experts_bytes < token)
    streaming_.notes.push_back(fmt::format(
        "the expert cache of {} is smaller than the {} that one token visits, so every token reads nearly "
        "all of its experts; a larger cache is faster",
        human_bytes(memory_plan_.experts_bytes), human_bytes(token)));
  experts_ = std::move(store);
  ops_->set_after_product([source = experts_.get()] { source->advance_reads(); });
  return {};
}

// Hints the experts that each session's last token chose, for layers that the step does not sweep.
void Engine::hint_experts(const Step& step) const {
  if (!options_.prefetches) return;
  step.experts.forget_hints();  // a failed step may have left hints, perhaps for another session
  const Ops::Scope scope(step.ops);
  const std::span<std::uint32_t> guess =
      step.ops.take_host<std::uint32_t>(step.segments.size() * options_.experts_per_token);
  for (std::uint32_t i = 0; i < layers_.size(); ++i) {
    const auto* moe = std::get_if<MoeConfig>(&config().layers[i].mlp);
    if (moe == nullptr || sweeps(*moe, step.rows, step.experts_per_token)) continue;
    std::size_t count = 0;
    for (const StepSegment& segment : step.segments)
      for (const std::uint32_t expert : segment.history->of(LayerId(i)))
        if (std::ranges::find(guess.first(count), expert) == guess.first(count).end())
          guess[count++] = expert;
    step.experts.hint(LayerId(i), guess.first(count), kPreviousConfidence);
  }
}

// Hints all experts of the layer after `layer` if the step sweeps it, so that they are read while `layer`
// computes its last experts. Layer 0 is hinted by its own call, before its mixer runs.
void Engine::sweep_ahead(const Step& step, std::uint32_t layer) const {
  if (!options_.prefetches) return;
  for (std::uint32_t i = layer == 0 ? 0 : layer + 1; i < std::min<std::size_t>(layers_.size(), layer + 2u);
       ++i) {
    const auto* moe = std::get_if<MoeConfig>(&config().layers[i].mlp);
    if (moe != nullptr && sweeps(*moe, step.rows, step.experts_per_token))
      step.experts.hint(LayerId(i), std::span(all_experts_).first(moe->experts), 1.0F);
  }
}

}  // namespace moeflux
