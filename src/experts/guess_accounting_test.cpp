#include "experts/guess_accounting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace moeflux {
namespace {

using testing::ElementsAre;

constexpr float kSure = 1, kUnlikely = 0.05F;

class Guesses : public testing::Test {
 protected:
  // A predictor whose hints are no longer read because most were wrong.
  void lose_trust() {
    for (int i = 0; i < 64; ++i) guesses.refute();
  }
  // The fetches below `end` in which a guess may be read; each one turns out as `is_right` says.
  std::vector<std::uint64_t> reads_until(std::uint64_t end, bool is_right) {
    std::vector<std::uint64_t> reads;
    for (; fetch < end; ++fetch) {
      if (!guesses.allows_read(kSure, fetch)) continue;
      reads.push_back(fetch);
      is_right ? guesses.confirm() : guesses.refute();
    }
    return reads;
  }
  ExpertStatistics statistics() const {
    ExpertStatistics sum;
    guesses.add_to(sum);
    return sum;
  }

  GuessAccounting guesses;
  std::uint64_t fetch = 0;
};

TEST_F(Guesses, OfANewPredictorAreTrustedAndRead) {
  EXPECT_TRUE(guesses.is_trusted());
  EXPECT_FALSE(guesses.is_certain(kSure));
  EXPECT_TRUE(guesses.allows_read(kSure, 0));
  EXPECT_TRUE(guesses.allows_read(GuessAccounting::kLeastConfidence, 0));
}

TEST_F(Guesses, OfLittleConfidenceAreNotRead) {
  EXPECT_FALSE(guesses.allows_read(kUnlikely, 0));
  EXPECT_FALSE(guesses.allows_read(kUnlikely, 1'000'000));
}

TEST_F(Guesses, AreCertainOnlyIfTheHintAndThePredictorAre) {
  for (int i = 0; i < 64; ++i) guesses.confirm();
  EXPECT_TRUE(guesses.is_certain(kSure));
  EXPECT_FALSE(guesses.is_certain(0.9F));
  for (int i = 0; i < 8; ++i) guesses.refute();
  EXPECT_FALSE(guesses.is_certain(kSure));
}

TEST_F(Guesses, LoseTrustBeforeTheyStopBeingRead) {
  guesses.refute();
  EXPECT_FALSE(guesses.is_trusted());
  EXPECT_TRUE(guesses.allows_read(kSure, 0));
  int wrong = 1;
  for (; guesses.allows_read(kSure, 0); ++wrong) guesses.refute();
  EXPECT_EQ(wrong, 12);  // 0.5 * (31 / 32)^12 < 0.35
}

// A read is allowed until precision drops below 0.35 at fetch 12. The first probe comes 256 fetches after the
// last read.
TEST_F(Guesses, OfABadPredictorAreProbedEverMoreRarely) {
  const std::vector<std::uint64_t> reads = reads_until(400'000, false);
  ASSERT_GT(reads.size(), 14u);
  std::vector<std::uint64_t> intervals;
  for (std::size_t i = 12; i < reads.size(); ++i) intervals.push_back(reads[i] - reads[i - 1]);
  EXPECT_THAT(intervals, ElementsAre(256, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 65536, 65536,
                                     65536, 65536));
}

TEST_F(Guesses, OfABadPredictorAreProbedOftenAgainAfterOneIsRight) {
  lose_trust();
  const std::vector<std::uint64_t> reads = reads_until(10'000, false);
  ASSERT_GE(reads.size(), 2u);
  ASSERT_GT(reads.back() - reads[reads.size() - 2], GuessAccounting::kFirstProbeInterval);
  guesses.confirm();
  const std::vector<std::uint64_t> probes = reads_until(20'000, false);
  ASSERT_GE(probes.size(), 3u);
  EXPECT_EQ(probes[1] - probes[0], GuessAccounting::kFirstProbeInterval);
  EXPECT_EQ(probes[2] - probes[1], 2 * GuessAccounting::kFirstProbeInterval);
}

TEST_F(Guesses, AreReadAgainOncePredictionsImprove) {
  lose_trust();
  EXPECT_FALSE(reads_until(10'000, true).empty());
  const std::uint64_t before = fetch;
  EXPECT_EQ(reads_until(before + 100, true).size(), 100u);
  EXPECT_TRUE(guesses.is_trusted());
}

TEST_F(Guesses, AskingAboutLittleConfidenceUsesUpNoProbe) {
  lose_trust();
  EXPECT_FALSE(guesses.allows_read(kUnlikely, 1000));
  EXPECT_TRUE(guesses.allows_read(kSure, 1000));
  EXPECT_FALSE(guesses.allows_read(kSure, 1000));
}

TEST_F(Guesses, AreCountedByWhatBecameOfThem) {
  for (int i = 0; i < 6; ++i) guesses.begin();
  EXPECT_EQ(guesses.unused(), 6u);
  guesses.confirm();
  guesses.use(true, 10);
  guesses.confirm();
  guesses.use(false, 300);
  guesses.refute();
  guesses.waste(7000);
  guesses.waste(50'000);  // cancelled before its layer ran
  guesses.confirm();
  guesses.forget();
  EXPECT_EQ(guesses.unused(), 1u);
  ExpertStatistics expected;
  expected.useful_guesses = expected.late_guesses = expected.wrong_guesses = 1;
  expected.useful_bytes = 10;
  expected.late_bytes = 300;
  expected.wasted_bytes = 57'000;
  EXPECT_EQ(statistics(), expected);
}

}  // namespace
}  // namespace moeflux
