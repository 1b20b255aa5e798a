// What any thread may read of a store: statistics that never decrease, and the residency map.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/testing/allocation_counter.h"
#include "experts/expert_store.h"
#include "experts/testing/stored_model.h"

namespace moeflux {
namespace {

// The counters of `before` that are larger than those of `after`.
std::vector<std::string> decreased(const ExpertStatistics& before, const ExpertStatistics& after) {
  std::vector<std::string> names;
#define MF_COMPARE(name) \
  if (before.name > after.name) names.push_back(#name);
  MF_EXPERT_COUNTERS(MF_COMPARE)
  MF_EXPERT_TIMES(MF_COMPARE)
#undef MF_COMPARE
  return names;
}

std::size_t count_of(const ResidencyMap& map, Residency state) {
  std::size_t count = 0;
  for (std::uint32_t layer = 0; layer < map.layers(); ++layer)
    for (std::uint32_t expert = 0; expert < map.experts(LayerId(layer)); ++expert)
      count += map.of(LayerId(layer), ExpertId(expert)).state == state;
  return count;
}

TEST(PublishedStatistics, CountAFetchWhenItEnds) {
  const StoredModel model;
  const auto store = model.open(
      {.budget_bytes = model.least_bytes(), .drive = {DriveKind::buffered, {}}, .speculates = false});
  EXPECT_EQ(store->published_statistics(), ExpertStatistics());
  const WantedExperts wanted = {1, 5};
  {
    Fetch fetch = store->begin(LayerId(0), wanted, FetchOrder::ready_first);
    ASSERT_TRUE(*fetch.next());
    EXPECT_EQ(store->statistics().misses, 2u);
    EXPECT_EQ(store->published_statistics(), ExpertStatistics());
    ASSERT_TRUE(*fetch.next());
    EXPECT_EQ(store->published_statistics(), ExpertStatistics());
  }
  const ExpertStatistics published = store->published_statistics();
  EXPECT_EQ(published.misses, 2u);
  EXPECT_EQ(published.demanded_bytes, model.bytes_of(0, wanted));
  EXPECT_EQ(published.waiting, store->statistics().waiting);
  EXPECT_GT(published.reading.count(), 0);
}

TEST(PublishedStatistics, CountTheReadsBetweenFetches) {
  const StoredModel model;
  const auto faults = std::make_shared<DriveFaults>();
  const auto store = model.open({.drive = {DriveKind::buffered, {}}}, faults);
  while (faults->bytes() < model.all_bytes()) store->advance_reads();
  drain(*store, *faults);
  EXPECT_EQ(store->published_statistics().filled_bytes, model.all_bytes());
  EXPECT_EQ(count_of(store->residency(), Residency::ready), store->slots());
}

// With two slots, a sweep evicts experts that it found there. They were hits until then.
TEST(PublishedStatistics, DoNotDecreaseWhenASweepEvictsItsOwnHits) {
  const StoredModel model([](std::uint32_t, std::uint32_t) { return true; });  // one size
  const auto store = model.open(
      {.budget_bytes = 2 * model.least_bytes(), .drive = {DriveKind::buffered, {}}, .speculates = false});
  ASSERT_EQ(store->slots(), 2u);
  expect_fetch(model, *store, 1, {4, 5});
  ExpertStatistics before = store->published_statistics();
  bool has_counted_down = false;
  for (int round = 0; round < 3; ++round) {
    const WantedExperts all = all_experts();
    {
      Fetch fetch = store->begin(LayerId(1), all, FetchOrder::ascending);
      while (true) {
        const Result<std::optional<Lease>> lease = fetch.next();
        ASSERT_TRUE(lease);
        if (!*lease) break;
        const std::uint64_t hits = store->statistics().hits;
        store->advance_reads();  // for the next expert, while this one has a lease
        has_counted_down |= store->statistics().hits < hits;
        EXPECT_EQ(store->published_statistics(), before);
      }
    }
    EXPECT_EQ(decreased(before, store->published_statistics()), std::vector<std::string>());
    before = store->published_statistics();
  }
  EXPECT_TRUE(has_counted_down);
  EXPECT_EQ(before.wanted(), 2u + 3 * StoredModel::kExperts);
}

TEST(PublishedStatistics, AreReadByAnotherThreadDuringFetches) {
  const StoredModel model;
  for (const std::uint64_t budget : {model.least_bytes(), model.all_bytes() / 2, model.all_bytes()}) {
    const auto store =
        model.open({.budget_bytes = budget, .drive = {DriveKind::pread, {}}, .piece_bytes = 4096});
    const ResidencyMap& map = store->residency();
    std::atomic<bool> is_over = false, has_begun = false;
    std::vector<std::string> wrong;
    std::uint64_t found_wanted = 0;
    std::thread reader([&] {
      ExpertStatistics last;
      while (!is_over) {
        const ExpertStatistics found = store->published_statistics();
        for (const std::string& name : decreased(last, found)) wrong.push_back(name);
        if (found.wanted() % 3 != 0) wrong.push_back("every fetch wants three experts");
        if (found.useful_guesses > found.hits) wrong.push_back("a useful guess is a hit");
        if (count_of(map, Residency::ready) > map.records()) wrong.push_back("every expert has one entry");
        last = found;
        has_begun = true;
      }
      found_wanted = last.wanted();
    });
    while (!has_begun) std::this_thread::yield();
    std::mt19937 random(7);
    for (std::uint32_t i = 0; i < 300; ++i) {
      const std::uint32_t layer = i % StoredModel::kLayers;
      WantedExperts wanted = all_experts();
      std::ranges::shuffle(wanted, random);
      if (i % 3 != 0) store->hint(LayerId(1 - layer), std::span(wanted).first(2), 0.9F);
      wanted.resize(3);
      std::ranges::sort(wanted);
      expect_fetch(model, *store, layer, wanted,
                   i % 2 == 0 ? FetchOrder::ascending : FetchOrder::ready_first);
      store->advance_reads();
    }
    is_over = true;
    reader.join();
    EXPECT_EQ(wrong, std::vector<std::string>());
    EXPECT_LE(found_wanted, 900u);
    EXPECT_EQ(store->published_statistics().wanted(), 900u);
  }
}

// The test above cannot show that a reader does not wait, because its steps end.
TEST(PublishedStatistics, AreReadByAnotherThreadWhileAFetchWaitsForItsRead) {
  const StoredModel model;
  const auto faults = std::make_shared<DriveFaults>();
  const auto store = model.open({.budget_bytes = model.least_bytes(),
                                 .drive = {DriveKind::buffered, {}},
                                 .speculates = false,
                                 .patience = std::chrono::minutes(4)},
                                faults);
  expect_fetch(model, *store, 0, {2});
  const ExpertStatistics before = store->published_statistics();
  faults->set_plan({.faults = {{.kind = DriveFaultKind::stuck, .and_all_later = true}}});
  std::thread fetching([&] { expect_fetch(model, *store, 0, {3}); });
  while (faults->stuck() == 0) std::this_thread::yield();
  const AllocationCounter counter;
  bool is_unchanged = true;
  for (int i = 0; i < 1000; ++i) is_unchanged &= store->published_statistics() == before;
  const ExpertResidency wanted = store->residency().of(LayerId(0), ExpertId(3));
  const ExpertResidency evicted = store->residency().of(LayerId(0), ExpertId(2));
  const std::uint64_t allocations = counter.allocations();
  EXPECT_GT(faults->stuck(), 0u) << "the fetch still waits";
  faults->set_plan({});
  faults->release_stuck();
  fetching.join();
  EXPECT_TRUE(is_unchanged);
  EXPECT_EQ(wanted, (ExpertResidency{Residency::loading, false, 0}));
  EXPECT_EQ(evicted, (ExpertResidency{Residency::absent, false, 1}));
  EXPECT_EQ(allocations, 0u);
  EXPECT_EQ(store->published_statistics().misses, before.misses + 1);
  EXPECT_EQ(store->residency().of(LayerId(0), ExpertId(3)), (ExpertResidency{Residency::ready, false, 2}));
}

TEST(PublishedStatistics, AFailedReadLeavesItsExpertAbsent) {
  const StoredModel model;
  const auto faults = std::make_shared<DriveFaults>();
  const auto store = model.open(
      {.budget_bytes = model.least_bytes(), .drive = {DriveKind::buffered, {}}, .speculates = false}, faults);
  faults->set_plan({.faults = {{.kind = DriveFaultKind::error}}});
  EXPECT_FALSE(try_fetch(model, *store, 0, {4}));
  drain(*store, *faults);
  EXPECT_EQ(store->published_statistics().misses, 1u);
  EXPECT_EQ(store->residency().of(LayerId(0), ExpertId(4)), ExpertResidency());
  expect_fetch(model, *store, 0, {4});
  EXPECT_EQ(store->residency().of(LayerId(0), ExpertId(4)), (ExpertResidency{Residency::ready, false, 2}));
}

TEST(ResidencyOfResidentExperts, IsReadyFromTheStartAndHasTheLastUse) {
  const StoredModel model;
  const auto source = ResidentExperts::open(model.model());
  ASSERT_TRUE(source);
  const ResidencyMap& map = (*source)->residency();
  EXPECT_EQ(map.records(), StoredModel::kLayers * StoredModel::kExperts);
  EXPECT_EQ(count_of(map, Residency::ready), map.records());
  expect_fetch(model, **source, 1, {0, 3});
  expect_fetch(model, **source, 0, {5});
  expect_fetch(model, **source, 1, {3});
  EXPECT_EQ(map.of(LayerId(1), ExpertId(0)), (ExpertResidency{Residency::ready, false, 1}));
  EXPECT_EQ(map.of(LayerId(0), ExpertId(5)), (ExpertResidency{Residency::ready, false, 2}));
  EXPECT_EQ(map.of(LayerId(1), ExpertId(3)), (ExpertResidency{Residency::ready, false, 3}));
  EXPECT_EQ(map.of(LayerId(0), ExpertId(3)), (ExpertResidency{Residency::ready, false, 0}));
}

}  // namespace
}  // namespace moeflux
