#include "model/rope.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "base/testing/expect_contract.h"

namespace moeflux {
namespace {

// DeepSeek-V3's, 671 billion parameters.
YarnConfig yarn_of_671b() {
  return {.factor = 40,
          .beta_fast = 32,
          .beta_slow = 1,
          .mscale = 1,
          .mscale_all_dim = 1,
          .original_positions = 4096};
}
RopeConfig rope_of_671b() {
  return {.theta = 1e4, .dims = 64, .pairing = RopePairing::interleaved, .yarn = yarn_of_671b()};
}
MlaConfig mla_of_671b() {
  return {.heads = 128,
          .query_latent_dim = 1536,
          .latent_dim = 512,
          .nope_dim = 128,
          .rope_dim = 64,
          .value_dim = 128,
          .rope = rope_of_671b()};
}

TEST(Rope, FrequenciesArePowersOfTheta) {
  const Rope rope({.theta = 1e7, .dims = 64, .pairing = RopePairing::half_split, .yarn = {}});
  ASSERT_EQ(rope.pairs(), 32u);
  for (std::uint32_t i = 0; i < 32; ++i) {
    const double expected = std::exp(-2.0 * i / 64 * std::log(1e7));
    EXPECT_NEAR(rope.frequencies()[i] / expected, 1, 1e-14) << i;
  }
}

TEST(Rope, YarnStretchesSlowPairsLikeTheReference) {
  struct Entry {
    std::size_t pair;
    double frequency;
  };
  constexpr std::array kTable = {Entry{0, 1},
                                 Entry{8, 0.1},
                                 Entry{10, 0.0562341325},
                                 Entry{11, 0.0390069266},
                                 Entry{16, 0.0055},
                                 Entry{20, 0.000790569415},
                                 Entry{22, 0.000177827941},
                                 Entry{23, 3.33380358e-05},
                                 Entry{24, 2.5e-05},
                                 Entry{31, 3.33380358e-06}};
  const Rope rope(rope_of_671b());
  ASSERT_EQ(rope.pairs(), 32u);
  // The table has nine significant digits.
  for (const Entry& entry : kTable)
    EXPECT_NEAR(rope.frequencies()[entry.pair] / entry.frequency, 1, 1e-8) << entry.pair;
}

TEST(Rope, YarnWithAFactorOfOneChangesNothing) {
  RopeConfig stretched = rope_of_671b();
  stretched.yarn->factor = 1;
  RopeConfig plain = rope_of_671b();
  plain.yarn.reset();
  const Rope a(stretched), b(plain);
  for (std::size_t i = 0; i < a.pairs(); ++i)
    EXPECT_NEAR(a.frequencies()[i] / b.frequencies()[i], 1, 1e-15) << i;
}

TEST(Rope, FillsCosinesAndSinesRoundedOnce) {
  const Rope rope({.theta = 1e7, .dims = 64, .pairing = RopePairing::half_split, .yarn = {}});
  std::vector<float> cos(32), sin(32);
  for (const std::uint32_t position : {0u, 1u, 255u, 4096u, 262143u, 1048575u}) {
    rope.fill(position, cos, sin);
    for (std::size_t i = 0; i < 32; ++i) {
      const double angle = position * rope.frequencies()[i];
      EXPECT_NEAR(cos[i], std::cos(angle), 6.1e-8)
          << position << ", pair " << i;  // half an ulp of 1, plus 1e-12
      EXPECT_NEAR(sin[i], std::sin(angle), 6.1e-8) << position << ", pair " << i;
    }
  }
  rope.fill(0, cos, sin);
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(cos[i], 1.0f);
    EXPECT_EQ(sin[i], 0.0f);
  }
}

TEST(Rope, ScalesCosinesAndSinesByYarnsMagnitude) {
  RopeConfig config = rope_of_671b();
  config.yarn->mscale = 2;
  const Rope rope(config);
  const double magnitude = (0.2 * std::log(40.0) + 1) / (0.1 * std::log(40.0) + 1);
  std::vector<float> cos(32), sin(32);
  rope.fill(7, cos, sin);
  EXPECT_NEAR(cos[0], std::cos(7.0) * magnitude, 1e-7);
  EXPECT_NEAR(sin[0], std::sin(7.0) * magnitude, 1e-7);

  const Rope of_671b(rope_of_671b());  // equal mscales give a factor of 1
  of_671b.fill(0, cos, sin);
  EXPECT_EQ(cos[0], 1.0f);

  config.yarn->mscale_all_dim = 0;  // absent: YaRN's default
  Rope(config).fill(0, cos, sin);
  EXPECT_NEAR(cos[0], 0.1 * std::log(40.0) + 1, 1e-7);
}

TEST(MlaScoreScale, MatchesTheReference) {
  EXPECT_NEAR(mla_score_scale(mla_of_671b()), 0.1352338, 5e-8);
  MlaConfig plain = mla_of_671b();
  plain.rope.yarn.reset();
  EXPECT_NEAR(mla_score_scale(plain), 0.0721688, 5e-8);
  MlaConfig no_magnitude = mla_of_671b();
  no_magnitude.rope.yarn->mscale_all_dim = 0;
  EXPECT_EQ(mla_score_scale(no_magnitude), mla_score_scale(plain));
}

void expect_near(double angle) {
  const CosSin found = cos_sin(angle);
  ASSERT_NEAR(found.cos, std::cos(angle), 1e-12) << angle;
  ASSERT_NEAR(found.sin, std::sin(angle), 1e-12) << angle;
}

TEST(CosSin, MatchesTheStandardLibraryUpToTheLongestContext) {
  constexpr int kAngles = 400'000;
  for (int i = 0; i <= kAngles; ++i) expect_near(0x1p20 * i / kAngles);
  for (std::uint32_t position = 0; position < (1u << 20); position += 7) expect_near(position);
  for (double angle = 0x1p20; angle > 1e-300; angle *= 0.97) expect_near(angle);
}

TEST(CosSin, MatchesTheStandardLibraryNearMultiplesOfAnEighthTurn) {
  for (int i = 0; i < 667'544; i += 13)
    for (const double beside : {-1e-9, 0.0, 1e-9})
      expect_near(std::max(0.0, i * (std::numbers::pi / 4) + beside));
}

TEST(CosSin, IsExactAtZero) {
  EXPECT_EQ(cos_sin(0).cos, 1.0);
  EXPECT_EQ(cos_sin(0).sin, 0.0);
}

TEST(RopeContract, RequiresOneAnglePerPair) {
  const Rope rope(rope_of_671b());
  std::vector<float> cos(32), sin(31);
  EXPECT_CONTRACT(rope.fill(1, cos, sin), "one angle per pair");
}

}  // namespace
}  // namespace moeflux
