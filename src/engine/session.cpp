#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/engine.h"

namespace moeflux {

Session::Session(std::shared_ptr<Engine> engine, SessionState state)
    : engine_(std::move(engine)), state_(std::move(state)) {
  tokens_.reserve(state_.context());  // so that no step allocates
}

// The state first: its blocks go back to the engine that this session may be the last to hold.
Session& Session::operator=(Session&& other) noexcept {
  state_ = std::move(other.state_);
  tokens_ = std::move(other.tokens_);
  engine_ = std::move(other.engine_);
  return *this;
}

Result<StepStatistics> Session::extend(std::span<const TokenId> tokens, std::span<float> logits,
                                       const StepOptions& options) {
  MF_REQUIRE(logits.empty() || logits.size() == engine_->config().vocabulary, "room for one row of logits");
  StepStatistics total;
  while (!tokens.empty()) {
    const auto some = tokens.first(std::min<std::size_t>(tokens.size(), engine_->options().step_rows));
    const bool is_last = some.size() == tokens.size() && !logits.empty();
    const Segment segment{this, some, is_last ? WantedLogits::last : WantedLogits::none,
                          is_last ? logits : std::span<float>()};
    MF_TRY(const StepStatistics statistics, engine_->step({&segment, 1}, options));
    total += statistics;
    tokens = tokens.subspan(some.size());
  }
  return total;
}

void Session::clear() {
  state_.clear();
  tokens_.clear();
}

void Session::commit(std::span<const TokenId> tokens) {
  state_.commit(static_cast<std::uint32_t>(tokens.size()));
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

}  // namespace moeflux
