#include "experts/residency_map.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/testing/expect_contract.h"

namespace moeflux {
namespace {

const std::vector<std::uint32_t> kRecordsOfThreeLayers = {0, 2, 2, 5};  // layer 1 is dense

TEST(ResidencyMap, HasAnEntryForEachExpertOfEachLayer) {
  for (const Residency state : {Residency::absent, Residency::ready}) {
    const ResidencyMap map(kRecordsOfThreeLayers, state);
    EXPECT_EQ(map.layers(), 3u);
    EXPECT_EQ(map.records(), 5u);
    EXPECT_EQ(map.experts(LayerId(0)), 2u);
    EXPECT_EQ(map.experts(LayerId(1)), 0u);
    EXPECT_EQ(map.experts(LayerId(2)), 3u);
    for (std::uint32_t layer = 0; layer < 3; ++layer)
      for (std::uint32_t expert = 0; expert < map.experts(LayerId(layer)); ++expert)
        EXPECT_EQ(map.of(LayerId(layer), ExpertId(expert)), (ExpertResidency{.state = state}));
  }
}

TEST(ResidencyMap, KeepsTheLastUseWhenTheStateChangesAndTheStateWhenUsed) {
  constexpr std::uint64_t kLate = (std::uint64_t{1} << 61) - 1;
  ResidencyMap map(kRecordsOfThreeLayers);
  const LayerId layer(2);
  const ExpertId expert(1);  // record 3
  map.set_state(3, Residency::loading, true);
  EXPECT_EQ(map.of(layer, expert), (ExpertResidency{Residency::loading, true, 0}));
  map.set_last_use(3, 7);
  EXPECT_EQ(map.of(layer, expert), (ExpertResidency{Residency::loading, true, 7}));
  map.set_state(3, Residency::ready, false);
  EXPECT_EQ(map.of(layer, expert), (ExpertResidency{Residency::ready, false, 7}));
  map.set_last_use(3, kLate);
  EXPECT_EQ(map.of(layer, expert), (ExpertResidency{Residency::ready, false, kLate}));
  map.set_state(3, Residency::absent, false);
  EXPECT_EQ(map.of(layer, expert), (ExpertResidency{Residency::absent, false, kLate}));
  EXPECT_EQ(map.of(layer, ExpertId(0)), ExpertResidency());
  EXPECT_EQ(map.of(layer, ExpertId(2)), ExpertResidency());
}

TEST(ResidencyMap, HasNoExpertsBeyondThoseOfTheModel) {
  const ResidencyMap map(kRecordsOfThreeLayers);
  EXPECT_CONTRACT(map.experts(LayerId(3)), "the model has the layer");
  EXPECT_CONTRACT(map.of(LayerId(1), ExpertId(0)), "the layer has the expert");
  EXPECT_CONTRACT(map.of(LayerId(2), ExpertId(3)), "the layer has the expert");
}

// The writer keeps state and last use of an entry in step; a reader must not see them apart.
TEST(ResidencyMap, AReaderGetsWholeEntries) {
  ResidencyMap map(kRecordsOfThreeLayers);
  std::atomic<bool> is_over = false;
  std::uint64_t wrong = 0;
  std::thread reader([&] {
    std::uint64_t last = 0;
    while (!is_over) {
      const ExpertResidency found = map.of(LayerId(0), ExpertId(1));
      if (found.last_use < last || (found.state == Residency::absent && found.is_speculative)) ++wrong;
      last = found.last_use;
    }
  });
  for (std::uint64_t n = 1; n < 100'000; ++n) {
    map.set_state(1, Residency::loading, true);
    map.set_state(1, Residency::ready, n % 2 == 0);
    map.set_last_use(1, n);
    map.set_state(1, Residency::absent, false);
  }
  is_over = true;
  reader.join();
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace moeflux
