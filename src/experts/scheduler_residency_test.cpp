// The residency map shows the scheduler's slots after every event.

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "experts/testing/virtual_run.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kPage = 4096, kPieces = 3;
using Wanted = std::vector<std::uint32_t>;

std::unique_ptr<ExpertScheduler> make_mapped(std::uint32_t layers, std::uint32_t experts, std::uint32_t slots,
                                             SchedulerOptions options = {}) {
  ExpertTable table;
  table.slabs = {{kPieces * kPage, 2 * kPage, slots}};
  for (std::uint32_t layer = 0; layer <= layers; ++layer) table.first_record.push_back(layer * experts);
  table.slab_of.assign(std::size_t{layers} * experts, 0);
  options.piece_bytes = kPage;
  return std::make_unique<ExpertScheduler>(table, options,
                                           [](std::uint32_t n) { return std::make_unique<LruPolicy>(n); });
}

// Two layers of four experts; the test ends the reads.
struct MappedScheduler : testing::Test {
  std::unique_ptr<ExpertScheduler> scheduler = make_mapped(2, 4, 4);
  std::deque<PieceRead> in_flight;
  Wanted wanted;

  void submit(std::size_t most = 1000) {
    while (most-- > 0) {
      const std::optional<PieceRead> read = scheduler->next_read();
      if (!read) break;
      in_flight.push_back(*read);
    }
    check();
  }
  void end_one(bool succeeded = true) {
    scheduler->complete(in_flight.front().tag, succeeded);
    in_flight.pop_front();
    check();
  }
  void end_all() {
    for (submit(); !in_flight.empty(); submit()) end_one();
  }
  void begin(std::uint32_t layer, const Wanted& experts, FetchOrder order = FetchOrder::ready_first) {
    wanted = experts;
    scheduler->begin_fetch(LayerId(layer), wanted, order);
    check();
  }
  void fetch(std::uint32_t layer, const Wanted& experts) {
    begin(layer, experts);
    end_all();
    while (const auto ready = scheduler->next_ready()) scheduler->release(ready->slot);
    EXPECT_TRUE(scheduler->has_served_all());
    scheduler->end_fetch();
    check();
  }
  void check() const { EXPECT_EQ(scheduler->find_inconsistency(), ""); }
  ExpertResidency shown(std::uint32_t layer, std::uint32_t expert) const {
    return scheduler->residency().of(LayerId(layer), ExpertId(expert));
  }
};

TEST_F(MappedScheduler, ShowsAnExpertAsLoadingUntilItsLastPieceIsReadAndItsUseWhenItIsLeased) {
  begin(1, {2});
  EXPECT_EQ(shown(1, 2), ExpertResidency());
  submit();
  ASSERT_EQ(in_flight.size(), kPieces);
  for (std::uint64_t i = 0; i < kPieces; ++i) {
    EXPECT_EQ(shown(1, 2), (ExpertResidency{Residency::loading, false, 0}));
    end_one();
  }
  EXPECT_EQ(shown(1, 2), (ExpertResidency{Residency::ready, false, 0}));
  const auto ready = scheduler->next_ready();
  ASSERT_TRUE(ready);
  EXPECT_EQ(shown(1, 2), (ExpertResidency{Residency::ready, false, 1}));
  scheduler->end_fetch();
  scheduler->release(ready->slot);
  EXPECT_EQ(shown(1, 2), (ExpertResidency{Residency::ready, false, 1}));
  EXPECT_EQ(shown(0, 2), ExpertResidency());
  check();
}

TEST_F(MappedScheduler, ShowsWhenAnEvictedExpertWasUsedLast) {
  fetch(0, {0, 1});
  fetch(0, {1, 2, 3});
  fetch(1, {0});  // evicts the least recently used one
  EXPECT_EQ(shown(0, 0), (ExpertResidency{Residency::absent, false, 1}));
  for (const std::uint32_t expert : {1u, 2u, 3u})
    EXPECT_EQ(shown(0, expert), (ExpertResidency{Residency::ready, false, 2}));
  EXPECT_EQ(shown(1, 0), (ExpertResidency{Residency::ready, false, 3}));

  begin(0, {0});
  submit();
  EXPECT_EQ(shown(0, 0), (ExpertResidency{Residency::loading, false, 1}));
  end_all();
  EXPECT_EQ(shown(0, 0), (ExpertResidency{Residency::ready, false, 1}));
  ASSERT_TRUE(scheduler->next_ready());
  EXPECT_EQ(shown(0, 0), (ExpertResidency{Residency::ready, false, 4}));
}

TEST_F(MappedScheduler, ShowsAFailedReadAsLoadingUntilNoReadWritesToItsSlot) {
  begin(0, {3});
  submit();
  end_one(false);
  EXPECT_EQ(shown(0, 3), (ExpertResidency{Residency::loading, false, 0}));
  scheduler->end_fetch();
  end_one();
  EXPECT_EQ(shown(0, 3), (ExpertResidency{Residency::loading, false, 0}));
  end_one();
  EXPECT_EQ(shown(0, 3), ExpertResidency());
  fetch(0, {3});
  EXPECT_EQ(shown(0, 3), (ExpertResidency{Residency::ready, false, 2}));
}

TEST_F(MappedScheduler, ShowsAFailedGuessThatIsReadAgain) {
  scheduler->hint(LayerId(1), Wanted{3}, 1.0F);
  submit();
  ASSERT_EQ(in_flight.size(), kPieces);
  end_one(false);
  begin(1, {3});
  EXPECT_EQ(shown(1, 3), (ExpertResidency{Residency::loading, false, 0}));
  end_all();
  EXPECT_EQ(shown(1, 3), (ExpertResidency{Residency::ready, false, 0}));
}

TEST_F(MappedScheduler, ShowsACancelledReadAsLoadingUntilItsPiecesEnd) {
  begin(0, {1});
  submit(1);
  scheduler->end_fetch();
  EXPECT_EQ(shown(0, 1), (ExpertResidency{Residency::loading, false, 0}));
  end_one();
  EXPECT_EQ(shown(0, 1), ExpertResidency());

  begin(0, {1});
  submit();  // all pieces: the record is kept
  scheduler->end_fetch();
  EXPECT_EQ(shown(0, 1), (ExpertResidency{Residency::loading, false, 0}));
  end_all();
  EXPECT_EQ(shown(0, 1), (ExpertResidency{Residency::ready, false, 0}));
}

TEST_F(MappedScheduler, ShowsAGuessAsReadAheadUntilItsLayerWantsIt) {
  scheduler->hint(LayerId(1), Wanted{0, 2}, 1.0F);
  submit();
  EXPECT_EQ(shown(1, 0), (ExpertResidency{Residency::loading, true, 0}));
  end_all();
  EXPECT_EQ(shown(1, 0), (ExpertResidency{Residency::ready, true, 0}));
  EXPECT_EQ(shown(1, 2), (ExpertResidency{Residency::ready, true, 0}));
  begin(1, {2});
  EXPECT_EQ(shown(1, 2), (ExpertResidency{Residency::ready, false, 0}));
  EXPECT_EQ(shown(1, 0), (ExpertResidency{Residency::ready, true, 0}));  // wrong, and still in memory
  ASSERT_TRUE(scheduler->next_ready());
  EXPECT_EQ(shown(1, 2), (ExpertResidency{Residency::ready, false, 1}));
}

TEST_F(MappedScheduler, ShowsTheRestOfAModelThatFitsAsReadAhead) {
  SchedulerOptions options;
  options.fills = true;
  scheduler = make_mapped(2, 4, 8, options);
  fetch(1, {1});
  end_all();
  for (std::uint32_t layer = 0; layer < 2; ++layer)
    for (std::uint32_t expert = 0; expert < 4; ++expert) {
      const bool is_used = layer == 1 && expert == 1;
      EXPECT_EQ(shown(layer, expert), (ExpertResidency{Residency::ready, !is_used, is_used ? 1u : 0u}));
    }
}

// A sweep over more experts than there are slots evicts records that it wants itself.
TEST_F(MappedScheduler, ShowsEverySlotOfASweep) {
  scheduler = make_mapped(1, 6, 2);
  fetch(0, {4, 5});
  begin(0, {0, 1, 2, 3, 4, 5}, FetchOrder::ascending);
  for (submit(); !scheduler->has_served_all(); submit()) {
    if (const auto ready = scheduler->next_ready()) {
      EXPECT_EQ(shown(0, ready->expert.index()), (ExpertResidency{Residency::ready, false, 2}));
      check();
      scheduler->release(ready->slot);
      check();
    } else {
      ASSERT_FALSE(in_flight.empty());
      end_one();
    }
  }
  scheduler->end_fetch();
  check();
}

TEST(ResidencyInVirtualTime, ShowsTheSlotsAfterEveryEvent) {
  constexpr std::uint32_t kMapLayers = 6, kMapExperts = 12, kMapPerToken = 3;
  std::mt19937 random(5);
  for (const std::uint32_t slots : {4u, 18u, 40u, 72u}) {
    SchedulerOptions options;
    options.fills = slots == kMapLayers * kMapExperts;
    const auto scheduler = make_mapped(kMapLayers, kMapExperts, slots, options);
    VirtualRun run(*scheduler, {.bytes_per_second = 1'000'000'000, .latency = VirtualTime(20'000)},
                   {.before_router = VirtualTime(30'000),
                    .shared = VirtualTime(5'000),
                    .expert = VirtualTime(4'000),
                    .longest_operation = VirtualTime(10'000)});
    std::uint64_t events = 0;
    std::size_t loading = 0, ready_at_most = 0;
    run.after_every_event([&] {
      ++events;
      ASSERT_EQ(scheduler->find_inconsistency(), "") << "event " << events;
      std::size_t in_slots = 0;
      for (std::uint32_t layer = 0; layer < kMapLayers; ++layer)
        for (std::uint32_t expert = 0; expert < kMapExperts; ++expert) {
          const Residency state = scheduler->residency().of(LayerId(layer), ExpertId(expert)).state;
          in_slots += state != Residency::absent;
          loading += state == Residency::loading;
        }
      ASSERT_LE(in_slots, slots);
      ready_at_most = std::max(ready_at_most, in_slots);
    });
    VirtualToken last(kMapLayers);
    for (std::size_t token = 0; token < 12; ++token) {
      VirtualToken chosen(kMapLayers);
      for (Wanted& experts : chosen) {
        for (std::uint32_t i = 0; i < kMapPerToken; ++i)
          experts.push_back(static_cast<std::uint32_t>(random() % 4) + 4 * i);
      }
      run.step(token, chosen, [&](std::size_t, std::uint32_t layer, ExpertScheduler& hinted) {
        const std::uint32_t next = (layer + 1) % kMapLayers;
        hinted.hint(LayerId(next), last[next], 0.4F);
      });
      ASSERT_FALSE(HasFailure());
      last = chosen;
    }
    EXPECT_GT(events, 1000u);
    EXPECT_GT(loading, 0u);
    EXPECT_EQ(ready_at_most, slots);
  }
}

}  // namespace
}  // namespace moeflux
