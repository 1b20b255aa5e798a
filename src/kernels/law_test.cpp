#include "kernels/law.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>

namespace moeflux {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kSmallest = 0x1p-149f;

// The distance between neighboring floats around `exact`.
double unit_in_the_last_place(double exact) {
  int exponent = 0;
  std::frexp(exact, &exponent);
  return std::ldexp(1.0, std::max(exponent, -125) - 24);
}

// The largest error of a function over the floats it was given, and its place.
template <class Law, class Exact>
class Errors {
 public:
  Errors(Law law, Exact exact) : law_(law), exact_(exact) {}

  void at(float x) {
    const double exact = exact_(double{x});
    const double found = law_(x);
    // Beyond the largest float, infinity is right.
    const double error = std::isinf(found) && exact >= double{FLT_MAX}
                             ? 0
                             : std::fabs(found - exact) / unit_in_the_last_place(exact);
    if (error <= largest_) return;
    largest_ = error;
    worst_ = x;
  }
  // Every `step`-th float from `from` to `to`, which have one sign and ascending magnitudes.
  void sweep(float from, float to, std::uint32_t step) {
    for (std::uint64_t bits = std::bit_cast<std::uint32_t>(from); bits <= std::bit_cast<std::uint32_t>(to);
         bits += step)
      at(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  // Floats around one where a formula changes.
  void around(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    for (std::uint32_t i = 0; i < 512; ++i) at(std::bit_cast<float>(bits - 256 + i));
  }

  double largest() const { return largest_; }
  float worst() const { return worst_; }

 private:
  Law law_;
  Exact exact_;
  double largest_ = 0;
  float worst_ = 0;
};

// Sweeps x between the limits, both signs, finely where the function changes.
template <class Law, class Exact>
Errors<Law, Exact> errors_between(float lowest, float highest, Law law, Exact exact) {
  Errors errors(law, exact);
  for (const float end : {lowest, highest}) {
    errors.sweep(std::copysign(kSmallest, end), std::copysign(0x1p-16f, end), 1 << 14);
    errors.sweep(std::copysign(0x1p-16f, end), end, 1 << 8);
  }
  for (const float x : {0x1p-24f, 0.34657359f, 0.69314718f, 1.0f, 16.635704f, 17.328680f, 64.0f})
    for (const float signed_x : {-x, x})
      if (signed_x > lowest && signed_x < highest) errors.around(signed_x);
  return errors;
}

TEST(Law, ExpIsWithinItsError) {
  auto errors = errors_between(-104.0f, 89.0f, law::exp, [](double x) { return std::exp(x); });
  for (const float x : {-103.97208f, -87.336548f, 88.722839f}) errors.around(x);
  EXPECT_LE(errors.largest(), law::kExpUlp) << "at " << errors.worst();
}

TEST(Law, LogOfNormalNumbersIsWithinItsError) {
  Errors errors(law::log, [](double x) { return std::log(x); });
  errors.sweep(FLT_MIN, FLT_MAX, 1 << 10);
  errors.sweep(0.5f, 2.0f, 1 << 5);
  for (const float x : {0.70710678f, 1.0f, 1.41421356f, 1.00386178f}) errors.around(x);
  EXPECT_LE(errors.largest(), law::kLogUlp) << "at " << errors.worst();
}

TEST(Law, Log1pIsWithinItsErrorBetweenZeroAndOne) {
  Errors errors(law::log1p, [](double x) { return std::log1p(x); });
  errors.sweep(kSmallest, 1.0f, 1 << 10);
  errors.sweep(0x1p-12f, 1.0f, 1 << 5);
  for (const float x : {0x1p-24f, 0.0038618152f, 0.41421356f}) errors.around(x);
  EXPECT_LE(errors.largest(), law::kLog1pUlp) << "at " << errors.worst();
}

TEST(Law, SigmoidIsWithinItsErrorWhereExpIsFinite) {
  const auto errors =
      errors_between(-88.72283f, 200.0f, law::sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); });
  EXPECT_LE(errors.largest(), law::kSigmoidUlp) << "at " << errors.worst();
}

TEST(Law, SiluIsWithinItsErrorWhereExpIsFinite) {
  const auto errors =
      errors_between(-88.72283f, 200.0f, law::silu, [](double x) { return x / (1 + std::exp(-x)); });
  EXPECT_LE(errors.largest(), law::kSiluUlp) << "at " << errors.worst();
}

TEST(Law, SoftplusIsWithinItsError) {
  const auto errors = errors_between(-110.0f, 200.0f, law::softplus, [](double x) {
    return std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
  });
  EXPECT_LE(errors.largest(), law::kSoftplusUlp) << "at " << errors.worst();
}

bool is_minus_zero(float x) { return std::bit_cast<std::uint32_t>(x) == 0x80000000; }
bool is_plus_zero(float x) { return std::bit_cast<std::uint32_t>(x) == 0; }

TEST(Law, ExpSaturatesAtZeroAndInfinity) {
  for (const float x : {0.0f, -0.0f, kSmallest, -kSmallest, 0x1p-26f}) EXPECT_EQ(law::exp(x), 1.0f) << x;
  for (const float x : {88.73f, 89.0f, 1000.0f, FLT_MAX, kInfinity}) EXPECT_EQ(law::exp(x), kInfinity) << x;
  for (const float x : {-104.0f, -105.0f, -FLT_MAX, -kInfinity}) EXPECT_TRUE(is_plus_zero(law::exp(x))) << x;
  EXPECT_LT(law::exp(88.72283f), kInfinity);
  EXPECT_EQ(law::exp(-103.9f), kSmallest);
  EXPECT_TRUE(std::isnan(law::exp(kNan)));
}

TEST(Law, LogarithmsOfOneAreZero) {
  EXPECT_TRUE(is_plus_zero(law::log(1.0f)));
  EXPECT_TRUE(is_plus_zero(law::log1p(0.0f)));
  for (const float x : {kSmallest, FLT_MIN, 0x1p-30f}) EXPECT_EQ(law::log1p(x), x);
}

TEST(Law, SigmoidAndSiluSaturateWhereExpDoes) {
  EXPECT_EQ(law::sigmoid(0.0f), 0.5f);
  for (const float x : {20.0f, 200.0f, FLT_MAX, kInfinity}) EXPECT_EQ(law::sigmoid(x), 1.0f) << x;
  for (const float x : {-89.0f, -FLT_MAX, -kInfinity}) EXPECT_TRUE(is_plus_zero(law::sigmoid(x))) << x;
  EXPECT_TRUE(is_plus_zero(law::silu(0.0f)));
  EXPECT_TRUE(is_minus_zero(law::silu(-0.0f)));
  for (const float x : {-89.0f, -FLT_MAX}) EXPECT_TRUE(is_minus_zero(law::silu(x))) << x;
  for (const float x : {200.0f, FLT_MAX, kInfinity}) EXPECT_EQ(law::silu(x), x) << x;
  for (const float x : {kNan, -kInfinity}) EXPECT_TRUE(std::isnan(law::silu(x))) << x;
  EXPECT_TRUE(std::isnan(law::sigmoid(kNan)));
}

TEST(Law, SoftplusIsXOrExpFarFromZero) {
  for (const float x : {20.0f, 200.0f, FLT_MAX, kInfinity}) EXPECT_EQ(law::softplus(x), x) << x;
  for (const float x : {-30.0f, -100.0f, -104.0f}) EXPECT_EQ(law::softplus(x), law::exp(x)) << x;
  for (const float x : {-FLT_MAX, -kInfinity}) EXPECT_TRUE(is_plus_zero(law::softplus(x))) << x;
  EXPECT_TRUE(std::isnan(law::softplus(kNan)));
}

TEST(Law, PowersOfTwoCoverSubnormalsAndOverflow) {
  for (std::int32_t n = -150; n <= 129; ++n) {
    const law::PowerOfTwo power = law::power_of_two(n);
    EXPECT_EQ(power.first * power.second, std::ldexp(1.0f, n)) << n;
  }
}

TEST(Law, LargerIsTheSecondIfUnordered) {
  EXPECT_EQ(law::larger(1.0f, 2.0f), 2.0f);
  EXPECT_EQ(law::larger(2.0f, 1.0f), 2.0f);
  EXPECT_TRUE(is_minus_zero(law::larger(0.0f, -0.0f)));
  EXPECT_TRUE(is_plus_zero(law::larger(-0.0f, 0.0f)));
  EXPECT_EQ(law::larger(kNan, 1.0f), 1.0f);
  EXPECT_TRUE(std::isnan(law::larger(1.0f, kNan)));
}

// A large number, its negative and a 1, which survives only if the large ones cancel before it is added.
float folded(unsigned large, unsigned minus_large, unsigned one) {
  float lanes[law::kLanes] = {};
  lanes[large] = 0x1p24f;
  lanes[minus_large] = -0x1p24f;
  lanes[one] = 1;
  return law::fold_add(lanes);
}

TEST(Law, FoldAddsHalvesFirst) {
  for (unsigned lane = 0; lane < 16; ++lane) {
    EXPECT_EQ(folded(lane, (lane + 8) % 16, (lane + 4) % 16), 1.0f)
        << "8 apart comes before 4, lane " << lane;
    EXPECT_EQ(folded(lane, (lane + 4) % 16, (lane + 8) % 16), 0.0f)
        << "8 apart comes before 4, lane " << lane;
    EXPECT_EQ(folded(lane, (lane + 4) % 16, (lane + 2) % 16), 1.0f)
        << "4 apart comes before 2, lane " << lane;
    EXPECT_EQ(folded(lane, (lane + 2) % 16, (lane + 4) % 16), 0.0f)
        << "4 apart comes before 2, lane " << lane;
    EXPECT_EQ(folded(lane, (lane + 2) % 16, lane ^ 1), 1.0f) << "2 apart comes before 1, lane " << lane;
    EXPECT_EQ(folded(lane, lane ^ 1, (lane + 2) % 16), 0.0f) << "2 apart comes before 1, lane " << lane;
  }
}

TEST(Law, DotAssignsElementsToLanesInTurn) {
  // Element 16 is lane 0 again: the large numbers cancel there before lane 8 is added.
  float a[19] = {}, ones[19];
  for (float& one : ones) one = 1;
  a[0] = 0x1p24f;
  a[16] = -0x1p24f;
  a[8] = 1;
  EXPECT_EQ(law::dot(a, ones, 19), 1.0f);
  EXPECT_EQ(law::dot(a, ones, 16), 0x1p24f);
  EXPECT_TRUE(is_plus_zero(law::dot(a, ones, 0)));
}

}  // namespace
}  // namespace moeflux
