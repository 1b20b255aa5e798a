#include "engine/testing/test_models.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <random>
#include <utility>

#include "experts/resident_experts.h"
#include "model/testing/random_model.h"
#include "model/testing/tiny_packed_model.h"

namespace moeflux {
ModelConfig small_qwen() {
  ModelConfig config = tiny_qwen_config();
  config.vocabulary = 100;
  config.max_positions = 2048;
  LayerConfig net = config.layers[0], attention = config.layers[1];
  auto& heads = std::get<GatedAttentionConfig>(attention.mixer);
  heads.query_heads = 4;
  heads.kv_heads = 2;
  for (LayerConfig* layer : {&net, &attention}) {
    auto& moe = std::get<MoeConfig>(layer->mlp);
    moe.experts = 8;
    moe.experts_per_token = 3;
  }
  // Heads of whole groups of 64 channels take other paths through CpuOps than smaller ones.
  LayerConfig wide_net = net, wide_attention = attention;
  std::get<GatedDeltaNetConfig>(wide_net.mixer).value_head_dim = 64;
  std::get<GatedAttentionConfig>(wide_attention.mixer).head_dim = 64;
  config.layers = {wide_net, attention, net, net, wide_attention};
  return config;
}

ModelConfig small_deepseek() {
  ModelConfig config = tiny_deepseek_config();
  config.vocabulary = 100;
  config.max_positions = 2048;
  LayerConfig dense = config.layers[0], sparse = config.layers[1];
  for (LayerConfig* layer : {&dense, &sparse}) {
    auto& mla = std::get<MlaConfig>(layer->mixer);
    mla.heads = 18;
    mla.nope_dim = 32;
    mla.value_dim = 24;
  }
  auto& moe = std::get<MoeConfig>(sparse.mlp);
  moe.experts = 16;
  moe.experts_per_token = 4;
  moe.router = GroupedSigmoidRouterConfig{.groups = 4, .groups_kept = 2, .normalise = true, .scale = 2.5};
  config.layers = {dense, sparse, sparse};
  return config;
}

ModelConfig small_model(const std::string& name) { return name == "qwen" ? small_qwen() : small_deepseek(); }

ModelOnDisk::ModelOnDisk(const ModelConfig& config) { write_random_model(directory_, config); }

Result<std::shared_ptr<Engine>> ModelOnDisk::try_open(const EngineOptions& options) const {
  PosixFileSystem disk;
  MF_TRY(PackedModel model, PackedModel::open(disk, path()));
  return Engine::open(disk, std::move(model), options);
}

std::shared_ptr<Engine> ModelOnDisk::open(const EngineOptions& options) const {
  auto engine = try_open(options);
  EXPECT_TRUE(engine) << engine.error().message();
  return *std::move(engine);
}

std::shared_ptr<Engine> ModelOnDisk::open(const EngineOptions& options,
                                          FailingExperts::Control& control) const {
  EngineOptions controlled = options;
  controlled.experts = [&control](const PackedModel& model) -> Result<std::unique_ptr<ExpertSource>> {
    MF_TRY(std::unique_ptr<ResidentExperts> resident, ResidentExperts::open(model));
    return std::unique_ptr<ExpertSource>(new FailingExperts(std::move(resident), control));
  };
  return open(controlled);
}

Tokens random_tokens(const Engine& engine, std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  Tokens tokens;
  for (std::size_t i = 0; i < count; ++i)
    tokens.emplace_back(static_cast<std::uint32_t>(random() % engine.config().vocabulary));
  return tokens;
}

testing::AssertionResult same_bits(std::span<const float> found, std::span<const float> expected) {
  if (found.size() != expected.size())
    return testing::AssertionFailure() << found.size() << " numbers, not " << expected.size();
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!std::isfinite(expected[i]))
      return testing::AssertionFailure() << "number " << i << " is " << expected[i];
    if (std::bit_cast<std::uint32_t>(found[i]) != std::bit_cast<std::uint32_t>(expected[i]))
      return testing::AssertionFailure() << "number " << i << " is " << found[i] << ", not " << expected[i];
  }
  return testing::AssertionSuccess();
}

std::span<const float> row_of(const Engine& engine, const Logits& logits, std::size_t row) {
  const std::size_t vocabulary = engine.config().vocabulary;
  return std::span(logits).subspan(row * vocabulary, vocabulary);
}

Session new_session(Engine& engine) {
  Result<Session> session = engine.new_session();
  EXPECT_TRUE(session) << session.error().message();
  return *std::move(session);
}

Session fork_of(const Session& session) {
  Result<Session> fork = session.fork();
  EXPECT_TRUE(succeeds(fork));
  return *std::move(fork);
}

StepStatistics step(Engine& engine, const std::vector<Segment>& batch, const StepOptions& options) {
  const Result<StepStatistics> done = engine.step(batch, options);
  EXPECT_TRUE(done) << done.error().message();
  return done ? *done : StepStatistics{};
}

Logits logits_after(Session& session, std::span<const TokenId> tokens, const StepOptions& options) {
  Logits logits(session.engine().config().vocabulary);
  step(session.engine(), {{&session, tokens, WantedLogits::last, logits}}, options);
  return logits;
}

Logits all_logits(Session& session, std::span<const TokenId> tokens, const StepOptions& options) {
  Logits logits(tokens.size() * session.engine().config().vocabulary);
  step(session.engine(), {{&session, tokens, WantedLogits::all, logits}}, options);
  return logits;
}

Logits fresh_logits(Engine& engine, std::span<const TokenId> tokens) {
  Session session = new_session(engine);
  Logits logits(engine.config().vocabulary);
  EXPECT_TRUE(succeeds(session.extend(tokens, logits)));
  return logits;
}

Logits logits_ahead(const Session& session, std::span<const TokenId> tokens) {
  Session fork = fork_of(session);
  return logits_after(fork, tokens);
}

Tokens joined(std::span<const TokenId> first, std::span<const TokenId> second) {
  Tokens both(first.begin(), first.end());
  both.insert(both.end(), second.begin(), second.end());
  return both;
}

std::vector<std::byte> saved(const Session& session) {
  std::vector<std::byte> all;
  EXPECT_TRUE(succeeds(session.save([&](std::span<const std::byte> bytes) -> Status {
    all.insert(all.end(), bytes.begin(), bytes.end());
    return {};
  })));
  return all;
}

std::vector<std::byte> saved_state(const Session& session) {
  std::vector<std::byte> all;
  const Engine& engine = session.engine();
  EXPECT_TRUE(succeeds(write_snapshot(state_shape_of(engine.config(), engine.options().kv_dtype),
                                      engine.snapshot_identity(), {session.snapshot()},
                                      [&](std::span<const std::byte> bytes) -> Status {
                                        all.insert(all.end(), bytes.begin(), bytes.end());
                                        return {};
                                      })));
  return all;
}

}  // namespace moeflux
