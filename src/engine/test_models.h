#pragma once
// Small models of both families with random weights, and what the tests of the engine do with them.
//
// The models are written by hand, weight by weight: no code that packs is involved. They have what could go
// wrong in them: several key/value heads, more query heads than attention takes at once, heads that end in a
// block of rows, dense layers, 4 and 8 bits and BF16. Test code only; one thread at a time.

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

#include "engine/engine.h"
#include "experts/testing/failing_experts.h"
#include "io/posix_file_system.h"
#include "io/temporary_directory.h"

namespace moeflux {

ModelConfig small_qwen();                          // 5 layers, two of them attention; 8 experts, 3 a token
ModelConfig small_deepseek();                      // 3 layers, the first one dense; 16 experts, 4 a token
ModelConfig small_model(const std::string& name);  // "qwen", "deepseek"

// What a test with such a name as its parameter is called.
inline std::string name_of_model(const testing::TestParamInfo<const char*>& info) { return info.param; }

// A model on the disk, for as long as it lives.
class ModelOnDisk {
 public:
  explicit ModelOnDisk(const ModelConfig& config);
  std::filesystem::path path() const { return directory_ / "model"; }
  Result<std::shared_ptr<Engine>> try_open(const EngineOptions& options) const;
  std::shared_ptr<Engine> open(const EngineOptions& options = {.threads = 1}) const;
  // The same with experts that a test controls. The control outlives the engine.
  std::shared_ptr<Engine> open(const EngineOptions& options, FailingExperts::Control& control) const;

 private:
  TemporaryDirectory directory_;
};

using Tokens = std::vector<TokenId>;
Tokens random_tokens(const Engine& engine, std::size_t count, std::uint32_t seed = 1);

using Logits = std::vector<float>;  // of one row, or of several, one after another
// To the last bit; that they are numbers at all is looked at too.
testing::AssertionResult same_bits(std::span<const float> found, std::span<const float> expected);
std::span<const float> row_of(const Engine& engine, const Logits& logits, std::size_t row);

Session new_session(Engine& engine);
Session fork_of(const Session& session);

// Steps that succeed.
StepStatistics step(Engine& engine, const std::vector<Segment>& batch, const StepOptions& options = {});
Logits logits_after(Session& session, std::span<const TokenId> tokens, const StepOptions& options = {});
Logits all_logits(Session& session, std::span<const TokenId> tokens, const StepOptions& options = {});

// What a session says that has seen nothing else.
Logits fresh_logits(Engine& engine, std::span<const TokenId> tokens);
// What a session would say next; it stays where it is.
Logits logits_ahead(const Session& session, std::span<const TokenId> tokens);

Tokens joined(std::span<const TokenId> first, std::span<const TokenId> second);
std::vector<std::byte> saved(const Session& session);

template <class T>
testing::AssertionResult succeeds(const Result<T>& result) {
  if (result) return testing::AssertionSuccess();
  return testing::AssertionFailure() << name_of(result.error().code()) << ": " << result.error().message();
}
// With that code, and `words` in its message.
template <class T>
testing::AssertionResult fails_with(const Result<T>& result, ErrorCode code, std::string_view words = {}) {
  if (result) return testing::AssertionFailure() << "it succeeds";
  const Error& error = result.error();
  if (error.code() == code && error.message().find(words) != std::string::npos)
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << name_of(error.code()) << ": " << error.message() << ", not "
                                     << name_of(code) << ": " << words;
}

// Looks at nothing.
class IdleObserver : public StepObserver {
 public:
  void saw(StepPoint, LayerId, std::span<const float>, std::uint32_t) override {}
  void chose(LayerId, std::span<const std::uint32_t>, std::span<const float>, std::uint32_t) override {}
  bool replace_residual(LayerId, std::span<float>, std::uint32_t) override { return false; }
};

// Counts rows, and sets a flag when a number of layers has been run, in however many steps.
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

// A test for each model.
class OnSmallModels : public testing::TestWithParam<const char*> {
 protected:
  ModelConfig config = small_model(GetParam());
  ModelOnDisk model{config};
};

}  // namespace moeflux
