#pragma once
// Small models of both families with random weights, and what the tests of the engine do with them.
//
// The models are written by hand, weight by weight: no code that packs is involved. They have what could go
// wrong in them: several key/value heads, more query heads than attention takes at once, heads that end in a
// block of rows, dense layers, 4 and 8 bits and BF16. Test code only; one thread at a time.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "experts/testing/failing_experts.h"
#include "io/posix_file_system.h"
#include "io/temporary_directory.h"

namespace moeflux {

ModelConfig small_qwen();                          // 5 layers, two of them attention; 8 experts, 3 a token
ModelConfig small_deepseek();                      // 3 layers, the first one dense; 16 experts, 4 a token
ModelConfig small_model(const std::string& name);  // "qwen", "deepseek"

// A model on the disk, for as long as it lives.
class ModelOnDisk {
 public:
  explicit ModelOnDisk(const ModelConfig& config);
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

// Steps that succeed.
StepStatistics step(Engine& engine, const std::vector<Segment>& batch, const StepOptions& options = {});
Logits logits_after(Session& session, std::span<const TokenId> tokens, const StepOptions& options = {});
Logits all_logits(Session& session, std::span<const TokenId> tokens, const StepOptions& options = {});

// Looks at nothing.
class IdleObserver : public StepObserver {
 public:
  void saw(StepPoint, LayerId, std::span<const float>, std::uint32_t) override {}
  void chose(LayerId, std::span<const std::uint32_t>, std::span<const float>, std::uint32_t) override {}
  bool replace_residual(LayerId, std::span<float>, std::uint32_t) override { return false; }
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
