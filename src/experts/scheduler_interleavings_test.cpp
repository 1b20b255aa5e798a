// Ten thousand random lives of a scheduler: reads end in any order, fail, come late; fetches are dropped half-way;
// guesses come and go. Whatever happens, nothing is handed out that was not read whole, and everybody is served.

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

class RandomLife {
 public:
  explicit RandomLife(std::uint64_t seed) : random_(seed) {
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

  void live(int fetches) {
    for (int i = 0; i < fetches && !testing::Test::HasFailure(); ++i) fetch();
    while (!out_.empty()) end_one();
    release_some(true);
    submit();
    while (!out_.empty()) end_one();
    EXPECT_EQ(scheduler_->find_inconsistency(), "");
    EXPECT_EQ(scheduler_->bytes_out(), 0u);
  }

 private:
  struct Held {
    std::uint32_t slot;
    std::uint32_t record;
  };

  std::uint32_t draw(std::uint32_t least, std::uint32_t most) {
    return std::uniform_int_distribution<std::uint32_t>(least, most)(random_);
  }

  void submit() {
    const std::uint32_t depth = draw(1, 20);
    while (out_.size() < depth) {
      const auto read = scheduler_->next_read();
      if (!read) break;
      const std::uint32_t record =
          table_.first_record[read->record.layer.index()] + read->record.expert.index();
      for (const Held& held : leases_) EXPECT_NE(held.slot, read->slot) << "a leased slot is not read into";
      if (read->offset == 0) content_[read->slot] = {record, 0};  // a record begins with its first piece
      EXPECT_TRUE(out_.emplace(read->tag, *read).second) << "a tag is out once";
    }
    EXPECT_EQ(scheduler_->find_inconsistency(), "");
  }

  void end_one() {
    auto at = out_.begin();
    std::advance(at, draw(0, static_cast<std::uint32_t>(out_.size()) - 1));
    const PieceRead read = at->second;
    out_.erase(at);
    const bool fails = can_fail_ && draw(0, 15) == 0;
    if (!fails) content_[read.slot].bytes += read.bytes;
    if (fails && scheduler_->is_wanted(read.tag)) has_failed_ = true;
    scheduler_->complete(read.tag, !fails);
    EXPECT_EQ(scheduler_->find_inconsistency(), "");
  }

  void release_some(bool all) {
    while (!leases_.empty() && (all || draw(0, 1) == 0)) {
      const std::size_t which = draw(0, static_cast<std::uint32_t>(leases_.size()) - 1);
      EXPECT_EQ(content_[leases_[which].slot].record, leases_[which].record) << "what is leased stays";
      scheduler_->release(leases_[which].slot);
      leases_.erase(leases_.begin() + static_cast<std::ptrdiff_t>(which));
    }
  }

  void guess() {
    const std::uint32_t layer = draw(0, table_.layers() - 1);
    std::vector<std::uint32_t> experts;
    for (std::uint32_t i = 0; i < count_of(layer); ++i)
      if (draw(0, 2) == 0) experts.push_back(i);
    std::ranges::shuffle(experts, random_);
    scheduler_->hint(LayerId(layer), experts, draw(0, 1) == 0 ? 1.0F : 0.3F);
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
    scheduler_->want(LayerId(layer), wanted_, order);
    EXPECT_EQ(scheduler_->find_inconsistency(), "");
    std::vector<std::uint32_t> taken;
    const bool drops = draw(0, 5) == 0;
    int patience = 10'000;
    while (!scheduler_->has_handed_out_all() && !has_failed_ && patience-- > 0) {
      if (drops && draw(0, 7) == 0) break;
      if (leases_.size() >= scheduler_->lease_limit()) release_some(true);
      if (draw(0, 2) == 0) release_some(false);
      if (draw(0, 9) == 0) guess();
      if (draw(0, 1) == 0) submit();
      if (!out_.empty() && draw(0, 1) == 0) end_one();
      if (has_failed_) break;
      if (const auto ready = scheduler_->take()) {
        taken.push_back(ready->expert.index());
        const std::uint32_t record = table_.first_record[layer] + ready->expert.index();
        const Content& content = content_[ready->slot];
        EXPECT_EQ(content.record, record);
        EXPECT_EQ(content.bytes, table_.slabs[table_.slab_of[record]].record_bytes) << "only what is whole";
        leases_.push_back({ready->slot, record});
      }
    }
    EXPECT_GT(patience, 0) << "somebody waits for ever";
    if (order == FetchOrder::ascending) {
      EXPECT_TRUE(std::ranges::is_sorted(taken));
    }
    std::set<std::uint32_t> unique(taken.begin(), taken.end());
    EXPECT_EQ(unique.size(), taken.size()) << "each is handed out once";
    if (!drops && !has_failed_) {
      EXPECT_EQ(taken.size(), wanted_.size());
    }
    scheduler_->end_fetch();
    if (draw(0, 1) == 0) release_some(true);  // leases may outlive their fetch
    EXPECT_EQ(scheduler_->find_inconsistency(), "");
  }

  struct Content {
    std::uint32_t record = ~0u;
    std::uint64_t bytes = 0;  // read since the record came here
  };

  std::mt19937_64 random_;
  ExpertTable table_;
  std::unique_ptr<ExpertScheduler> scheduler_;
  std::map<std::uint64_t, PieceRead> out_;
  std::map<std::uint32_t, Content> content_;
  std::vector<Held> leases_;
  std::vector<std::uint32_t> wanted_;
  bool can_fail_ = false, has_failed_ = false;
};

TEST(SchedulerInterleavings, TenThousandRandomLivesServeEverybodyAndLoseNothing) {
  for (std::uint64_t seed = 0; seed < 10'000; ++seed) {
    RandomLife(seed).live(12);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace moeflux
