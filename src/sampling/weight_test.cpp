#include "sampling/weight.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "sampling/philox.h"

namespace moeflux {
namespace {

TEST(Weight, IsThePowerOfEWithinOneUnit) {
  // The series and its roundings err by less than 2^-50 of the value, which is at most 2^42. The result
  // misses the nearest integer only if the exact value lies about halfway between two integers.
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> exponents(-32, 0);
  for (int i = 0; i < 200000; ++i) {
    const double x = i < 1000 ? -i * 0x1p-40 : exponents(random);
    EXPECT_NEAR(static_cast<double>(weight_of(x)), std::exp(x) * kFullWeight, 0.51) << x;
  }
}

TEST(Weight, IsFullForTheBestTokenAndZeroFarBelowIt) {
  EXPECT_EQ(weight_of(0.0), std::uint64_t{1} << kWeightBits);
  EXPECT_EQ(weight_of(-0.0), std::uint64_t{1} << kWeightBits);
  EXPECT_GT(weight_of(-29.0), 0);
  for (const double x : {-31.0, -40.0, -41.0, -1e9, -1e300, -std::numeric_limits<double>::infinity()})
    EXPECT_EQ(weight_of(x), 0) << x;
}

// Every build must give these bits, because the choices of the sampler depend on them.
TEST(Weight, HasTheSameBitsEverywhere) {
  EXPECT_EQ(weight_of(-1.0), 1617950892751u);
  EXPECT_EQ(weight_of(-0.5), 2667550051827u);
  EXPECT_EQ(weight_of(-10.0), 199671003u);
  std::uint64_t mixed = 0;
  for (int i = 0; i < 100000; ++i) mixed = mixed * 6364136223846793005u + weight_of(-i * 0.0003);
  EXPECT_EQ(mixed, 17473890280517467379u);
}

TEST(NaturalLog, AgreesWithTheCLibraryWithinAFewUnits) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> exponents(-40, 40);
  for (int i = 0; i < 100000; ++i) {
    const double x = std::exp(exponents(random));
    EXPECT_NEAR(natural_log(x), std::log(x), 1e-15 * (1 + std::fabs(std::log(x)))) << x;
  }
  EXPECT_EQ(natural_log(1.0), 0.0);
}

// The known answers published by the authors.
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox4x32_10({ones, ones, ones, ones}, {ones, ones}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, ScalesToBelowALimit) {
  const std::uint64_t all = ~std::uint64_t{0};
  EXPECT_EQ(scaled_to(all, 1), 0);
  EXPECT_EQ(scaled_to(all, 1000), 999);
  EXPECT_EQ(scaled_to(0, 1000), 0);
  EXPECT_EQ(scaled_to(std::uint64_t{1} << 63, 1000), 500);
  EXPECT_EQ(scaled_to(all, std::uint64_t{1} << 62), (std::uint64_t{1} << 62) - 1);
  EXPECT_EQ(scaled_to(0x123456789abcdef0, 0x0fedcba987654321), 0x0121fa00ad77d742u);
}

}  // namespace
}  // namespace moeflux
