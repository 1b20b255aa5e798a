#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/scalar_tables.h"
#include "kernels/testing/grid.h"

namespace moeflux {
namespace {

using test::Grid;
using test::Numbers;
using test::Random;
using test::same_bits;

// An operation with up to three input rows and one output row.
struct Operation {
  const char* name;
  void (*run)(const RowKernels&, const float* a, const float* b, const float* c, std::uint32_t n, float* y);
};
using In = const float*;

// a and b in alternating groups of 16, as SwiGLU takes them.
std::vector<float> alternating(In a, In b, std::uint32_t n) {
  constexpr std::uint32_t kBlock = 16;
  std::vector<float> both((n + kBlock - 1) / kBlock * 2 * kBlock, std::numeric_limits<float>::quiet_NaN());
  for (std::uint32_t i = 0; i < n; ++i) {
    both[i / kBlock * 2 * kBlock + i % kBlock] = a[i];
    both[i / kBlock * 2 * kBlock + kBlock + i % kBlock] = b[i];
  }
  return both;
}

constexpr Operation kOperations[] = {
    {"rms_norm",
     [](const RowKernels& on, In a, In b, In, std::uint32_t n, float* y) { on.rms_norm(a, b, n, 1e-6f, y); }},
    {"gated_rms_norm", [](const RowKernels& on, In a, In b, In c, std::uint32_t n,
                          float* y) { on.gated_rms_norm(a, b, c, n, 1e-6f, y); }},
    {"l2_norm",
     [](const RowKernels& on, In a, In, In, std::uint32_t n, float* y) { on.l2_norm(a, n, 1e-6f, 0.3f, y); }},
    {"add", [](const RowKernels& on, In a, In b, In, std::uint32_t n, float* y) { on.add(a, b, n, y); }},
    {"add_scaled", [](const RowKernels& on, In a, In b, In, std::uint32_t n,
                      float* y) { on.add_scaled(a, b, -1.7f, n, y); }},
    {"swiglu", [](const RowKernels& on, In a, In b, In, std::uint32_t n,
                  float* y) { on.swiglu(alternating(a, b, n).data(), n, y); }},
    {"sigmoid_gate",
     [](const RowKernels& on, In a, In b, In, std::uint32_t n, float* y) { on.sigmoid_gate(a, b, n, y); }},
    {"sigmoid", [](const RowKernels& on, In a, In, In, std::uint32_t n, float* y) { on.sigmoid(a, n, y); }},
    {"exp_minus",
     [](const RowKernels& on, In a, In, In, std::uint32_t n, float* y) { on.exp_minus(a, 0.7f, n, y); }},
};

std::vector<std::uint32_t> lengths() {
  std::vector<std::uint32_t> all = {127, 255, 256, 1001, 4099};
  for (std::uint32_t n = 1; n <= 70; ++n) all.push_back(n);
  return all;
}

class RowsOnEveryIsa : public test::OnEveryIsa {};
INSTANTIATE_TEST_SUITE_P(, RowsOnEveryIsa, testing::ValuesIn(compiled_kernels()), test::isa_name);

TEST_P(RowsOnEveryIsa, MatchScalarAtEveryLength) {
  Random random(1);
  for (const Operation& operation : kOperations)
    for (const std::uint32_t n : lengths())
      for (const Numbers kind : {Numbers::plain, Numbers::extreme, Numbers::non_finite}) {
        const Grid a = Grid::random(random, 1, n, 0, kind), b = Grid::random(random, 1, n, 0, kind),
                   c = Grid::random(random, 1, n, 0, kind);
        Grid expected(1, n), y(1, n);
        operation.run(kScalarRows, a.data(), b.data(), c.data(), n, expected.data());
        operation.run(*GetParam()->rows, a.data(), b.data(), c.data(), n, y.data());
        EXPECT_TRUE(same_bits(y, expected)) << operation.name << " of " << n;
        Grid in_place = a;
        operation.run(*GetParam()->rows, in_place.data(), b.data(), c.data(), n, in_place.data());
        EXPECT_TRUE(same_bits(in_place, expected)) << operation.name << " of " << n << " in place";
      }
}

TEST_P(RowsOnEveryIsa, RotatePairsAsScalarDoes) {
  Random random(2);
  for (const auto rope : {&RowKernels::rope_half, &RowKernels::rope_interleaved})
    for (const std::uint32_t n : lengths())
      for (const Numbers kind : {Numbers::plain, Numbers::extreme, Numbers::non_finite}) {
        const Grid cos = Grid::random(random, 1, n, 0, kind), sin = Grid::random(random, 1, n, 0, kind);
        Grid expected = Grid::random(random, 1, 2 * n, 0, kind);
        Grid x = expected;
        (kScalarRows.*rope)(expected.data(), cos.data(), sin.data(), n);
        (GetParam()->rows->*rope)(x.data(), cos.data(), sin.data(), n);
        EXPECT_TRUE(same_bits(x, expected)) << n << " pairs";
      }
}

// A million floats spread evenly over all bit patterns, and the neighbors of those where a formula changes.
Grid sweep() {
  std::vector<std::uint32_t> bits;
  for (std::uint64_t pattern = 0; pattern < std::uint64_t{1} << 32; pattern += 4099)
    bits.push_back(static_cast<std::uint32_t>(pattern));
  for (const float edge :
       {-104.0f, 104.0f, 89.0f, -89.0f, 88.7228f, -88.7228f, 87.3365f, -87.3365f, 0.34657f})
    for (std::uint32_t step = 0; step < 4000; ++step)
      bits.push_back(std::bit_cast<std::uint32_t>(edge) - 2000 + step);
  Grid all(1, bits.size());
  for (std::size_t i = 0; i < bits.size(); ++i) all.data()[i] = std::bit_cast<float>(bits[i]);
  return all;
}

TEST_P(RowsOnEveryIsa, MatchScalarForFloatsOfEverySize) {
  const Grid x = sweep();
  const auto n = static_cast<std::uint32_t>(x.cols());
  Grid one(1, n), expected(1, n), y(1, n);
  for (std::size_t i = 0; i < n; ++i) one.data()[i] = 1.0f;
  const RowKernels& rows = *GetParam()->rows;

  kScalarRows.sigmoid(x.data(), n, expected.data());
  rows.sigmoid(x.data(), n, y.data());
  EXPECT_TRUE(same_bits(y, expected)) << "sigmoid";
  kScalarRows.exp_minus(x.data(), 0.0f, n, expected.data());
  rows.exp_minus(x.data(), 0.0f, n, y.data());
  EXPECT_TRUE(same_bits(y, expected)) << "exp";
  const std::vector<float> both = alternating(x.data(), one.data(), n);
  kScalarRows.swiglu(both.data(), n, expected.data());
  rows.swiglu(both.data(), n, y.data());
  EXPECT_TRUE(same_bits(y, expected)) << "silu";
}

// ---- The specification against double arithmetic --------------------------------------------------------
// A rounding has an error of at most kRounding of its result; the exponential is within 2 units in the last
// place, which is at most 4 roundings. Bounds leave out products of two errors; 1 % is added for these.

constexpr double kRounding = 0x1p-24, kExp = 4 * kRounding, kSecondOrder = 1.01;
// 1 + e^-x and the quotient add a rounding each.
constexpr double kSigmoid = kExp + 2 * kRounding;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// The sum of squares has n / 16 roundings in a lane and four in the fold, then those of the mean and eps. A
// root halves an error and adds one, as does its inverse.
double norm_error(std::uint32_t n) { return ((n / 16.0 + 1 + 4 + 2) / 2 + 2) * kRounding; }

double sum_of_squares(const Grid& x) {
  double sum = 0;
  for (std::size_t i = 0; i < x.cols(); ++i) sum += double{x.data()[i]} * x.data()[i];
  return sum;
}

TEST(ScalarRows, NormsAreCloseToDouble) {
  Random random(3);
  for (const std::uint32_t n : {1u, 2u, 15u, 16u, 17u, 128u, 1000u, 4096u}) {
    const Grid x = Grid::random(random, 1, n), weight = Grid::random(random, 1, n),
               gate = Grid::random(random, 1, n);
    Grid rms(1, n), gated(1, n), l2(1, n);
    const float eps = 1e-3f, scale = 0.0883883461f;
    kScalarRows.rms_norm(x.data(), weight.data(), n, eps, rms.data());
    kScalarRows.gated_rms_norm(x.data(), weight.data(), gate.data(), n, eps, gated.data());
    kScalarRows.l2_norm(x.data(), n, eps, scale, l2.data());

    const double sum = sum_of_squares(x);
    for (std::uint32_t i = 0; i < n; ++i) {
      const double xi = x.data()[i], wi = weight.data()[i], gi = gate.data()[i];
      const double normed = xi / std::sqrt(sum / n + double{eps});
      const double error = (norm_error(n) + 2 * kRounding) * kSecondOrder;
      EXPECT_NEAR(rms.data()[i], normed * wi, error * std::fabs(normed * wi));
      const double silu = gi * sigmoid(gi);
      EXPECT_NEAR(gated.data()[i], normed * wi * silu,
                  (error + kSigmoid + 2 * kRounding) * std::fabs(normed * wi * silu));
      const double unit = xi / std::sqrt(sum + double{eps}) * double{scale};
      EXPECT_NEAR(l2.data()[i], unit, error * std::fabs(unit));
    }
  }
}

TEST(ScalarRows, GatesAreCloseToDouble) {
  Random random(4);
  constexpr std::uint32_t kCount = 3000;
  Grid gate = Grid::random(random, 1, kCount), up = Grid::random(random, 1, kCount);
  for (std::uint32_t i = 0; i < kCount; ++i) gate.data()[i] *= 30;  // so that sigmoids come close to 0 and 1
  Grid swiglu(1, kCount), gated(1, kCount), squashed(1, kCount), exponential(1, kCount);
  kScalarRows.swiglu(alternating(gate.data(), up.data(), kCount).data(), kCount, swiglu.data());
  kScalarRows.sigmoid_gate(up.data(), gate.data(), kCount, gated.data());
  kScalarRows.sigmoid(gate.data(), kCount, squashed.data());
  kScalarRows.exp_minus(up.data(), 1.5f, kCount, exponential.data());
  const double error = (kSigmoid + 2 * kRounding) * kSecondOrder;
  for (std::uint32_t i = 0; i < kCount; ++i) {
    const double g = gate.data()[i], u = up.data()[i];
    EXPECT_NEAR(swiglu.data()[i], g * sigmoid(g) * u, error * std::fabs(g * sigmoid(g) * u));
    EXPECT_NEAR(gated.data()[i], u * sigmoid(g), error * std::fabs(u * sigmoid(g)));
    EXPECT_NEAR(squashed.data()[i], sigmoid(g), error * sigmoid(g));
    // The difference is rounded too; an error before an exponential is a relative error after it.
    EXPECT_NEAR(exponential.data()[i], std::exp(u - 1.5),
                (kExp + std::fabs(u - 1.5) * kRounding) * kSecondOrder * std::exp(u - 1.5));
  }
}

TEST(ScalarRows, SumsAreRoundedOnce) {
  Random random(5);
  constexpr std::uint32_t kCount = 1000;
  const Grid x = Grid::random(random, 1, kCount), a = Grid::random(random, 1, kCount);
  Grid sum(1, kCount), scaled(1, kCount);
  kScalarRows.add(x.data(), a.data(), kCount, sum.data());
  kScalarRows.add_scaled(x.data(), a.data(), 0.37f, kCount, scaled.data());
  for (std::uint32_t i = 0; i < kCount; ++i) {
    // Products and sums of floats of this size are exact in double.
    EXPECT_EQ(sum.data()[i], static_cast<float>(double{x.data()[i]} + a.data()[i]));
    EXPECT_EQ(scaled.data()[i], static_cast<float>(double{0.37f} * a.data()[i] + x.data()[i]));
  }
}

TEST(ScalarRows, RotateEachPairByItsAngle) {
  Random random(6);
  constexpr std::uint32_t kPairs = 37;
  Grid cos(1, kPairs), sin(1, kPairs);
  for (std::uint32_t i = 0; i < kPairs; ++i) {
    cos.data()[i] = static_cast<float>(std::cos(0.3 * i));
    sin.data()[i] = static_cast<float>(std::sin(0.3 * i));
  }
  const Grid x = Grid::random(random, 1, 2 * kPairs);
  Grid half = x, interleaved = x;
  kScalarRows.rope_half(half.data(), cos.data(), sin.data(), kPairs);
  kScalarRows.rope_interleaved(interleaved.data(), cos.data(), sin.data(), kPairs);

  const auto expect_turned = [&](const Grid& y, std::uint32_t pair, std::uint32_t first,
                                 std::uint32_t second) {
    const double a = x.data()[first], b = x.data()[second], c = cos.data()[pair], s = sin.data()[pair];
    const double error = 2 * kRounding * kSecondOrder;  // of a product, then of the sum
    EXPECT_NEAR(y.data()[first], a * c - b * s, error * (std::fabs(a * c) + std::fabs(b * s))) << pair;
    EXPECT_NEAR(y.data()[second], a * s + b * c, error * (std::fabs(a * s) + std::fabs(b * c))) << pair;
  };
  for (std::uint32_t i = 0; i < kPairs; ++i) {
    expect_turned(half, i, i, kPairs + i);
    expect_turned(interleaved, i, 2 * i, 2 * i + 1);
  }
}

}  // namespace
}  // namespace moeflux
