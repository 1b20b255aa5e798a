#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "base/memory/aligned_buffer.h"
#include "kernels/scalar_tables.h"
#include "kernels/testing/grid.h"
#include "quant/delta_state.h"

namespace moeflux {
namespace {

using test::Grid;
using test::Numbers;
using test::Random;
using test::same_bits;

constexpr double kRounding = 0x1p-24, kExp = 4 * kRounding, kSecondOrder = 1.01;
constexpr Numbers kKinds[] = {Numbers::plain, Numbers::extreme, Numbers::non_finite};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// ---- The convolution ------------------------------------------------------------------------------------

struct Convolution {
  Grid x, weight, state;

  Convolution(Random& random, std::uint32_t rows, std::uint32_t channels, std::uint32_t width,
              Numbers kind = Numbers::plain)
      : x(Grid::random(random, rows, channels, 3, kind)),
        weight(Grid::random(random, channels, width, 0, kind)),
        state(Grid::random(random, width - 1, channels, 1, kind)) {}
};

struct Convolved {
  Grid y, state;
  explicit Convolved(const Convolution& in)
      : y(in.x.rows(), in.x.cols(), 2), state(in.state.rows(), in.state.cols(), 1) {}
};

// Computes rows [first, first + rows) from the state `before`.
void convolve(const DeltaNetKernels& kernels, const Convolution& in, std::size_t first, std::size_t rows,
              const Grid& before, Convolved& out) {
  kernels.conv({.x = in.x.row(first),
                .x_stride = in.x.stride(),
                .rows = static_cast<std::uint32_t>(rows),
                .channels = static_cast<std::uint32_t>(in.x.cols()),
                .width = static_cast<std::uint32_t>(in.weight.cols()),
                .weight = in.weight.data(),
                .state_in = before.data(),
                .state_out = out.state.data(),
                .state_stride = in.state.stride(),
                .y = out.y.row(first),
                .y_stride = out.y.stride()});
}

// The same without the state after the rows.
Grid convolve_only(const DeltaNetKernels& kernels, const Convolution& in) {
  Convolved out(in);
  kernels.conv({.x = in.x.data(),
                .x_stride = in.x.stride(),
                .rows = static_cast<std::uint32_t>(in.x.rows()),
                .channels = static_cast<std::uint32_t>(in.x.cols()),
                .width = static_cast<std::uint32_t>(in.weight.cols()),
                .weight = in.weight.data(),
                .state_in = in.state.data(),
                .state_stride = in.state.stride(),
                .y = out.y.data(),
                .y_stride = out.y.stride()});
  return out.y;
}

Convolved convolve(const DeltaNetKernels& kernels, const Convolution& in) {
  Convolved out(in);
  convolve(kernels, in, 0, in.x.rows(), in.state, out);
  return out;
}

class ConvolutionOnEveryIsa : public test::OnEveryIsa {};
INSTANTIATE_TEST_SUITE_P(, ConvolutionOnEveryIsa, testing::ValuesIn(compiled_kernels()), test::isa_name);

TEST_P(ConvolutionOnEveryIsa, MatchesScalar) {
  Random random(1);
  for (std::uint32_t channels = 1; channels <= 70; ++channels)
    for (const std::uint32_t width : {1u, 2u, 4u, 8u, 9u, 17u})
      for (const Numbers kind : kKinds) {
        const Convolution in(random, 1 + channels % 7, channels, width, kind);
        const Convolved expected = convolve(kScalarDeltaNet, in), out = convolve(*GetParam()->delta_net, in);
        EXPECT_TRUE(same_bits(out.y, expected.y)) << channels << " channels, " << width << " wide";
        EXPECT_TRUE(same_bits(out.state, expected.state)) << channels << " channels, " << width << " wide";
        EXPECT_TRUE(same_bits(convolve_only(*GetParam()->delta_net, in), expected.y)) << channels;
      }
}

TEST_P(ConvolutionOnEveryIsa, OfABatchMatchesRowByRow) {
  const DeltaNetKernels& kernels = *GetParam()->delta_net;
  EXPECT_TRUE(rc::check([&kernels] {
    Random random(*rc::gen::arbitrary<std::uint32_t>());
    const Convolution in(random, *rc::gen::inRange(1u, 9u), *rc::gen::inRange(1u, 40u),
                         *rc::gen::inRange(1u, 12u));
    Convolved stepwise(in);
    Grid before = in.state;
    for (std::size_t row = 0; row < in.x.rows(); ++row) {
      convolve(kernels, in, row, 1, before, stepwise);
      before = stepwise.state;
    }
    const Convolved at_once = convolve(kernels, in);
    RC_ASSERT(same_bits(stepwise.y, at_once.y));
    RC_ASSERT(same_bits(stepwise.state, at_once.state));
  }));
}

// One row, as in decoding, of more channels than the prefetch distance, with the new state at cache lines and
// elsewhere.
TEST_P(ConvolutionOnEveryIsa, OfOneRowMatchesScalarForAnyStateAlignment) {
  Random random(4);
  for (const std::uint32_t channels : {16u, 512u, 528u, 1040u, 1050u}) {
    const Convolution in(random, 1, channels, 4);
    const Convolved expected = convolve(kScalarDeltaNet, in);
    const std::size_t stride = (channels + 15) / 16 * 16;
    AlignedBuffer memory = *AlignedBuffer::create((3 * stride + 1) * sizeof(float));
    Convolved out(in);
    for (const std::size_t offset : {0u, 1u}) {
      float* const after = reinterpret_cast<float*>(memory.data()) + offset;
      Grid before(3, channels, stride - channels);
      for (std::size_t k = 0; k < 3; ++k) std::copy_n(in.state.row(k), channels, before.row(k));
      GetParam()->delta_net->conv({.x = in.x.data(),
                                   .x_stride = in.x.stride(),
                                   .rows = 1,
                                   .channels = channels,
                                   .width = 4,
                                   .weight = in.weight.data(),
                                   .state_in = before.data(),
                                   .state_out = after,
                                   .state_stride = stride,
                                   .y = out.y.data(),
                                   .y_stride = out.y.stride()});
      for (std::size_t k = 0; k < 3; ++k) std::copy_n(after + k * stride, channels, out.state.row(k));
      EXPECT_TRUE(same_bits(out.y, expected.y)) << channels << " channels, " << offset;
      EXPECT_TRUE(same_bits(out.state, expected.state)) << channels << " channels, " << offset;
    }
  }
}

TEST(ScalarConvolution, IsCloseToDouble) {
  Random random(2);
  for (const std::uint32_t width : {1u, 4u, 11u}) {
    const Convolution in(random, 20, 13, width);
    const Convolved out = convolve(kScalarDeltaNet, in);
    for (std::size_t t = 0; t < in.x.rows(); ++t)
      for (std::size_t c = 0; c < in.x.cols(); ++c) {
        double sum = 0, sizes = 0;
        for (std::size_t k = 0; k < width; ++k) {
          const std::size_t age = width - 1 - k;  // rows before this one
          const float input = age <= t ? in.x.row(t - age)[c] : in.state.row(width - 1 + t - age)[c];
          sum += double{input} * in.weight.row(c)[k];
          sizes += std::fabs(double{input} * in.weight.row(c)[k]);
        }
        // The slope of silu is at most 1.1; it adds the errors of an exponential, a sum and a quotient.
        const double silu = sum * sigmoid(sum);
        const double error = 1.1 * width * kRounding * sizes + (kExp + 2 * kRounding) * std::fabs(silu);
        EXPECT_NEAR(out.y.row(t)[c], silu, error * kSecondOrder) << t << ", " << c;
      }
  }
}

TEST(ScalarConvolution, StoresItsLastInputs) {
  Random random(3);
  const Convolution few(random, 2, 5, 4), many(random, 6, 5, 4);
  const Convolved after_few = convolve(kScalarDeltaNet, few), after_many = convolve(kScalarDeltaNet, many);
  for (std::size_t c = 0; c < 5; ++c) {
    EXPECT_EQ(after_few.state.row(0)[c], few.state.row(2)[c]);
    EXPECT_EQ(after_few.state.row(1)[c], few.x.row(0)[c]);
    EXPECT_EQ(after_few.state.row(2)[c], few.x.row(1)[c]);
    for (std::size_t row = 0; row < 3; ++row) EXPECT_EQ(after_many.state.row(row)[c], many.x.row(3 + row)[c]);
  }
}

// ---- The delta rule -------------------------------------------------------------------------------------

struct Head {
  Grid queries, keys, values, decay, beta, state;

  Head(Random& random, std::uint32_t rows, std::uint32_t key_dim, std::uint32_t value_dim,
       Numbers kind = Numbers::plain)
      : queries(Grid::random(random, rows, key_dim, 3, kind)),
        keys(Grid::random(random, rows, key_dim, 1, kind)),
        values(Grid::random(random, rows, value_dim, 2, kind)),
        decay(Grid::random(random, rows, 1, 4, kind)),
        beta(Grid::random(random, rows, 1, 6, kind)),
        state(Grid::random(random, key_dim, value_dim, 0, kind)) {}
};

// The entry of the state for a key and a channel; `state` is its memory.
float number_of(const Grid& state, std::size_t key, std::size_t value) {
  return state.data()[DeltaStateShape{state.rows(), state.cols()}.place(key, value)];
}

struct Recalled {
  Grid y, state;
  explicit Recalled(const Head& in)
      : y(in.values.rows(), in.values.cols(), 5), state(in.state.rows(), in.state.cols()) {}
};

void recall(const DeltaNetKernels& kernels, const Head& in, std::size_t first, std::size_t rows,
            const Grid& before, Recalled& out) {
  kernels.delta_rule({.queries = in.queries.row(first),
                      .keys = in.keys.row(first),
                      .values = in.values.row(first),
                      .query_stride = in.queries.stride(),
                      .key_stride = in.keys.stride(),
                      .value_stride = in.values.stride(),
                      .decay = in.decay.row(first),
                      .beta = in.beta.row(first),
                      .decay_stride = in.decay.stride(),
                      .beta_stride = in.beta.stride(),
                      .rows = static_cast<std::uint32_t>(rows),
                      .key_dim = static_cast<std::uint32_t>(in.keys.cols()),
                      .value_dim = static_cast<std::uint32_t>(in.values.cols()),
                      .state_in = before.data(),
                      .state_out = out.state.data(),
                      .y = out.y.row(first),
                      .y_stride = out.y.stride()});
}

Recalled recall(const DeltaNetKernels& kernels, const Head& in) {
  Recalled out(in);
  recall(kernels, in, 0, in.keys.rows(), in.state, out);
  return out;
}

testing::AssertionResult same_bits(const Recalled& a, const Recalled& b) {
  const auto same = same_bits(a.y, b.y);
  return same ? same_bits(a.state, b.state) : same;
}

class DeltaRuleOnEveryIsa : public test::OnEveryIsa {};
INSTANTIATE_TEST_SUITE_P(, DeltaRuleOnEveryIsa, testing::ValuesIn(compiled_kernels()), test::isa_name);

TEST_P(DeltaRuleOnEveryIsa, MatchesScalar) {
  Random random(4);
  for (std::uint32_t dim = 1; dim <= 70; ++dim)
    for (const Numbers kind : kKinds) {
      const Head in(random, 1 + dim % 4, 71 - dim, dim, kind);
      EXPECT_TRUE(same_bits(recall(*GetParam()->delta_net, in), recall(kScalarDeltaNet, in)))
          << 71 - dim << " and " << dim;
    }
  for (const std::uint32_t dim : {64u, 128u, 256u, 251u})
    for (const std::uint32_t key_dim : {128u, 300u}) {
      const Head in(random, 3, key_dim, dim);
      EXPECT_TRUE(same_bits(recall(*GetParam()->delta_net, in), recall(kScalarDeltaNet, in)))
          << key_dim << " and " << dim;
    }
}

TEST_P(DeltaRuleOnEveryIsa, OfABatchMatchesRowByRow) {
  const DeltaNetKernels& kernels = *GetParam()->delta_net;
  EXPECT_TRUE(rc::check([&kernels] {
    Random random(*rc::gen::arbitrary<std::uint32_t>());
    const Head in(random, *rc::gen::inRange(1u, 9u), *rc::gen::inRange(1u, 40u), *rc::gen::inRange(1u, 100u));
    Recalled stepwise(in);
    stepwise.state = in.state;
    // The state may be updated in place.
    for (std::size_t row = 0; row < in.keys.rows(); ++row)
      recall(kernels, in, row, 1, stepwise.state, stepwise);
    RC_ASSERT(same_bits(stepwise, recall(kernels, in)));
  }));
}

// ---- One row of many heads ------------------------------------------------------------------------------

// Heads of one row; their states are consecutive, as in a session.
struct Step {
  std::vector<Head> heads;
  AlignedBuffer states;  // those before, then those after
  std::size_t state_size;

  Step(Random& random, std::size_t count, std::uint32_t key_dim, std::uint32_t value_dim,
       Numbers kind = Numbers::plain)
      : state_size(std::size_t{key_dim} * value_dim) {
    for (std::size_t i = 0; i < count; ++i) heads.emplace_back(random, 1, key_dim, value_dim, kind);
    states = *AlignedBuffer::create(2 * count * state_size * sizeof(float));
    for (std::size_t i = 0; i < count; ++i) std::copy_n(heads[i].state.data(), state_size, before(i));
  }
  float* before(std::size_t head) { return reinterpret_cast<float*>(states.data()) + head * state_size; }
  float* after(std::size_t head) { return before(heads.size() + head); }
};

// The outputs of a step, and its states afterwards: in the second half of its memory, or in place.
std::vector<Recalled> take(const DeltaNetKernels& kernels, Step& step, bool in_place = false) {
  std::vector<DeltaHead> heads;
  std::vector<Recalled> out;
  for (const Head& head : step.heads) out.emplace_back(head);
  for (std::size_t i = 0; i < step.heads.size(); ++i) {
    const Head& in = step.heads[i];
    heads.push_back({in.queries.row(0), in.keys.row(0), in.values.row(0), in.decay.row(0)[0],
                     in.beta.row(0)[0], step.before(i), in_place ? step.before(i) : step.after(i),
                     out[i].y.row(0)});
  }
  kernels.delta_step({heads.data(), heads.size(), static_cast<std::uint32_t>(step.heads[0].keys.cols()),
                      static_cast<std::uint32_t>(step.heads[0].values.cols())});
  for (std::size_t i = 0; i < heads.size(); ++i)
    std::copy_n(heads[i].state_out, step.state_size, out[i].state.data());
  return out;
}

class DeltaStepOnEveryIsa : public test::OnEveryIsa {};
INSTANTIATE_TEST_SUITE_P(, DeltaStepOnEveryIsa, testing::ValuesIn(compiled_kernels()), test::isa_name);

TEST_P(DeltaStepOnEveryIsa, MatchesTheDeltaRuleOfEachHead) {
  const DeltaNetKernels& kernels = *GetParam()->delta_net;
  Random random(9);
  constexpr std::pair<std::uint32_t, std::uint32_t> kShapes[] = {
      {128, 128}, {8, 64}, {16, 16}, {24, 256}, {40, 192}, {128, 512}, {12, 64}, {7, 64}, {64, 20}, {1, 1}};
  for (const auto& [key_dim, value_dim] : kShapes)
    for (const std::size_t count : {1u, 2u, 3u, 33u})
      for (const Numbers kind : kKinds) {
        Step step(random, count, key_dim, value_dim, kind);
        const std::vector<Recalled> out = take(kernels, step);
        for (std::size_t i = 0; i < count; ++i)
          EXPECT_TRUE(same_bits(out[i], recall(kScalarDeltaNet, step.heads[i])))
              << key_dim << " and " << value_dim << ", head " << i << " of " << count;
      }
}

TEST_P(DeltaStepOnEveryIsa, DoesNotChangeTheStateBefore) {
  Random random(10);
  Step step(random, 5, 128, 128);
  take(*GetParam()->delta_net, step);
  for (std::size_t i = 0; i < 5; ++i)
    EXPECT_EQ(std::memcmp(step.before(i), step.heads[i].state.data(), step.state_size * sizeof(float)), 0)
        << i;
}

TEST_P(DeltaStepOnEveryIsa, MayUpdateTheStateInPlace) {
  Random random(11);
  Step step(random, 5, 128, 128);
  const std::vector<Recalled> out = take(*GetParam()->delta_net, step, true);
  for (std::size_t i = 0; i < 5; ++i)
    EXPECT_TRUE(same_bits(out[i], recall(kScalarDeltaNet, step.heads[i]))) << i;
}

// ---- In double arithmetic -------------------------------------------------------------------------------

// The rule for one value channel in double arithmetic, with a bound on the error of a float computation:
// every line adds the error of its inputs and that of its own rounding.
class Channel {
 public:
  Channel(const Head& in, std::size_t v) : in_(in), v_(v) {
    for (std::size_t k = 0; k < in.state.rows(); ++k) {
      state_.push_back(double{number_of(in.state, k, v)});
      error_.push_back(0);
    }
  }

  void expect_row(std::size_t t, float found) {
    const double decay = in_.decay.row(t)[0], beta = in_.beta.row(t)[0];
    for (std::size_t k = 0; k < state_.size(); ++k) {
      error_[k] = rounded(error_[k] * std::fabs(decay), state_[k] * decay);
      state_[k] *= decay;
    }
    const Sum remembered = product(in_.keys.row(t));
    const double missing = in_.values.row(t)[v_] - remembered.value, delta = missing * beta;
    const double delta_error = rounded(rounded(remembered.error, missing) * std::fabs(beta), delta);
    for (std::size_t k = 0; k < state_.size(); ++k) {
      const double key = in_.keys.row(t)[k];
      state_[k] += key * delta;
      error_[k] = rounded(error_[k] + std::fabs(key) * delta_error, state_[k]);
    }
    const Sum y = product(in_.queries.row(t));
    EXPECT_NEAR(found, y.value, y.error) << "row " << t << ", channel " << v_;
  }
  void expect_state(const Grid& found) const {
    for (std::size_t k = 0; k < state_.size(); ++k)
      EXPECT_NEAR(number_of(found, k, v_), state_[k], error_[k]) << k << ", " << v_;
  }

 private:
  struct Sum {
    double value = 0, error = 0;
  };
  static double rounded(double error, double value) { return error + kRounding * (std::fabs(value) + error); }
  // A product in four chains goes through the roundings of its chain and of two sums.
  Sum product(const float* row) const {
    Sum sum;
    const double roundings = (static_cast<double>(state_.size()) / 4 + 1 + 2) * kRounding * kSecondOrder;
    for (std::size_t k = 0; k < state_.size(); ++k) {
      const double x = row[k];
      sum.value += state_[k] * x;
      sum.error += (error_[k] + roundings * (std::fabs(state_[k]) + error_[k])) * std::fabs(x);
    }
    return sum;
  }

  const Head& in_;
  std::size_t v_;
  std::vector<double> state_, error_;
};

TEST(ScalarDeltaRule, IsCloseToDouble) {
  Random random(5);
  for (const auto& [key_dim, value_dim] :
       {std::pair{1u, 1u}, std::pair{7u, 3u}, std::pair{128u, 20u}, std::pair{9u, 40u}}) {
    Head in(random, 6, key_dim, value_dim);
    for (std::size_t t = 0; t < in.keys.rows(); ++t) {
      in.decay.row(t)[0] = 0.5f + 0.25f * std::fabs(in.decay.row(t)[0]);
      in.beta.row(t)[0] = 0.5f * std::fabs(in.beta.row(t)[0]);
      for (std::size_t k = 0; k < key_dim; ++k) in.keys.row(t)[k] /= std::sqrt(static_cast<float>(key_dim));
    }
    const Recalled out = recall(kScalarDeltaNet, in);
    for (std::size_t v = 0; v < value_dim; ++v) {
      Channel channel(in, v);
      for (std::size_t t = 0; t < in.keys.rows(); ++t) channel.expect_row(t, out.y.row(t)[v]);
      channel.expect_state(out.state);
    }
  }
}

TEST(ScalarDeltaRule, RecallsAValueByItsKey) {
  Random random(6);
  Head in(random, 1, 4, 3);
  for (std::size_t k = 0; k < 4; ++k) in.keys.row(0)[k] = in.queries.row(0)[k] = k == 2 ? 1.0f : 0.0f;
  in.decay.row(0)[0] = in.beta.row(0)[0] = 1;
  const Recalled out = recall(kScalarDeltaNet, in);
  for (std::size_t v = 0; v < 3; ++v) EXPECT_NEAR(out.y.row(0)[v], in.values.row(0)[v], 1e-6);
}

// ---- Decay and beta -------------------------------------------------------------------------------------

class DecayBetaOnEveryIsa : public test::OnEveryIsa {};
INSTANTIATE_TEST_SUITE_P(, DecayBetaOnEveryIsa, testing::ValuesIn(compiled_kernels()), test::isa_name);

TEST_P(DecayBetaOnEveryIsa, MatchesScalar) {
  Random random(7);
  for (std::uint32_t n = 1; n <= 70; ++n)
    for (const Numbers kind : kKinds) {
      const Grid a = Grid::random(random, 1, n, 0, kind), b = Grid::random(random, 1, n, 0, kind),
                 rate = Grid::random(random, 1, n, 0, kind), dt_bias = Grid::random(random, 1, n, 0, kind);
      Grid decay(1, n), beta(1, n), expected_decay(1, n), expected_beta(1, n);
      kScalarDeltaNet.decay_beta(a.data(), b.data(), rate.data(), dt_bias.data(), n, expected_decay.data(),
                                 expected_beta.data());
      GetParam()->delta_net->decay_beta(a.data(), b.data(), rate.data(), dt_bias.data(), n, decay.data(),
                                        beta.data());
      EXPECT_TRUE(same_bits(decay, expected_decay)) << n;
      EXPECT_TRUE(same_bits(beta, expected_beta)) << n;
    }
}

TEST_P(DecayBetaOnEveryIsa, MatchesScalarForFloatsOfEverySize) {
  constexpr std::uint32_t kStep = 4099, kCount = 0xffffffffu / kStep;
  Grid a(1, kCount), rate(1, kCount), zero(1, kCount);
  for (std::uint32_t i = 0; i < kCount; ++i) {
    a.data()[i] = std::bit_cast<float>(i * kStep);
    rate.data()[i] = i % 2 == 0 ? -1.0f : -0.01f;  // the second makes large logarithms visible
    zero.data()[i] = 0.0f;
  }
  Grid decay(1, kCount), beta(1, kCount), expected_decay(1, kCount), expected_beta(1, kCount);
  kScalarDeltaNet.decay_beta(a.data(), a.data(), rate.data(), zero.data(), kCount, expected_decay.data(),
                             expected_beta.data());
  GetParam()->delta_net->decay_beta(a.data(), a.data(), rate.data(), zero.data(), kCount, decay.data(),
                                    beta.data());
  EXPECT_TRUE(same_bits(decay, expected_decay));
  EXPECT_TRUE(same_bits(beta, expected_beta));
}

TEST(ScalarDecayBeta, IsCloseToDouble) {
  Random random(8);
  constexpr std::uint32_t kCount = 3000;
  Grid a = Grid::random(random, 1, kCount), rate = Grid::random(random, 1, kCount);
  const Grid b = Grid::random(random, 1, kCount), dt_bias = Grid::random(random, 1, kCount);
  for (std::uint32_t i = 0; i < kCount; ++i) {
    a.data()[i] *= 10;
    rate.data()[i] = -std::fabs(rate.data()[i]);
  }
  Grid decay(1, kCount), beta(1, kCount);
  kScalarDeltaNet.decay_beta(a.data(), b.data(), rate.data(), dt_bias.data(), kCount, decay.data(),
                             beta.data());
  for (std::uint32_t i = 0; i < kCount; ++i) {
    const double x = double{a.data()[i]} + dt_bias.data()[i], r = rate.data()[i];
    const double softplus = std::log1p(std::exp(x));
    // The rounding of the sum passes through softplus, whose slope is a sigmoid. Softplus adds the errors of
    // an exponential, of a logarithm with as many units, and of a sum; then comes the product. All errors are
    // relative to the decay, because they are in its exponent.
    const double exponent_error =
        std::fabs(r) * (std::fabs(x) * kRounding * sigmoid(x) + softplus * (2 * kExp + 2 * kRounding));
    const double expected = std::exp(r * softplus);
    EXPECT_NEAR(decay.data()[i], expected, expected * (exponent_error + kExp) * kSecondOrder) << x;
    const double gate = sigmoid(b.data()[i]);
    EXPECT_NEAR(beta.data()[i], gate, gate * (kExp + 2 * kRounding) * kSecondOrder);
  }
}

}  // namespace
}  // namespace moeflux
