// How an engine gets at its experts: what the plan leaves for them, which drive, and what is guessed of the next step.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/sizes.h"
#include "engine/engine.h"
#include "engine/pass.h"
#include "experts/resident_experts.h"

namespace moeflux {
namespace {

// Left to others of what is usable: the program itself, the system, and what a plan does not know.
std::uint64_t reserve_bytes(std::uint64_t usable_bytes) {
  return std::clamp<std::uint64_t>(usable_bytes / 20, 64 * kMiB, kGiB);
}

// Experts that one token visits, in bytes.
std::uint64_t bytes_a_token(const PackedModel& model, std::uint32_t per_token) {
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

// How sure a guess is that a token chooses its predecessor's experts again; measured: about a third come again.
constexpr float kPreviousConfidence = 0.35F;

// So many rows for every expert of a layer, and hardly one is left out.
constexpr std::uint64_t kSweepChoicesAnExpert = 4;

}  // namespace

// What the experts may take. `others`: all that is not experts. Without a limit that is known, all are held.
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
  // The page cache is a second store where it has room for all the files beside the plan; where not, it would only
  // push out what is needed sooner.
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
    MF_TRY(experts_, ResidentExperts::open(model_));  // of which there are none
    return {};
  }
  const ExpertStoreOptions options = store_options();
  MF_TRY(std::unique_ptr<ExpertStore> store, ExpertStore::open(model_, options));
  streaming_.drive = store->drive().describe();
  streaming_.slots = store->slots();
  streaming_.notes = store->refusals();
  const std::uint64_t token = bytes_a_token(model_, options_.experts_per_token);
  if (!store->holds_all() && memory_plan_.experts_bytes < token)
    streaming_.notes.push_back(fmt::format(
        "the expert cache of {} is smaller than the {} that one token visits: every token reads nearly all "
        "of its experts, which is slow",
        human_bytes(memory_plan_.experts_bytes), human_bytes(token)));
  experts_ = std::move(store);
  ops_->set_between_operations([source = experts_.get()] { source->poll(); });
  return {};
}

ExpertStatistics Engine::expert_statistics() {
  const Lock lock(mutex_);
  return experts_->statistics();
}

// Few rows: every session's last experts, again. Many rows choose nearly all experts of a layer, which sweep_ahead()
// says layer by layer.
void Engine::hint_experts(const Pass& pass, std::span<const Segment> batch) const {
  if (!options_.prefetches) return;
  pass.experts.forget_hints();  // a step that failed has left some, perhaps of another session
  if (pass.rows > kFewRows) return;
  const Ops::Scope scope(pass.ops);
  const std::span<std::uint32_t> guess =
      pass.ops.take_host<std::uint32_t>(batch.size() * options_.experts_per_token);
  for (std::uint32_t i = 0; i < layers_.size(); ++i) {
    std::size_t count = 0;
    for (const Segment& segment : batch)
      for (const std::uint32_t expert : segment.session->history_.of(LayerId(i)))
        if (std::ranges::find(guess.first(count), expert) == guess.first(count).end())
          guess[count++] = expert;
    pass.experts.hint(LayerId(i), guess.first(count), kPreviousConfidence);
  }
}

void Engine::sweep_ahead(const Pass& pass, std::uint32_t layer) const {
  if (!options_.prefetches || pass.rows <= kFewRows) return;
  // The layer itself, while it mixes, and the one after it, while this one's last experts are computed.
  for (std::uint32_t i = layer; i < std::min<std::size_t>(layers_.size(), layer + 2u); ++i) {
    const auto* moe = std::get_if<MoeConfig>(&config().layers[i].mlp);
    if (moe == nullptr || (i == layer && layer != 0)) continue;  // said a layer ago
    const std::uint64_t choices =
        std::uint64_t{pass.rows} * std::min(moe->experts_per_token, options_.experts_per_token);
    if (choices < kSweepChoicesAnExpert * moe->experts) continue;
    pass.experts.hint(LayerId(i), std::span(all_experts_).first(moe->experts), 1.0F);
  }
}

}  // namespace moeflux
