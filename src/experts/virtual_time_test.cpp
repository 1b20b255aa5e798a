// Time per token, in virtual time: scripted router choices, the shape of Qwen3.5-35B-A3B, fixed compute
// times, and a simulated drive.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "experts/testing/virtual_run.h"

namespace moeflux {
namespace {

using std::chrono::microseconds;

constexpr std::uint32_t kLayers = 40, kExperts = 256, kPerToken = 8;
constexpr std::uint64_t kRecordBytes = 1'769'472, kDownOffset = 1'179'648;
constexpr VirtualWork kWork{
    .before_router = microseconds(400), .shared = microseconds(60), .expert = microseconds(50)};
constexpr VirtualTime kComputePerToken =
    kLayers * (kWork.before_router + kWork.shared + kPerToken * kWork.expert);

ExpertTable table_of(std::uint32_t slots) {
  ExpertTable table;
  table.slabs = {{kRecordBytes, kDownOffset, slots}};
  for (std::uint32_t layer = 0; layer <= kLayers; ++layer) table.first_record.push_back(layer * kExperts);
  table.slab_of.assign(std::size_t{kLayers} * kExperts, 0);
  return table;
}

std::unique_ptr<ExpertScheduler> make_scheduler(std::uint32_t slots, SchedulerOptions options = {}) {
  return std::make_unique<ExpertScheduler>(table_of(slots), options,
                                           [](std::uint32_t n) { return std::make_unique<LruPolicy>(n); });
}

// Tokens whose layers choose kPerToken experts each: some from the previous token, the others by popularity.
std::vector<VirtualToken> make_script(std::size_t tokens, double again, double zipf, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> popularity(kExperts);
  for (std::uint32_t i = 0; i < kExperts; ++i) popularity[i] = std::pow(i + 1.0, -zipf);
  std::discrete_distribution<std::uint32_t> draw(popularity.begin(), popularity.end());
  std::bernoulli_distribution is_again(again);
  std::vector<VirtualToken> script;
  for (std::size_t token = 0; token < tokens; ++token) {
    VirtualToken layers(kLayers);
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      std::set<std::uint32_t> chosen;
      if (token > 0)
        for (const std::uint32_t expert : script[token - 1][layer])
          if (is_again(random)) chosen.insert(expert);
      while (chosen.size() < kPerToken) chosen.insert((draw(random) * 37 + layer * 11) % kExperts);
      layers[layer].assign(chosen.begin(), chosen.end());
    }
    script.push_back(std::move(layers));
  }
  return script;
}

SimulatedDriveSpeed speed_for(double bytes_per_token, double seconds_per_token) {
  return {static_cast<std::uint64_t>(bytes_per_token / seconds_per_token), microseconds(100)};
}

// A predictor that hints the next layers. It finds a share `recall` of the wanted experts and adds others so
// that a share `precision` of its hints is right.
VirtualRun::Guess predictor(const std::vector<VirtualToken>& script, double recall, double precision,
                            std::uint32_t layers_ahead, float confidence = 1) {
  return [&script, recall, precision, layers_ahead, confidence](std::size_t token, std::uint32_t layer,
                                                                ExpertScheduler& scheduler) {
    for (std::uint32_t ahead = 1; ahead <= layers_ahead; ++ahead) {
      // Every layer is hinted once, when it comes into range.
      if (layer != 0 && ahead != layers_ahead) continue;
      std::size_t at = layer + ahead, of_token = token;
      if (at >= kLayers) {
        at -= kLayers;
        ++of_token;
      }
      if (of_token >= script.size()) continue;
      if (layer == 0 && token != 0 && ahead != layers_ahead) continue;
      std::mt19937_64 random(of_token * 1000 + at);
      const std::vector<std::uint32_t>& wanted = script[of_token][at];
      std::vector<std::uint32_t> guess;
      std::bernoulli_distribution is_found(recall);
      for (const std::uint32_t expert : wanted)
        if (is_found(random)) guess.push_back(expert);
      const double others = precision > 0 ? static_cast<double>(guess.size()) * (1 - precision) / precision
                                          : static_cast<double>(kPerToken);
      std::uniform_int_distribution<std::uint32_t> any(0, kExperts - 1);
      for (double n = 0.5; n < others; n += 1) {
        std::uint32_t expert = any(random);
        while (std::ranges::count(wanted, expert) + std::ranges::count(guess, expert) != 0)
          expert = any(random);
        guess.push_back(expert);
      }
      std::ranges::shuffle(guess, random);
      scheduler.hint(LayerId(static_cast<std::uint32_t>(at)), guess, confidence);
    }
  };
}

struct Times {
  VirtualTime took{0}, bound{0}, compute{0}, read{0};
};

Times run(const std::vector<VirtualToken>& script, std::uint32_t slots, const SimulatedDriveSpeed& speed,
          const VirtualRun::Guess& guess = {}, std::size_t warm_up = 4) {
  const auto scheduler = make_scheduler(slots, {.speculates = static_cast<bool>(guess)});
  VirtualRun virtual_run(*scheduler, speed, kWork);
  Times times;
  for (std::size_t token = 0; token < script.size(); ++token) {
    const VirtualRun::Step step = virtual_run.step(token, script[token], guess);
    EXPECT_EQ(scheduler->find_inconsistency(), "");
    if (token < warm_up) continue;
    times.took += step.took;
    times.bound += step.bound;
    times.compute += step.compute;
    times.read += step.read;
  }
  return times;
}

double ratio(VirtualTime a, VirtualTime b) {
  return static_cast<double>(a.count()) / static_cast<double>(b.count());
}

// The average bytes per token that the script misses after warm-up.
double missed_bytes_per_token(const std::vector<VirtualToken>& script, std::uint32_t slots) {
  const SimulatedDriveSpeed any{1'000'000'000, microseconds(100)};
  const Times times = run(script, slots, any);
  return static_cast<double>(times.read.count()) / static_cast<double>(script.size() - 4);
}

struct Case {
  double reading_to_computing;
  std::uint32_t slots;
  double again;  // share of the experts that the next token chooses again
  double zipf;   // 0: all experts are equally popular
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << "reading:computing " << c.reading_to_computing << ", " << c.slots << " slots, again " << c.again
       << ", zipf " << c.zipf;
}

class VirtualTimes : public testing::TestWithParam<Case> {
 protected:
  const Case c = GetParam();
  const std::vector<VirtualToken> script = make_script(24, c.again, c.zipf, 1);
  const SimulatedDriveSpeed speed =
      speed_for(missed_bytes_per_token(script, c.slots),
                c.reading_to_computing* std::chrono::duration<double>(kComputePerToken).count());
  const Times without = run(script, c.slots, speed);
};

TEST_P(VirtualTimes, WithoutHintsHitsAreComputedWhileMissesAreRead) {
  EXPECT_LE(ratio(without.took, without.bound), 1.03);
}

TEST_P(VirtualTimes, WithAnOracleTheTimeIsTheLongerOfReadingAndComputing) {
  const Times times = run(script, c.slots, speed, predictor(script, 1, 1, 6));
  EXPECT_LE(ratio(times.took, std::max(without.read, without.compute)), 1.10);
}

TEST_P(VirtualTimes, AFairPredictorIsNeverSlowerThanNone) {
  const Times none = run(script, c.slots, speed, {}, 0);
  for (const std::uint32_t layers_ahead : {1u, 2u}) {
    const Times times = run(script, c.slots, speed, predictor(script, 0.8, 0.6, layers_ahead, 0.6F), 0);
    // In a cache of one token's experts or fewer, a wrong guess evicts a needed record and costs a little.
    const double most = c.slots > kLayers * kPerToken ? 1.0 : 1.001;
    EXPECT_LE(ratio(times.took, none.took), most) << layers_ahead << " layers ahead";
    // If nearly all right guesses are in memory already, most of the remaining ones are wrong. Then guesses
    // are read only as occasional probes.
    const Times later = run(script, c.slots, speed, predictor(script, 0.8, 0.6, layers_ahead, 0.6F));
    EXPECT_LE(ratio(later.took, without.took), 1.0005) << layers_ahead << " layers ahead";
  }
}

TEST_P(VirtualTimes, APredictorThatIsAlwaysWrongCostsAlmostNothing) {
  const Times from_the_start = run(script, c.slots, speed, {}, 0);
  const Times times = run(script, c.slots, speed, predictor(script, 0, 0, 1), 0);
  EXPECT_LE(ratio(times.took, from_the_start.took), 1.03);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const double ratio : {0.5, 1.0, 2.0})
    for (const std::uint32_t slots :
         {kLayers * kPerToken / 2, kLayers * kPerToken, kLayers * kExperts / 4, kLayers * kExperts / 2})
      for (const auto& [again, zipf] : {std::pair(0.3, 0.6), std::pair(0.0, 0.0), std::pair(0.6, 1.1)})
        all.push_back({ratio, slots, again, zipf});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Cases, VirtualTimes, testing::ValuesIn(cases()));

}  // namespace
}  // namespace moeflux
