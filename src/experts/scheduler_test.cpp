#include "experts/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace moeflux {
namespace {

constexpr std::uint64_t kRecordBytes = 12 * 4096, kDownOffset = 8 * 4096,
                        kPieceBytes = 4 * 4096;  // three pieces

using Experts = std::vector<std::uint32_t>;

ExpertTable table_of(std::uint32_t layers, std::uint32_t experts, std::uint32_t slots) {
  ExpertTable table;
  table.slabs = {{kRecordBytes, kDownOffset, slots}};
  for (std::uint32_t layer = 0; layer <= layers; ++layer) table.first_record.push_back(layer * experts);
  table.slab_of.assign(std::size_t{layers} * experts, 0);
  return table;
}

// A scheduler whose reads the test completes.
class Scheduling : public testing::Test {
 protected:
  void make(std::uint32_t layers, std::uint32_t experts, std::uint32_t slots, SchedulerOptions options = {}) {
    options.piece_bytes = kPieceBytes;
    scheduler =
        std::make_unique<ExpertScheduler>(table_of(layers, experts, slots), options,
                                          [](std::uint32_t n) { return std::make_unique<LruPolicy>(n); });
  }
  // Takes all reads that the scheduler offers.
  void submit() {
    while (const auto read = scheduler->next_read()) in_flight.push_back(*read);
    EXPECT_EQ(scheduler->find_inconsistency(), "");
  }
  void end_all(bool succeeded = true) {
    for (submit(); !in_flight.empty(); submit()) {
      scheduler->complete(in_flight.front().tag, succeeded);
      in_flight.pop_front();
    }
  }
  void want(std::uint32_t layer, const Experts& experts, FetchOrder order = FetchOrder::ready_first) {
    wanted = experts;
    scheduler->begin_fetch(LayerId(layer), wanted, order);
    submit();
  }
  Experts take_all_and_release() {
    Experts taken;
    while (const auto ready = scheduler->next_ready()) {
      taken.push_back(ready->expert.index());
      scheduler->release(ready->slot);
      submit();
    }
    return taken;
  }
  // Runs a whole fetch. All reads succeed.
  Experts fetch(std::uint32_t layer, const Experts& experts, FetchOrder order = FetchOrder::ready_first) {
    want(layer, experts, order);
    Experts taken;
    while (!scheduler->has_served_all()) {
      for (const std::uint32_t expert : take_all_and_release()) taken.push_back(expert);
      end_all();
    }
    scheduler->end_fetch();
    EXPECT_EQ(scheduler->find_inconsistency(), "");
    return taken;
  }
  ExpertStatistics statistics() const { return scheduler->statistics(); }

  std::unique_ptr<ExpertScheduler> scheduler;
  std::deque<PieceRead> in_flight;
  Experts wanted;
};

TEST_F(Scheduling, ReadsGateAndUpBeforeDownInPieces) {
  make(1, 4, 4);
  want(0, {2});
  ASSERT_EQ(in_flight.size(), 3u);
  EXPECT_EQ(in_flight[0].offset, 0u);
  EXPECT_EQ(in_flight[1].offset, kPieceBytes);
  EXPECT_EQ(in_flight[2].offset, kDownOffset);
  for (const PieceRead& read : in_flight) {
    EXPECT_EQ(read.bytes, kPieceBytes);
    EXPECT_EQ(read.record, (ExpertKey{LayerId(0), ExpertId(2)}));
    EXPECT_FALSE(read.is_speculative);
  }
}

TEST_F(Scheduling, PiecesCoverTheRecordAndNeverSpanUpAndDown) {
  for (const std::uint64_t down_pages : {1u, 3u, 5u, 7u, 11u})
    for (const std::uint64_t piece_pages : {1u, 2u, 3u, 5u, 64u}) {
      ExpertTable table = table_of(1, 1, 1);
      table.slabs[0].down_offset = down_pages * 4096;
      ExpertScheduler one(table, {.piece_bytes = piece_pages * 4096},
                          [](std::uint32_t n) { return std::make_unique<LruPolicy>(n); });
      const Experts first = {0};
      one.begin_fetch(LayerId(0), first, FetchOrder::ready_first);
      std::uint64_t at = 0;
      while (const auto read = one.next_read()) {
        EXPECT_EQ(read->offset, at);
        EXPECT_LE(read->bytes, piece_pages * 4096);
        EXPECT_EQ(read->bytes % 4096, 0u);
        if (piece_pages < 12) {
          EXPECT_TRUE(at >= down_pages * 4096 || at + read->bytes <= down_pages * 4096);
        }
        at += read->bytes;
      }
      EXPECT_EQ(at, kRecordBytes);
    }
}

TEST_F(Scheduling, WantedRecordsAreReadOneAfterAnotherWithinAWindow) {
  SchedulerOptions options;
  options.demand_window_bytes = kRecordBytes + 1;
  make(1, 8, 8, options);
  want(0, {1, 3, 5});
  ASSERT_EQ(in_flight.size(), 4u);  // one record, and the piece that fills the window
  for (int i = 0; i < 9; ++i) {
    ASSERT_FALSE(in_flight.empty());
    EXPECT_EQ(in_flight.front().record.expert.index(), 1u + 2 * static_cast<unsigned>(i / 3));
    scheduler->complete(in_flight.front().tag, true);
    in_flight.pop_front();
    EXPECT_EQ(scheduler->is_one_ready(), i >= 2);
    submit();
    EXPECT_LE(scheduler->bytes_in_flight(), options.demand_window_bytes + kPieceBytes);
  }
  EXPECT_EQ(take_all_and_release(), (Experts{1, 3, 5}));
  scheduler->end_fetch();
}

TEST_F(Scheduling, AReadThatNeverEndsDoesNotShrinkTheNextFetchsWindow) {
  SchedulerOptions options;
  options.demand_window_bytes = kPieceBytes;
  make(1, 8, 8, options);
  want(0, {1});
  scheduler->end_fetch();
  const std::deque<PieceRead> stuck = std::exchange(in_flight, {});
  ASSERT_EQ(stuck.size(), 1u);
  EXPECT_EQ(fetch(0, {2, 3}), (Experts{2, 3}));
  scheduler->complete(stuck.front().tag, true);
  end_all();
  EXPECT_TRUE(scheduler->is_idle());
}

TEST_F(Scheduling, HandsOutRecordsInMemoryFirstAndOthersAsTheyArrive) {
  make(1, 8, 8);
  fetch(0, {3, 5});
  want(0, {1, 3, 5, 7});
  EXPECT_EQ(take_all_and_release(), (Experts{3, 5}));
  // The pieces of the last record end first.
  while (!in_flight.empty()) {
    scheduler->complete(in_flight.back().tag, true);
    in_flight.pop_back();
  }
  EXPECT_EQ(take_all_and_release(), (Experts{7, 1}));
  EXPECT_TRUE(scheduler->has_served_all());
  EXPECT_EQ(statistics().hits, 2u);
  EXPECT_EQ(statistics().misses, 4u);
}

TEST_F(Scheduling, HandsOutInAscendingOrderOnRequest) {
  make(1, 8, 8);
  fetch(0, {5});
  want(0, {1, 5, 7}, FetchOrder::ascending);
  EXPECT_FALSE(scheduler->is_one_ready());
  end_all();
  EXPECT_EQ(take_all_and_release(), (Experts{1, 5, 7}));
}

TEST_F(Scheduling, ARecordIsReadyOnlyAfterAllItsPiecesHaveEnded) {
  make(1, 4, 4);
  want(0, {0});
  scheduler->complete(in_flight[2].tag, true);
  scheduler->complete(in_flight[0].tag, true);
  EXPECT_FALSE(scheduler->next_ready());
  EXPECT_TRUE(scheduler->completes_record(in_flight[1].tag));
  scheduler->complete(in_flight[1].tag, true);
  EXPECT_TRUE(scheduler->next_ready());
}

TEST_F(Scheduling, OneSlotIsEnough) {
  make(2, 8, 1);
  EXPECT_EQ(scheduler->lease_limit(), 1u);
  for (const FetchOrder order : {FetchOrder::ready_first, FetchOrder::ascending})
    for (std::uint32_t layer : {0u, 1u, 0u, 0u}) {
      Experts taken = fetch(layer, {1, 2, 6}, order);
      if (order == FetchOrder::ascending) {
        EXPECT_EQ(taken, (Experts{1, 2, 6}));
      }
      std::ranges::sort(taken);
      EXPECT_EQ(taken, (Experts{1, 2, 6}));
    }
}

TEST_F(Scheduling, WithASlotPerRecordEachRecordIsReadOnce) {
  make(3, 8, 24);
  const Experts all = {0, 1, 2, 3, 4, 5, 6, 7};
  for (std::uint32_t layer = 0; layer < 3; ++layer) fetch(layer, all, FetchOrder::ascending);
  const std::uint64_t reads = statistics().reads;
  EXPECT_EQ(reads, 24u * 3);
  for (std::uint32_t layer = 0; layer < 3; ++layer) fetch(layer, all);
  EXPECT_EQ(statistics().reads, reads);
  EXPECT_EQ(statistics().hits, 24u);
}

TEST_F(Scheduling, EvictsTheLeastRecentlyUsed) {
  make(1, 8, 3);
  fetch(0, {0});
  fetch(0, {1});
  fetch(0, {2});
  fetch(0, {0});
  fetch(0, {3});  // evicts 1
  const std::uint64_t misses = statistics().misses;
  fetch(0, {0, 2, 3});
  EXPECT_EQ(statistics().misses, misses);
  fetch(0, {1});
  EXPECT_EQ(statistics().misses, misses + 1);
}

TEST_F(Scheduling, ALeasedSlotIsNotEvicted) {
  make(1, 8, 2);
  want(0, {0});
  end_all();
  const auto leased = scheduler->next_ready();
  ASSERT_TRUE(leased);
  scheduler->end_fetch();
  for (const std::uint32_t expert : {1u, 2u, 3u, 4u}) {
    want(0, {expert});
    for (const PieceRead& read : in_flight) EXPECT_NE(read.slot, leased->slot);
    end_all();
    take_all_and_release();
    scheduler->end_fetch();
  }
  scheduler->release(leased->slot);
  const std::uint64_t hits = statistics().hits;
  fetch(0, {0});
  EXPECT_EQ(statistics().hits, hits + 1);
}

TEST_F(Scheduling, ASweepReadsEachRecordOnceAndKeepsOlderRecords) {
  // Four records of a sweep are in slots at a time. The other slots keep their records.
  make(4, 16, 32, {.sweep_window_bytes = 1});
  Experts all;
  for (std::uint32_t i = 0; i < 16; ++i) all.push_back(i);
  for (int round = 0; round < 3; ++round) {
    const ExpertStatistics before = statistics();
    for (std::uint32_t layer = 0; layer < 4; ++layer) {
      const std::uint64_t reads = statistics().reads;
      EXPECT_EQ(fetch(layer, all, FetchOrder::ascending), all);
      EXPECT_LE(statistics().reads - reads, 16u * 3);
    }
    const ExpertStatistics done = statistics() - before;
    if (round > 0) {
      EXPECT_GE(done.hits, 16u);  // plain LRU would find none
    }
  }
}

// The whole next layer is hinted, as in prefill. The slots are too few for two layers, so guesses and the
// sweep compete.
TEST_F(Scheduling, ASweepReadsEachRecordOnceDespiteGuesses) {
  constexpr std::uint32_t kSweptLayers = 3, kSwept = 16;
  Experts all(kSwept);
  std::iota(all.begin(), all.end(), 0u);
  for (std::uint32_t slots = 1; slots <= kSweptLayers * kSwept; ++slots) {
    make(kSweptLayers, kSwept, slots);
    scheduler->set_guess_window_bytes(4 * kRecordBytes);
    for (int chunk = 0; chunk < 3; ++chunk) {
      std::map<std::pair<std::uint32_t, std::uint32_t>, int>
          reads;  // number of reads of each record's first piece
      const auto submit_counted = [&] {
        while (const auto read = scheduler->next_read()) {
          if (read->offset == 0) ++reads[{read->record.layer.index(), read->record.expert.index()}];
          in_flight.push_back(*read);
        }
      };
      for (std::uint32_t layer = 0; layer < kSweptLayers; ++layer) {
        if (layer + 1 < kSweptLayers) scheduler->hint(LayerId(layer + 1), all, 1);
        scheduler->begin_fetch(LayerId(layer), all, FetchOrder::ascending);
        while (!scheduler->has_served_all()) {
          submit_counted();
          const auto ready = scheduler->next_ready();
          submit_counted();  // while the caller computes
          if (ready) scheduler->release(ready->slot);
          for (int i = 0; i < 4 && !in_flight.empty(); ++i, in_flight.pop_front())
            scheduler->complete(in_flight.front().tag, true);
        }
        scheduler->end_fetch();
      }
      end_all();
      for (const auto& [record, count] : reads)
        EXPECT_EQ(count, 1) << slots << " slots, chunk " << chunk << ", expert " << record.second
                            << " of layer " << record.first;
    }
  }
}

TEST_F(Scheduling, ASweepEndsEvenWithoutRoomForItsHits) {
  make(1, 8, 2);
  fetch(0, {6, 7});
  EXPECT_EQ(fetch(0, {0, 1, 6, 7}, FetchOrder::ascending), (Experts{0, 1, 6, 7}));
}

// ---- Failures and cancelling ----

TEST_F(Scheduling, AFailedReadEndsTheFetchAndTheNextOneReadsAgain) {
  make(1, 4, 2);
  want(0, {0, 1});
  scheduler->complete(in_flight.front().tag, false);
  in_flight.pop_front();
  EXPECT_FALSE(scheduler->next_ready());
  EXPECT_FALSE(scheduler->next_read());
  scheduler->end_fetch();
  end_all();
  EXPECT_TRUE(scheduler->is_idle());
  EXPECT_EQ(fetch(0, {0, 1}).size(), 2u);
}

TEST_F(Scheduling, AReadThatFailedBeforeAFetchDoesNotFailThatFetch) {
  make(1, 4, 2);
  want(0, {0});
  scheduler->complete(in_flight.front().tag, false);
  in_flight.pop_front();
  scheduler->end_fetch();
  want(0, {0});  // two pieces of the failed record are still in flight
  EXPECT_FALSE(scheduler->is_wanted(in_flight.front().tag));
  end_all();
  EXPECT_EQ(take_all_and_release(), (Experts{0}));
}

// The restarted record counts as late. Evicting it for an earlier record turns late into a miss and leaves
// hits alone.
TEST_F(Scheduling, ARestartedReadWhoseSlotASweepTakesIsCountedOnce) {
  make(1, 8, 1);
  want(0, {5});
  scheduler->complete(in_flight.front().tag, false);
  in_flight.pop_front();
  scheduler->end_fetch();
  EXPECT_EQ(fetch(0, {0, 5}, FetchOrder::ascending), (Experts{0, 5}));
  EXPECT_EQ(statistics().hits, 0u);
  EXPECT_EQ(statistics().late, 0u);
  EXPECT_EQ(statistics().misses, 3u);
}

TEST_F(Scheduling, ACancelledFetchFreesItsSlotsAndKeepsSubmittedRecords) {
  make(1, 8, 4);
  wanted = {0, 1, 2, 3};
  scheduler->begin_fetch(LayerId(0), wanted, FetchOrder::ready_first);
  std::vector<PieceRead> few;
  for (int i = 0; i < 4; ++i) few.push_back(*scheduler->next_read());  // record 0 and a third of record 1
  scheduler->end_fetch();
  EXPECT_FALSE(scheduler->next_read());
  for (const PieceRead& read : few) scheduler->complete(read.tag, true);
  EXPECT_TRUE(scheduler->is_idle());
  EXPECT_EQ(scheduler->find_inconsistency(), "");
  const std::uint64_t hits = statistics().hits;
  fetch(0, {0, 1});
  EXPECT_EQ(statistics().hits, hits + 1);
}

TEST_F(Scheduling, ALoadingRecordIsNotReadTwice) {
  make(1, 8, 4);
  want(0, {5});
  scheduler->end_fetch();
  want(0, {5});
  EXPECT_EQ(in_flight.size(), 3u);
  end_all();
  EXPECT_EQ(take_all_and_release(), (Experts{5}));
  EXPECT_EQ(statistics().late, 1u);
  EXPECT_EQ(statistics().demanded_bytes, kRecordBytes);
}

// ---- Guesses ----

TEST_F(Scheduling, GuessesAreReadOnlyWhenNothingIsWanted) {
  make(2, 8, 16);
  const Experts guess = {4, 5};
  scheduler->hint(LayerId(1), guess, 1);
  want(0, {0, 1});
  ASSERT_GE(in_flight.size(), 7u);
  for (std::size_t i = 0; i < in_flight.size(); ++i) EXPECT_EQ(in_flight[i].is_speculative, i >= 6);
  end_all();
  take_all_and_release();
  scheduler->end_fetch();
  want(1, {4, 6});
  EXPECT_EQ(take_all_and_release(), (Experts{4}));
  EXPECT_EQ(statistics().useful_guesses, 1u);
  EXPECT_EQ(statistics().useful_bytes, kRecordBytes);
  EXPECT_EQ(statistics().wrong_guesses, 1u);
}

TEST_F(Scheduling, AWindowLimitsTheBytesOfGuessesInFlight) {
  make(2, 64, 128);
  Experts guess;
  for (std::uint32_t i = 0; i < 64; ++i) guess.push_back(i);
  scheduler->set_guess_window_bytes(2 * kPieceBytes);
  scheduler->hint(LayerId(1), guess, 0.5F);
  submit();
  EXPECT_EQ(in_flight.size(), 2u);
  scheduler->complete(in_flight.front().tag, true);
  in_flight.pop_front();
  submit();
  EXPECT_EQ(in_flight.size(), 2u);
}

TEST_F(Scheduling, ALateGuessIsFinishedFirst) {
  make(2, 8, 16);
  scheduler->set_guess_window_bytes(1);
  const Experts guess = {4};
  scheduler->hint(LayerId(1), guess, 1);
  submit();
  ASSERT_EQ(in_flight.size(), 1u);  // a third of the record
  want(1, {4, 7});
  ASSERT_EQ(in_flight.size(), 6u);
  EXPECT_EQ(in_flight[1].record.expert, ExpertId(4));
  EXPECT_FALSE(in_flight[1].is_speculative);
  EXPECT_EQ(statistics().late_guesses, 1u);
  EXPECT_EQ(statistics().speculated_bytes, kPieceBytes);
  EXPECT_EQ(statistics().demanded_bytes, 2 * kRecordBytes - kPieceBytes);
}

TEST_F(Scheduling, StaleGuessesAreCancelled) {
  make(2, 8, 16);
  scheduler->set_guess_window_bytes(1);
  const Experts guess = {4, 5};
  scheduler->hint(LayerId(1), guess, 1);
  submit();
  scheduler->begin_fetch(LayerId(1), {}, FetchOrder::ready_first);
  EXPECT_FALSE(scheduler->next_read());
  scheduler->end_fetch();
  end_all();
  EXPECT_EQ(statistics().speculated_bytes, kPieceBytes);
  EXPECT_EQ(statistics().wasted_bytes, kPieceBytes);
  EXPECT_TRUE(scheduler->is_idle());
}

TEST_F(Scheduling, GuessesNeverEvictRecordsThatEarlierLayersNeed) {
  make(3, 8, 4);
  fetch(1, {0, 1});
  fetch(2, {0, 1});  // fills all slots
  const Experts both = {0, 1}, others = {4, 5, 6, 7};
  scheduler->hint(LayerId(1), both, 1);  // kept for the hint
  scheduler->hint(LayerId(2), others, 1);
  want(0, {});
  scheduler->end_fetch();
  end_all();
  const std::uint64_t hits = statistics().hits;
  fetch(1, {0, 1});
  EXPECT_EQ(statistics().hits, hits + 2);
}

TEST_F(Scheduling, WrongGuessesSoonStopBeingRead) {
  make(8, 64, 256);
  std::uint64_t last = 0;
  for (std::uint32_t token = 0; token < 20; ++token) {
    const std::uint64_t before = statistics().speculated_bytes;
    for (std::uint32_t layer = 0; layer < 8; ++layer) {
      Experts guess;
      for (std::uint32_t i = 0; i < 8; ++i) guess.push_back(32 + (token * 8 + layer + i) % 32);
      scheduler->hint(LayerId((layer + 1) % 8), guess, 1);
      fetch(layer, {(token + layer) % 32});
    }
    last = statistics().speculated_bytes - before;
  }
  EXPECT_LE(last, kRecordBytes);
}

TEST_F(Scheduling, ProbesOfABadPredictorBecomeRarer) {
  make(2, 64, 128);
  // Runs rounds with a wrong hint each; returns in how many of them a guess was read.
  const auto reads_in = [&](int rounds) {
    int reads = 0;
    for (int i = 0; i < rounds; ++i) {
      const std::uint64_t before = statistics().speculated_bytes;
      scheduler->hint(LayerId(1), Experts{32 + static_cast<std::uint32_t>(i) % 32}, 1);
      fetch(0, {0});
      fetch(1, {1});
      reads += statistics().speculated_bytes != before;
    }
    return reads;
  };
  EXPECT_GT(reads_in(100), 10);  // until the scheduler finds the predictor bad
  // A round is two fetches. The intervals between probes are 256, 256, 512, 1024, 2048, 4096 and 8192
  // fetches.
  EXPECT_EQ(reads_in(1000), 4);
  EXPECT_EQ(reads_in(1000), 1);
  EXPECT_EQ(reads_in(8000), 2);
  EXPECT_EQ(statistics().useful_guesses, 0u);
}

TEST_F(Scheduling, RightGuessesKeepBeingRead) {
  make(8, 64, 64);
  for (std::uint32_t token = 0; token < 20; ++token)
    for (std::uint32_t layer = 0; layer < 8; ++layer) {
      const std::uint32_t next_token = layer == 7 ? token + 1 : token, next = (layer + 1) % 8;
      const Experts guess = {(next_token * 13 + next) % 64};
      scheduler->hint(LayerId(next), guess, 1);
      fetch(layer, {(token * 13 + layer) % 64});
    }
  EXPECT_LE(statistics().misses, 2u);
  EXPECT_EQ(statistics().wrong_guesses, 0u);
}

TEST_F(Scheduling, ForgottenHintsAreNotRead) {
  make(2, 8, 16);
  const Experts guess = {4, 5};
  scheduler->hint(LayerId(1), guess, 1);
  scheduler->forget_hints();
  EXPECT_FALSE(scheduler->next_read());
}

TEST_F(Scheduling, WithoutSpeculationHintsAreIgnored) {
  make(2, 8, 16, {.speculates = false});
  const Experts guess = {4, 5};
  scheduler->hint(LayerId(1), guess, 1);
  EXPECT_FALSE(scheduler->next_read());
}

TEST_F(Scheduling, WithASlotPerRecordTheRestIsReadWhileIdle) {
  make(2, 8, 16, {.fills = true});
  want(0, {3});
  EXPECT_EQ(in_flight[0].record.expert, ExpertId(3));
  end_all();
  EXPECT_EQ(statistics().filled_bytes, 15 * kRecordBytes);
  EXPECT_EQ(statistics().demanded_bytes, kRecordBytes);
  take_all_and_release();
  scheduler->end_fetch();
  fetch(1, {0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(statistics().read_bytes(), 16 * kRecordBytes);
}

TEST_F(Scheduling, AFailedFillIsReadOnDemand) {
  make(1, 4, 4, {.fills = true});
  submit();
  end_all(false);
  EXPECT_EQ(fetch(0, {0, 1, 2, 3}).size(), 4u);
}

}  // namespace
}  // namespace moeflux
