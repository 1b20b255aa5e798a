// What may be read of an engine at any time, without its mutex.

#include "engine/engine_statistics.h"

#include "engine/engine.h"

namespace moeflux {

ExpertStatistics Engine::expert_statistics() const { return observed_experts_->published_statistics(); }

const ResidencyMap& Engine::residency() const { return observed_experts_->residency(); }

EngineStatistics Engine::statistics() const { return {totals_.read(), state_pool_.usage()}; }

void Engine::count(const Result<StepStatistics>& step) {
  StepTotals totals = totals_.read();
  if (step) {
    ++totals.steps;
    totals.rows += step->rows;
    totals.took += step->took;
  } else {
    ++(step.error().code() == ErrorCode::cancelled ? totals.cancelled : totals.failed);
  }
  totals_.publish(totals);
}

}  // namespace moeflux
