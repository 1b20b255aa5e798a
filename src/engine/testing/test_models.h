#pragma once
// Small models of both families with random weights, and what the engine's tests do with them.
//
// They cover the cases that are easy to get wrong: several key/value heads, more query heads than one task of
// attention takes, heads that end within a block of rows, dense layers, 4 and 8 bits and BF16. Test code
// only; one thread at a time.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/testing/states.h"
#include "engine/session.h"
#include "experts/testing/failing_experts.h"
#include "io/posix_file_system.h"
#include "io/testing/temporary_directory.h"

namespace moeflux {

ModelConfig small_qwen();                          // 5 layers, two of them attention; 8 experts, 3 per token
ModelConfig small_deepseek();                      // 3 layers, the first one dense; 16 experts, 4 per token
ModelConfig small_model(const std::string& name);  // "qwen", "deepseek"

// Names a parameterized test after its model.
inline std::string name_of_model(const testing::TestParamInfo<const char*>& info) { return info.param; }

// A model in a temporary directory, which is removed with it.
class ModelOnDisk {
 public:
  explicit ModelOnDisk(const ModelConfig& config);
  std::filesystem::path path() const { return directory_ / "model"; }
  Result<std::shared_ptr<Engine>> try_open(const EngineOptions& options) const;
  std::shared_ptr<Engine> open(const EngineOptions& options = {.threads = 1}) const;
  // With experts that a test controls. The control outlives the engine.
  std::shared_ptr<Engine> open(const EngineOptions& options, FailingExperts::Control& control) const;

 private:
  TemporaryDirectory directory_;
};

using Tokens = std::vector<TokenId>;
Tokens random_tokens(const Engine& engine, std::size_t count, std::uint32_t seed = 1);

using Logits = std::vector<float>;  // of one row, or of several, one after another
// Equal to the last bit, and finite.
testing::AssertionResult same_bits(std::span<const float> found, std::span<const float> expected);
std::span<const float> row_of(const Engine& engine, const Logits& logits, std::size_t row);

Session new_session(Engine& engine);
Session fork_of(const Session& session);

// Steps that succeed.
StepStatistics step(Engine& engine, const std::vector<Segment>& batch, const StepOptions& options = {});
Logits logits_after(Session& session, std::span<const TokenId> tokens, const StepOptions& options = {});
Logits all_logits(Session& session, std::span<const TokenId> tokens, const StepOptions& options = {});

// The logits of a new session after `tokens`.
Logits fresh_logits(Engine& engine, std::span<const TokenId> tokens);
// The logits of a fork after `tokens`; the session does not move.
Logits logits_ahead(const Session& session, std::span<const TokenId> tokens);

Tokens joined(std::span<const TokenId> first, std::span<const TokenId> second);
std::vector<std::byte> saved(const Session& session);
// The same without checkpoints: the bytes depend on the tokens alone.
std::vector<std::byte> saved_state(const Session& session);

template <class T>
testing::AssertionResult succeeds(const Result<T>& result) {
  if (result) return testing::AssertionSuccess();
  return testing::AssertionFailure() << name_of(result.error().code()) << ": " << result.error().message();
}
// Fails with `code` and a message that states all `facts`; see base/testing/states.h.
template <class T, class... Facts>
testing::AssertionResult fails_with(const Result<T>& result, ErrorCode code, const Facts&... facts) {
  if (result) return testing::AssertionFailure() << "it succeeds";
  const Error& error = result.error();
  testing::StringMatchResultListener why;
  if (error.code() == code &&
      test::StatesMatcher({test::fact_of(facts)...}).MatchAndExplain(error.message(), &why))
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << name_of(error.code()) << ": " << error.message() << ", not "
                                     << name_of(code) << "; " << why.str();
}

// Ignores everything.
class IdleObserver : public StepObserver {
 public:
  void saw(StepPoint, LayerId, std::span<const float>, std::uint32_t) override {}
  void chose(LayerId, std::span<const std::uint32_t>, std::span<const float>, std::uint32_t) override {}
  bool replace_residual(LayerId, std::span<float>, std::uint32_t) override { return false; }
};

// Counts rows and layers over all steps, and sets a flag after `after_layers` layers.
class CountingObserver : public IdleObserver {
 public:
  CountingObserver() = default;
  CountingObserver(std::atomic<bool>& flag, std::uint32_t after_layers)
      : flag_(&flag), after_layers_(after_layers) {}
  void saw(StepPoint point, LayerId, std::span<const float> residual, std::uint32_t cols) override {
    if (point == StepPoint::embedding) rows += residual.size() / cols;
    if (point == StepPoint::residual && ++layers == after_layers_ && flag_ != nullptr) *flag_ = true;
  }
  std::size_t rows = 0;
  std::uint32_t layers = 0;

 private:
  std::atomic<bool>* flag_ = nullptr;
  std::uint32_t after_layers_ = 0;
};

// The experts that the rows of a batch chose.
class ChoiceObserver : public IdleObserver {
 public:
  struct Layer {
    LayerId layer;
    std::uint32_t experts_per_token;
    std::vector<std::uint32_t> experts;
    std::vector<float> weights;
    std::size_t distinct() const { return std::set(experts.begin(), experts.end()).size(); }
  };
  void chose(LayerId layer, std::span<const std::uint32_t> experts, std::span<const float> weights,
             std::uint32_t experts_per_token) override {
    layers.push_back(
        {layer, experts_per_token, {experts.begin(), experts.end()}, {weights.begin(), weights.end()}});
  }
  std::size_t distinct() const {  // of all layers
    std::size_t sum = 0;
    for (const Layer& layer : layers) sum += layer.distinct();
    return sum;
  }
  std::vector<Layer> layers;
};

// Tests that run on each of the models.
class OnSmallModels : public testing::TestWithParam<const char*> {
 protected:
  ModelConfig config = small_model(GetParam());
  ModelOnDisk model{config};
};

}  // namespace moeflux
