// Ten thousand random runs of a scheduler. Reads end in any order, fail or are late; fetches are dropped
// half-way; hints come and go. Only records that were read completely are handed out, every fetch is served,
// and after every event the residency map shows what the run knows of every record.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "experts/scheduler.h"

namespace moeflux {
namespace {

class RandomRun {
 public:
  explicit RandomRun(std::uint64_t seed) : random_(seed) {
    ExpertTable table;
    const std::uint32_t slabs = draw(1, 2);
    for (std::uint32_t i = 0; i < slabs; ++i) {
      const std::uint64_t pages = draw(2, 9);
      table.slabs.push_back(
          {pages * 4096, draw(1, static_cast<std::uint32_t>(pages) - 1) * 4096ull, draw(1, 12)});
    }
    table.first_record.push_back(0);
    const std::uint32_t layers = draw(1, 5);
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      const std::uint32_t experts = draw(0, 4) == 0 ? 0 : draw(1, 12);
      for (std::uint32_t i = 0; i < experts; ++i) table.slab_of.push_back(draw(0, slabs - 1));
      table.first_record.push_back(static_cast<std::uint32_t>(table.slab_of.size()));
    }
    SchedulerOptions options;
    options.piece_bytes = draw(1, 4) * 4096ull;
    options.sweep_window_bytes = draw(0, 8) * 4096ull;
    options.speculates = draw(0, 3) != 0;
    options.fills = draw(0, 3) == 0;
    table_ = table;
    scheduler_ = std::make_unique<ExpertScheduler>(
        table, options, [](std::uint32_t n) { return std::make_unique<LruPolicy>(n); });
    scheduler_->set_guess_window_bytes(draw(1, 16) * 4096ull);
    can_fail_ = draw(0, 1) == 0;
  }

  void run(int fetches) {
    for (int i = 0; i < fetches && !testing::Test::HasFailure(); ++i) fetch();
    while (!in_flight_.empty()) end_one();
    release_some(true);
    submit();
    while (!in_flight_.empty()) end_one();
    check();
    EXPECT_EQ(scheduler_->bytes_in_flight(), 0u);
  }

 private:
  struct Held {
    std::uint32_t slot;
    std::uint32_t record;
  };

  std::uint32_t draw(std::uint32_t least, std::uint32_t most) {
    return std::uniform_int_distribution<std::uint32_t>(least, most)(random_);
  }

  ExpertResidency residency_of(std::uint32_t record) const {
    std::uint32_t layer = 0;
    while (table_.first_record[layer + 1] <= record) ++layer;
    return scheduler_->residency().of(LayerId(layer), ExpertId(record - table_.first_record[layer]));
  }
  std::uint32_t record_of(const PieceRead& read) const {
    return table_.first_record[read.record.layer.index()] + read.record.expert.index();
  }

  void check() const {
    EXPECT_EQ(scheduler_->find_inconsistency(), "");
    for (const auto& [tag, read] : in_flight_)
      EXPECT_EQ(residency_of(record_of(read)).state, Residency::loading);
    for (const Held& held : leases_) EXPECT_EQ(residency_of(held.record).state, Residency::ready);
    std::size_t in_slots = 0;
    for (std::uint32_t record = 0; record < table_.slab_of.size(); ++record) {
      const ExpertResidency found = residency_of(record);
      const auto used = last_use_.find(record);
      EXPECT_EQ(found.last_use, used == last_use_.end() ? 0 : used->second);
      in_slots += found.state != Residency::absent;
    }
    EXPECT_LE(in_slots, scheduler_->slots());
  }

  void submit() {
    const std::uint32_t depth = draw(1, 20);
    while (in_flight_.size() < depth) {
      const auto read = scheduler_->next_read();
      if (!read) break;
      const std::uint32_t record = record_of(*read);
      for (const Held& held : leases_)
        EXPECT_NE(held.slot, read->slot) << "a leased slot must not be read into";
      if (read->offset == 0) content_[read->slot] = {record, 0};  // the first piece of a record
      EXPECT_TRUE(in_flight_.emplace(read->tag, *read).second) << "a tag must be in flight once";
    }
    check();
  }

  void end_one() {
    auto at = in_flight_.begin();
    std::advance(at, draw(0, static_cast<std::uint32_t>(in_flight_.size()) - 1));
    const PieceRead read = at->second;
    in_flight_.erase(at);
    const bool fails = can_fail_ && draw(0, 15) == 0;
    if (!fails) content_[read.slot].bytes += read.bytes;
    if (fails && scheduler_->is_wanted(read.tag)) has_failed_ = true;
    scheduler_->complete(read.tag, !fails);
    check();
  }

  void release_some(bool all) {
    while (!leases_.empty() && (all || draw(0, 1) == 0)) {
      const std::size_t which = draw(0, static_cast<std::uint32_t>(leases_.size()) - 1);
      EXPECT_EQ(content_[leases_[which].slot].record, leases_[which].record) << "a leased record must stay";
      scheduler_->release(leases_[which].slot);
      leases_.erase(leases_.begin() + static_cast<std::ptrdiff_t>(which));
      check();
    }
  }

  void hint() {
    const std::uint32_t layer = draw(0, table_.layers() - 1);
    std::vector<std::uint32_t> experts;
    for (std::uint32_t i = 0; i < count_of(layer); ++i)
      if (draw(0, 2) == 0) experts.push_back(i);
    std::ranges::shuffle(experts, random_);
    scheduler_->hint(LayerId(layer), experts, draw(0, 1) == 0 ? 1.0F : 0.3F);
    check();
  }

  std::uint32_t count_of(std::uint32_t layer) const {
    return table_.first_record[layer + 1] - table_.first_record[layer];
  }

  void fetch() {
    const std::uint32_t layer = draw(0, table_.layers() - 1);
    wanted_.clear();
    const std::uint32_t likely = draw(0, 3);
    for (std::uint32_t i = 0; i < count_of(layer); ++i)
      if (draw(0, 3) <= likely) wanted_.push_back(i);
    const FetchOrder order = draw(0, 1) == 0 ? FetchOrder::ready_first : FetchOrder::ascending;
    has_failed_ = false;
    scheduler_->begin_fetch(LayerId(layer), wanted_, order);
    ++fetches_;
    check();
    std::vector<std::uint32_t> taken;
    const bool drops = draw(0, 5) == 0;
    int patience = 10'000;
    while (!scheduler_->has_served_all() && !has_failed_ && patience-- > 0) {
      if (drops && draw(0, 7) == 0) break;
      if (leases_.size() >= scheduler_->lease_limit()) release_some(true);
      if (draw(0, 2) == 0) release_some(false);
      if (draw(0, 9) == 0) hint();
      if (draw(0, 1) == 0) submit();
      if (!in_flight_.empty() && draw(0, 1) == 0) end_one();
      if (has_failed_) break;
      if (const auto ready = scheduler_->next_ready()) {
        taken.push_back(ready->expert.index());
        const std::uint32_t record = table_.first_record[layer] + ready->expert.index();
        const Content& content = content_[ready->slot];
        EXPECT_EQ(content.record, record);
        EXPECT_EQ(content.bytes, table_.slabs[table_.slab_of[record]].record_bytes)
            << "the record must be complete";
        leases_.push_back({ready->slot, record});
        last_use_[record] = fetches_;
        check();
      }
    }
    EXPECT_GT(patience, 0) << "the fetch waits forever";
    if (order == FetchOrder::ascending) {
      EXPECT_TRUE(std::ranges::is_sorted(taken));
    }
    std::set<std::uint32_t> unique(taken.begin(), taken.end());
    EXPECT_EQ(unique.size(), taken.size()) << "each expert must be handed out once";
    if (!drops && !has_failed_) {
      EXPECT_EQ(taken.size(), wanted_.size());
    }
    scheduler_->end_fetch();
    if (draw(0, 1) == 0) release_some(true);  // leases may outlive their fetch
    check();
  }

  struct Content {
    std::uint32_t record = ~0u;
    std::uint64_t bytes = 0;  // read since the record got the slot
  };

  std::mt19937_64 random_;
  ExpertTable table_;
  std::unique_ptr<ExpertScheduler> scheduler_;
  std::map<std::uint64_t, PieceRead> in_flight_;
  std::map<std::uint32_t, Content> content_;
  std::vector<Held> leases_;
  std::map<std::uint32_t, std::uint64_t> last_use_;  // of records, in fetches
  std::uint64_t fetches_ = 0;
  std::vector<std::uint32_t> wanted_;
  bool can_fail_ = false, has_failed_ = false;
};

TEST(SchedulerInterleavings, TenThousandRandomRunsServeEveryFetchAndLoseNoSlot) {
  for (std::uint64_t seed = 0; seed < 10'000; ++seed) {
    RandomRun(seed).run(12);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace moeflux
