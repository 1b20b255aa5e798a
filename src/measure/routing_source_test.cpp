#include "measure/routing_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "base/testing/allocation_counter.h"
#include "base/testing/expect_contract.h"
#include "base/testing/states.h"
#include "io/posix_file_system.h"
#include "io/testing/temporary_directory.h"
#include "measure/routing_recording.h"

namespace moeflux {
namespace {

using test::States;

using Ids = std::vector<std::uint32_t>;

RoutingShape shape_with(std::uint32_t experts, std::uint32_t experts_per_token, std::uint32_t layers = 3) {
  RoutingShape shape{layers, experts, experts_per_token, {}};
  for (std::uint32_t layer = 0; layer < layers; ++layer) shape.routed.emplace_back(layer);
  return shape;
}

Ids choose(RoutingOverride& routing, const RoutingShape& shape, std::uint32_t layer, std::uint32_t rows) {
  Ids chosen(std::size_t{rows} * shape.experts_per_token);
  std::vector<float> weights(chosen.size());
  routing.choose(LayerId(layer), shape.experts, shape.experts_per_token, chosen, weights);
  return chosen;
}

// How often each expert is among `chosen`.
std::vector<double> counts_of(const Ids& chosen, std::uint32_t experts) {
  std::vector<double> counts(experts);
  for (const std::uint32_t expert : chosen) ++counts[expert];
  return counts;
}

// A count of `tries` independent events of `probability` is further than this from its mean once in a million
// times. The seed is fixed, so the tests do not flake.
double five_sigma(double tries, double probability) {
  return 5 * std::sqrt(tries * probability * (1 - probability)) + 1;
}

std::string refusal(std::string_view text) {
  const Result<RoutingChoice> choice = parse_routing(text);
  if (choice) return "it is accepted";
  EXPECT_EQ(choice.error().code(), ErrorCode::invalid_argument);
  return choice.error().message();
}

TEST(ParseRouting, ParsesFourKinds) {
  EXPECT_EQ(*parse_routing("model"), RoutingChoice(ModelRoutes{}));
  EXPECT_EQ(*parse_routing("uniform"), RoutingChoice(UniformRoutes{}));
  EXPECT_EQ(*parse_routing("zipf:1.1"), RoutingChoice(ZipfRoutes{1.1}));
  EXPECT_EQ(*parse_routing("zipf:0"), RoutingChoice(ZipfRoutes{0}));
  EXPECT_EQ(*parse_routing("zipf:10"), RoutingChoice(ZipfRoutes{10}));
  EXPECT_EQ(*parse_routing("trace:a/b:c"), RoutingChoice(RecordedRoutes{"a/b:c"}));
}

TEST(ParseRouting, StatesWhatItExpects) {
  EXPECT_THAT(refusal("zipf:-1"), States("zipf:S", 0, 10, "'zipf:-1'"));
  for (const char* text :
       {"zipf:", "zipf:x", "zipf:1x", "zipf: 1", "zipf:nan", "zipf:inf", "zipf:10.001", "zipf:1e400"})
    EXPECT_THAT(refusal(text), States("zipf:S", 0, 10));
  EXPECT_THAT(refusal("random"), States("model", "uniform", "zipf:S", "trace:FILE", "'random'"));
  for (const char* text : {"", "Model", "model ", "uniform:1", "zipf", "trace", "trace:", ":", "model:"})
    EXPECT_THAT(refusal(text), States("model", "uniform", "zipf:S", "trace:FILE"));
  EXPECT_LT(refusal(std::string(100'000, '\n')).size(), 300);
}

MoeConfig experts(std::uint32_t count, std::uint32_t per_token) {
  return {count, per_token, 64, SoftmaxRouterConfig{}, {}};
}

ModelConfig model_of(const std::vector<MlpConfig>& mlps) {
  ModelConfig config{Family::qwen3_5_moe, 64, 100, 100, 1e-6, false, {}, {}};
  for (const MlpConfig& mlp : mlps) config.layers.push_back({GatedDeltaNetConfig{1, 1, 8, 8, 4}, mlp});
  return config;
}

TEST(RoutingShapeOf, CountsTheLayersThatHaveExperts) {
  const ModelConfig config = model_of({DenseMlpConfig{64}, experts(8, 2), experts(8, 2)});
  const Result<RoutingShape> shape = routing_shape_of(config);
  ASSERT_TRUE(shape);
  EXPECT_EQ(*shape, (RoutingShape{3, 8, 2, {LayerId(1), LayerId(2)}}));
  EXPECT_EQ(to_text(*shape), "3 layers, 2 of them with 8 experts, 2 per token");
  EXPECT_EQ(routing_shape_of(config, 1)->experts_per_token, 1);
  EXPECT_EQ(routing_shape_of(config, 5)->experts_per_token, 2)
      << "never more than the model was trained with";
}

TEST(RoutingShapeOf, RejectsModelsWithoutExperts) {
  const Result<RoutingShape> dense = routing_shape_of(model_of({DenseMlpConfig{64}}));
  ASSERT_FALSE(dense);
  EXPECT_EQ(dense.error().code(), ErrorCode::unsupported);
  EXPECT_THAT(dense, States("1 layers", "experts"));
  const Result<RoutingShape> mixed = routing_shape_of(model_of({experts(8, 2), experts(16, 2)}));
  ASSERT_FALSE(mixed);
  EXPECT_THAT(mixed, States("layer 0", "8 experts", "layer 1", 16));
}

TEST(MakeRouting, IsNullForTheModelsOwn) {
  PosixFileSystem files;
  const auto routing = make_routing(files, ModelRoutes{}, shape_with(8, 2), 1);
  ASSERT_TRUE(routing);
  EXPECT_EQ(*routing, nullptr);
}

TEST(MakeRouting, GivesWhatWasAskedFor) {
  const TemporaryDirectory folder;
  PosixFileSystem files;
  const RoutingShape shape = shape_with(8, 2, 1);
  const std::filesystem::path file = folder.write("a", "moeflux routing 1 1 8 2\n0 0 3 6\n");
  const auto uniform = make_routing(files, UniformRoutes{}, shape, 1);
  const auto zipf = make_routing(files, ZipfRoutes{2}, shape, 1);
  const auto recording = make_routing(files, RecordedRoutes{file}, shape, 1);
  ASSERT_TRUE(uniform && zipf && recording);
  UniformRouting same_uniform(shape, 1);
  ZipfRouting same_zipf(shape, 2, 1);
  EXPECT_EQ(choose(**uniform, shape, 0, 50), choose(same_uniform, shape, 0, 50));
  EXPECT_EQ(choose(**zipf, shape, 0, 50), choose(same_zipf, shape, 0, 50));
  EXPECT_EQ(choose(**recording, shape, 0, 1), (Ids{3, 6}));
}

TEST(MakeRouting, NamesTheRecordingThatItCannotPlay) {
  const TemporaryDirectory folder;
  PosixFileSystem files;
  const std::filesystem::path file = folder.write("b.routing", "moeflux routing 1 1 8 2\n0 0 3 6\n");
  const auto other = make_routing(files, RecordedRoutes{file}, shape_with(9, 2, 1), 1);
  ASSERT_FALSE(other);
  EXPECT_THAT(other, States("b.routing", "9 experts", "8 experts"));
  EXPECT_FALSE(make_routing(files, RecordedRoutes{folder / "missing"}, shape_with(8, 2, 1), 1));
}

// Properties of both random routings.
template <class Make>
void expect_drawn_well(const Make& make) {
  const RoutingShape shape =
      shape_with(*rc::gen::element(1u, 2u, 3u, 8u, 65u, 512u), 1, *rc::gen::inRange(1u, 4u));
  RoutingShape drawn = shape;
  drawn.experts_per_token = *rc::gen::inRange(1u, std::min(shape.experts, 12u) + 1);
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const auto once = make(drawn, seed), again = make(drawn, seed);
  for (std::uint32_t layer = 0; layer < drawn.layers; ++layer) {
    const Ids chosen = choose(*once, drawn, layer, 7);
    for (std::size_t at = 0; at < chosen.size(); at += drawn.experts_per_token) {
      const auto row = std::span(chosen).subspan(at, drawn.experts_per_token);
      RC_ASSERT(std::ranges::adjacent_find(row, std::greater_equal<>()) == row.end());
      RC_ASSERT(row.back() < drawn.experts);
    }
  }
  // The same with other chunks, and the layers in reverse order.
  std::vector<Ids> first(drawn.layers);
  for (std::uint32_t layer = drawn.layers; layer-- > 0;)
    for (const std::uint32_t rows : {1u, 4u, 2u}) {
      const Ids chosen = choose(*again, drawn, layer, rows);
      first[layer].insert(first[layer].end(), chosen.begin(), chosen.end());
    }
  const auto third = make(drawn, seed);
  for (std::uint32_t layer = 0; layer < drawn.layers; ++layer)
    RC_ASSERT(choose(*third, drawn, layer, 7) == first[layer]);
}

RC_GTEST_PROP(UniformRouting, ChoosesAscendingExpertsByTheSeed, ()) {
  expect_drawn_well([](const RoutingShape& shape, std::uint64_t seed) {
    return std::make_unique<UniformRouting>(shape, seed);
  });
}

RC_GTEST_PROP(ZipfRouting, ChoosesAscendingExpertsByTheSeed, ()) {
  const double exponent = *rc::gen::element(0.0, 0.5, 1.1, 3.0, kMaxZipfExponent);
  expect_drawn_well([=](const RoutingShape& shape, std::uint64_t seed) {
    return std::make_unique<ZipfRouting>(shape, exponent, seed);
  });
}

TEST(UniformRouting, ChoosesEveryExpertAndEveryPairEquallyOften) {
  const RoutingShape shape = shape_with(6, 2);
  UniformRouting routing(shape, 42);
  constexpr std::uint32_t kRows = 30'000;
  const Ids chosen = choose(routing, shape, 1, kRows);
  for (const double count : counts_of(chosen, 6)) EXPECT_NEAR(count, kRows / 3.0, five_sigma(kRows, 1 / 3.0));
  std::vector<double> pairs(36);
  for (std::size_t at = 0; at < chosen.size(); at += 2) ++pairs[chosen[at] * 6 + chosen[at + 1]];
  for (std::uint32_t a = 0; a < 6; ++a)
    for (std::uint32_t b = a + 1; b < 6; ++b)
      EXPECT_NEAR(pairs[a * 6 + b], kRows / 15.0, five_sigma(kRows, 1 / 15.0)) << a << " " << b;
}

TEST(UniformRouting, DiffersByLayerRowAndSeed) {
  const RoutingShape shape = shape_with(512, 10);
  UniformRouting routing(shape, 1), other(shape, 2);
  const Ids rows = choose(routing, shape, 0, 2);
  EXPECT_NE(Ids(rows.begin(), rows.begin() + 10), Ids(rows.begin() + 10, rows.end()));
  EXPECT_NE(rows, choose(routing, shape, 1, 2));
  EXPECT_NE(rows, choose(other, shape, 0, 2));
}

TEST(UniformRouting, TakesAllWhenARowVisitsAll) {
  const RoutingShape shape = shape_with(9, 9);
  UniformRouting routing(shape, 1);
  Ids all(9);
  std::iota(all.begin(), all.end(), 0u);
  EXPECT_EQ(choose(routing, shape, 2, 1), all);
}

TEST(ZipfRouting, WantsTheRthExpertInProportionToItsRank) {
  const RoutingShape shape = shape_with(50, 1);
  constexpr double kExponent = 1.2;
  constexpr std::uint32_t kRows = 50'000;
  ZipfRouting routing(shape, kExponent, 7);
  double total = 0;
  for (int rank = 1; rank <= 50; ++rank) total += std::pow(rank, -kExponent);
  for (const std::uint32_t layer : {0u, 2u}) {
    const std::vector<double> counts = counts_of(choose(routing, shape, layer, kRows), 50);
    const auto order = routing.by_popularity(LayerId(layer));
    for (std::uint32_t rank = 0; rank < 50; ++rank) {
      const double probability = std::pow(rank + 1, -kExponent) / total;
      EXPECT_NEAR(counts[order[rank]], kRows * probability, five_sigma(kRows, probability)) << rank;
    }
  }
}

TEST(ZipfRouting, DrawsTheSecondFromTheRest) {
  // Popularities 1, 1/2, 1/3: the pair {a, b} has p(a) p(b) / (1 - p(a)) + p(b) p(a) / (1 - p(b)).
  const RoutingShape shape = shape_with(3, 2);
  constexpr std::uint32_t kRows = 30'000;
  ZipfRouting routing(shape, 1, 3);
  const auto order = routing.by_popularity(LayerId(0));
  const Ids chosen = choose(routing, shape, 0, kRows);
  const double p[] = {6 / 11.0, 3 / 11.0, 2 / 11.0};
  for (const auto& [a, b] : {std::pair{0u, 1u}, {0u, 2u}, {1u, 2u}}) {
    const Ids pair{std::min(order[a], order[b]), std::max(order[a], order[b])};
    double count = 0;
    for (std::size_t at = 0; at < chosen.size(); at += 2)
      count += std::equal(pair.begin(), pair.end(), &chosen[at]);
    const double probability = p[a] * p[b] / (1 - p[a]) + p[b] * p[a] / (1 - p[b]);
    EXPECT_NEAR(count, kRows * probability, five_sigma(kRows, probability));
  }
}

TEST(ZipfRouting, HasOtherFavouritesInEveryLayerAndForEverySeed) {
  const RoutingShape shape = shape_with(512, 10, 20);
  const ZipfRouting routing(shape, 1, 1), other(shape, 1, 2);
  std::set<std::uint32_t> favourites;
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    const auto order = routing.by_popularity(LayerId(layer));
    const std::set<std::uint32_t> all(order.begin(), order.end());
    EXPECT_EQ(all.size(), 512) << "each expert once";
    EXPECT_EQ(*all.rbegin(), 511);
    EXPECT_FALSE(std::ranges::equal(order, other.by_popularity(LayerId(layer))));
    favourites.insert(order.front());
  }
  EXPECT_GT(favourites.size(), 10);
}

TEST(ZipfRouting, WithAnExponentOfZeroIsUniform) {
  const RoutingShape shape = shape_with(6, 2);
  ZipfRouting routing(shape, 0, 42);
  constexpr std::uint32_t kRows = 30'000;
  for (const double count : counts_of(choose(routing, shape, 1, kRows), 6))
    EXPECT_NEAR(count, kRows / 3.0, five_sigma(kRows, 1 / 3.0));
}

TEST(ZipfRouting, EndsWhenARowVisitsAllHoweverUnpopular) {
  const RoutingShape shape = shape_with(1000, 1000, 1);
  ZipfRouting routing(shape, kMaxZipfExponent, 1);
  Ids all(1000);
  std::iota(all.begin(), all.end(), 0u);
  EXPECT_EQ(choose(routing, shape, 0, 1), all);
  EXPECT_EQ(choose(routing, shape, 0, 1), all) << "and all are there again";
}

struct Drawn : testing::Test {
  const RoutingShape shape = shape_with(64, 4);
  UniformRouting uniform{shape, 1};
  ZipfRouting zipf{shape, 1.1, 1};
  Ids chosen = Ids(40);
  std::vector<float> weights = std::vector<float>(40);
};

TEST_F(Drawn, ChoicesLeaveWeightsWhereTheyAre) {
  std::iota(weights.begin(), weights.end(), 0.0f);
  const std::vector<float> before = weights;
  uniform.choose(LayerId(0), 64, 4, chosen, weights);
  zipf.choose(LayerId(0), 64, 4, chosen, weights);
  EXPECT_EQ(weights, before);
}

TEST_F(Drawn, ChoicesAllocateNothing) {
  const AllocationCounter counter;
  uniform.choose(LayerId(0), 64, 4, chosen, weights);
  zipf.choose(LayerId(0), 64, 4, chosen, weights);
  EXPECT_EQ(counter.allocations(), 0);
}

TEST_F(Drawn, ChoicesArePromisedTheModelTheyWereMadeFor) {
  EXPECT_CONTRACT(uniform.choose(LayerId(0), 65, 4, chosen, weights), "the model has the experts");
  EXPECT_CONTRACT(uniform.choose(LayerId(3), 64, 4, chosen, weights), "the layer is one of the model's");
  EXPECT_CONTRACT(zipf.choose(LayerId(3), 64, 4, chosen, weights), "the layer is one of the model's");
  EXPECT_CONTRACT(zipf.choose(LayerId(0), 64, 7, chosen, weights), "rows are whole");
  EXPECT_CONTRACT(ZipfRouting(shape, -1, 1), "the exponent is one that parse_routing gives");
}

}  // namespace
}  // namespace moeflux
