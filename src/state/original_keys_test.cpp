#include "state/original_keys.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "state/snapshot_file.h"
#include "state/testing/original_rope.h"
#include "state/testing/snapshot_files.h"

namespace moeflux {
namespace {

RopeConfig rope_of_671b() {
  return {.theta = 1e4,
          .dims = 64,
          .pairing = RopePairing::interleaved,
          .yarn = YarnConfig{.factor = 40,
                             .beta_fast = 32,
                             .beta_slow = 1,
                             .mscale = 1,
                             .mscale_all_dim = 1,
                             .original_positions = 4096}};
}

// Where the original's frequencies are those of the model, and by how much they exceed them elsewhere.
TEST(OriginalRopeOfTheLargeModel, PutsTheFactorOfYarnIntoThePower) {
  const OriginalRope original(rope_of_671b());
  const Rope right(rope_of_671b());
  ASSERT_EQ(original.frequencies.size(), 32u);
  for (std::size_t i = 0; i <= 10; ++i)
    EXPECT_NEAR(static_cast<double>(original.frequencies[i]) / right.frequencies()[i], 1, 1e-6) << i;
  for (std::size_t i = 23; i < 32; ++i) {  // beyond the ramp
    const double inside = std::pow(40 * 1e4, -2.0 * static_cast<double>(i) / 64);
    EXPECT_NEAR(static_cast<double>(original.frequencies[i]) / inside, 1, 1e-6) << i;
  }
  const auto excess = [&](std::size_t i) {
    return static_cast<double>(original.frequencies[i]) / right.frequencies()[i];
  };
  EXPECT_NEAR(excess(23), 2.82, 0.01);
  EXPECT_NEAR(excess(24), 2.51, 0.01);
  EXPECT_NEAR(excess(31), 1.12, 0.01);
  EXPECT_EQ(original.magnitude, 1);
}

TEST(OriginalRopeOfAnyModel, HasTheFrequenciesOfTheOriginalsFormulas) {
  RopeConfig plain = rope_of_671b(), narrow = rope_of_671b(), unequal = rope_of_671b();
  plain.yarn.reset();
  narrow.yarn->beta_fast = narrow.yarn->beta_slow = 4;
  unequal.yarn->mscale_all_dim = 0.707;
  for (const RopeConfig& rope : {rope_of_671b(), plain, narrow, unequal}) {
    const OriginalRope original(rope);
    const std::vector<float> expected = original_frequencies(rope);
    ASSERT_EQ(original.frequencies.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(original.frequencies[i] / expected[i], 1, 3e-7) << i;
  }
  EXPECT_NEAR(OriginalRope(unequal).magnitude, 1.3688879f / 1.2608038f, 1e-6);
}

// A model whose only state is `layers` layers of latent attention.
ModelConfig model_with(const RopeConfig& rope, std::size_t layers) {
  ModelConfig config = small_deepseek_config();
  LayerConfig layer = config.layers[0];
  auto& mla = std::get<MlaConfig>(layer.mixer);
  mla.rope = rope;
  mla.rope_dim = rope.dims;
  config.layers.assign(layers, layer);
  return config;
}

struct Key {
  std::vector<float> raw;  // before any rotation
  std::vector<double> expected(std::uint32_t position, const RopeConfig& rope) const {
    return rotated_as_in_training(std::vector<double>(raw.begin(), raw.end()), position, rope);
  }
};

// Writes a version 2 file with random keys, as the original rotates them, and reads it.
void expect_the_models_keys(const RopeConfig& rope, std::uint32_t positions) {
  constexpr std::size_t kLayers = 2;
  const ModelConfig config = model_with(rope, kLayers);
  const std::uint32_t latent = std::get<MlaConfig>(config.layers[0].mixer).latent_dim;
  Bytes file;
  for (const std::uint32_t word :
       {0x4D464C58u, 2u, std::uint32_t{kLayers}, 1u, 0u, 0u, 0u, 0u, latent, rope.dims})
    put(file, word);
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<std::vector<Key>> keys(kLayers, std::vector<Key>(positions));
  for (std::vector<Key>& layer : keys) {
    put(file, positions);
    for (std::uint32_t i = 0; i < positions * latent; ++i) put(file, 0.5f);
    for (std::uint32_t p = 0; p < positions; ++p) {
      for (std::uint32_t c = 0; c < rope.dims; ++c) layer[p].raw.push_back(normal(random));
      std::vector<float> rotated = layer[p].raw;
      rotate_as_the_original(rotated, p, rope);
      for (const float channel : rotated) put(file, channel);
    }
  }
  BlockPool pool(BlockPool::kNoBudget);
  const Result<SavedSession> session = read_snapshot(file, {config, identity_of_tests(), pool, positions});
  ASSERT_TRUE(session) << session.error().message();
  for (std::size_t layer = 0; layer < kLayers; ++layer)
    for (std::uint32_t p = 0; p < positions; ++p) {
      const float* const row = session->snapshot.contents().blocks[layer][p / kKvBlockPositions].keys +
                               p % kKvBlockPositions * std::size_t{latent + rope.dims};
      for (std::uint32_t c = 0; c < latent; ++c) ASSERT_EQ(row[c], 0.5f);
      const std::vector<double> expected = keys[layer][p].expected(p, rope);
      for (std::uint32_t c = 0; c < rope.dims; ++c)
        ASSERT_NEAR(row[latent + c], expected[c], import_tolerance(6, p))
            << "layer " << layer << ", position " << p << ", channel " << c;
    }
}

TEST(ImportedKeys, AreRotatedAsTheModelWasTrained) { expect_the_models_keys(rope_of_671b(), 5000); }

TEST(ImportedKeys, MayHaveAnotherMagnitude) {
  RopeConfig rope = rope_of_671b();
  rope.yarn->mscale = 0.8;
  rope.yarn->mscale_all_dim = 0.3;
  expect_the_models_keys(rope, 300);
}

TEST(ImportedKeys, MayComeFromAModelWithoutYarn) {
  RopeConfig rope = rope_of_671b();
  rope.yarn.reset();
  expect_the_models_keys(rope, 300);
}

TEST(ImportedKeys, MayComeFromAModelWithThePairsOfTheOriginal) {
  RopeConfig rope = rope_of_671b();
  rope.pairing = RopePairing::half_split;
  expect_the_models_keys(rope, 300);
}

TEST(ImportedKeys, MayHaveAnotherRotationInEachLayer) {
  ModelConfig config = model_with(rope_of_671b(), 2);
  std::get<MlaConfig>(config.layers[1].mixer).rope.yarn.reset();
  std::vector<float> rows[2] = {std::vector<float>(67 * 256, 0.25f), std::vector<float>(67 * 256, 0.25f)};
  std::vector<std::vector<KvBlock>> blocks(2);
  for (std::size_t layer = 0; layer < 2; ++layer) {
    blocks[layer].emplace_back();
    blocks[layer][0].keys = rows[layer].data();
  }
  convert_original_keys(config, blocks, 20);
  for (std::size_t layer = 0; layer < 2; ++layer) {
    const RopeConfig& rope = std::get<MlaConfig>(config.layers[layer].mixer).rope;
    // Rotates back as in training and forth as the original: the keys that were there.
    const float* const key = rows[layer].data() + 19 * 67 + 3;
    const std::vector<double> raw = rotated_as_in_training(std::vector<double>(key, key + 64), 19, rope, -1);
    std::vector<float> original(raw.begin(), raw.end());
    rotate_as_the_original(original, 19, rope);
    for (const float channel : original) EXPECT_NEAR(channel, 0.25f, import_tolerance(1, 19));
  }
  EXPECT_NE(rows[0], rows[1]);
}

}  // namespace
}  // namespace moeflux
