#include "experts/expert_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/testing/allocation_counter.h"
#include "base/testing/expect_contract.h"
#include "base/testing/states.h"
#include "experts/testing/stored_model.h"

namespace moeflux {
namespace {

using test::States;
using testing::ElementsAre;

constexpr std::uint64_t kSmallPieces = 4096;

std::vector<std::uint64_t> budgets_of(const StoredModel& model) {
  const std::uint64_t least = model.least_bytes(), all = model.all_bytes();
  return {least, std::max(least, all / 10), all / 2, all, 3 * all};
}

class StoreOnEveryDrive : public testing::TestWithParam<DriveChoice> {
 protected:
  // Whether the machine refused the drive under test.
  bool is_refused(const ExpertStore& store) const { return store.drive().kind() != GetParam().kind; }
  StoredModel model;
};
INSTANTIATE_TEST_SUITE_P(, StoreOnEveryDrive, testing::ValuesIn(kEveryDrive),
                         [](const auto& choice) { return std::string(name_of(choice.param.kind)); });

TEST_P(StoreOnEveryDrive, HandsOutTheRightBytesWithAnyBudget) {
  unsigned seed = 0;
  for (const std::uint64_t budget : budgets_of(model))
    for (const bool speculates : {true, false})
      for (const std::uint64_t piece_bytes : {kSmallPieces, ExpertStoreOptions().piece_bytes}) {
        SCOPED_TRACE(testing::Message() << "budget " << budget << ", pieces of " << piece_bytes);
        const auto store = model.open({.budget_bytes = budget,
                                       .drive = GetParam(),
                                       .speculates = speculates,
                                       .verifies_reads = seed % 2 == 0,
                                       .piece_bytes = piece_bytes});
        if (is_refused(*store)) GTEST_SKIP() << testing::PrintToString(store->refusals());
        live(model, *store, ++seed, 60);
        if (HasFatalFailure()) return;
        fetch_everything_twice(model, *store);
      }
}

TEST_P(StoreOnEveryDrive, AgreesWithResidentExperts) {
  const auto resident = ResidentExperts::open(model.model());
  ASSERT_TRUE(resident);
  const auto store = model.open({.budget_bytes = model.all_bytes() / 2, .drive = GetParam()});
  if (is_refused(*store)) GTEST_SKIP() << testing::PrintToString(store->refusals());
  const WantedExperts all = all_experts();
  for (std::uint32_t layer = 0; layer < StoredModel::kLayers; ++layer) {
    Fetch expected = (*resident)->begin(LayerId(layer), all, FetchOrder::ascending);
    Fetch found = store->begin(LayerId(layer), all, FetchOrder::ascending);
    for (const std::uint32_t expert : all) {
      const std::optional<Lease> one = *expected.next(), other = *found.next();
      ASSERT_TRUE(one && other);
      ASSERT_EQ(other->expert(), ExpertId(expert));
      EXPECT_EQ(one->expert(), other->expert());
      EXPECT_EQ(one->view().gate.encoding, other->view().gate.encoding);
      EXPECT_EQ(one->view().down.rows, other->view().down.rows);
      EXPECT_EQ(one->view().down.cols, other->view().down.cols);
      EXPECT_EQ(std::memcmp(one->view().gate.first_block, other->view().gate.first_block,
                            model.record_bytes(layer, expert)),
                0);
    }
  }
}

TEST_P(StoreOnEveryDrive, WithRoomForAllReadsEachRecordOnce) {
  for (const std::uint64_t budget : {model.all_bytes(), model.all_bytes() + 1, 5 * model.all_bytes()}) {
    const auto faults = std::make_shared<DriveFaults>();
    const auto store = model.open({.budget_bytes = budget, .drive = GetParam()}, faults);
    if (is_refused(*store)) GTEST_SKIP() << testing::PrintToString(store->refusals());
    EXPECT_TRUE(store->holds_all());
    for (std::uint32_t layer = 0; layer < StoredModel::kLayers; ++layer)
      expect_fetch(model, *store, layer, all_experts());
    drain(*store, *faults);
    const std::uint64_t reads = faults->reads();
    EXPECT_EQ(faults->bytes(), model.all_bytes());
    EXPECT_EQ(store->statistics().read_bytes(), model.all_bytes());
    EXPECT_EQ(store->statistics().reads, reads);
    fetch_everything_twice(model, *store);
    EXPECT_EQ(faults->reads(), reads);
    EXPECT_EQ(store->statistics().reads, reads);
  }
}

TEST_P(StoreOnEveryDrive, WithRoomForAllReadsTheRestWhileIdle) {
  const auto faults = std::make_shared<DriveFaults>();
  const auto store = model.open({.drive = GetParam(), .piece_bytes = kSmallPieces}, faults);
  if (is_refused(*store)) GTEST_SKIP() << testing::PrintToString(store->refusals());
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (faults->bytes() < model.all_bytes() && std::chrono::steady_clock::now() < deadline)
    store->advance_reads();
  drain(*store, *faults);
  EXPECT_EQ(store->statistics().filled_bytes, model.all_bytes());
  const std::uint64_t reads = faults->reads();
  fetch_everything_twice(model, *store);
  EXPECT_EQ(faults->reads(), reads);
  EXPECT_EQ(store->statistics().misses, 0u);
  EXPECT_EQ(store->statistics().demanded_bytes, 0u);
}

TEST_P(StoreOnEveryDrive, WithoutGuessesReadsExactlyTheMissingRecords) {
  for (const std::uint64_t budget : budgets_of(model)) {
    if (budget >= model.all_bytes()) continue;  // a store that holds all fills itself
    const auto faults = std::make_shared<DriveFaults>();
    const auto store = model.open(
        {.budget_bytes = budget, .drive = GetParam(), .speculates = false, .piece_bytes = kSmallPieces},
        faults);
    if (is_refused(*store)) GTEST_SKIP() << testing::PrintToString(store->refusals());
    std::mt19937 random(3);
    for (int i = 0; i < 40; ++i) {
      const auto layer = static_cast<std::uint32_t>(random() % StoredModel::kLayers);
      // Records of one size, so that the number of misses gives the missing bytes.
      WantedExperts wanted = random_wanted(random);
      if (layer == 0) std::erase(wanted, 5u);
      store->hint(LayerId(1 - layer), all_experts(), 1.0F);
      const ExpertStatistics before = store->statistics();
      const std::uint64_t bytes_before = faults->bytes();
      expect_fetch(model, *store, layer, wanted,
                   i % 2 == 0 ? FetchOrder::ascending : FetchOrder::ready_first);
      drain(*store, *faults);
      const ExpertStatistics took = store->statistics() - before;
      EXPECT_EQ(took.wanted(), wanted.size());
      EXPECT_EQ(took.late, 0u);
      EXPECT_EQ(took.demanded_bytes, took.misses * model.record_bytes(layer, 0));
      EXPECT_EQ(took.read_bytes(), took.demanded_bytes);
      EXPECT_EQ(faults->bytes() - bytes_before, took.demanded_bytes);
    }
  }
}

TEST_P(StoreOnEveryDrive, AllocatesNothingOnceItIsOpen) {
  for (const std::uint64_t budget : budgets_of(model)) {
    const auto store = model.open({.budget_bytes = budget, .drive = GetParam(), .piece_bytes = kSmallPieces});
    if (is_refused(*store)) GTEST_SKIP() << testing::PrintToString(store->refusals());
    const WantedExperts all = all_experts(), some = {0, 2, 5};
    bool is_right = true;
    const AllocationCounter counter;
    for (int i = 0; i < 20; ++i)
      for (const FetchOrder order : {FetchOrder::ready_first, FetchOrder::ascending})
        for (std::uint32_t layer = 0; layer < StoredModel::kLayers; ++layer) {
          store->hint(LayerId(1 - layer), some, 0.9F);
          Fetch fetch = store->begin(LayerId(layer), i % 3 == 0 ? all : some, order);
          if (i % 5 == 4) continue;  // dropped
          while (true) {
            const Result<std::optional<Lease>> lease = fetch.next();
            is_right = is_right && lease;
            if (!lease || !*lease) break;
            store->advance_reads();
          }
        }
    EXPECT_EQ(counter.allocations(), 0u) << "budget " << budget;
    EXPECT_TRUE(is_right);
    EXPECT_GT(store->statistics().reads, 0u);
  }
}

// Forwards all calls and records the reads.
class WatchingDrive final : public Drive {
 public:
  explicit WatchingDrive(std::unique_ptr<Drive> drive, std::vector<DriveRead>& seen)
      : drive_(std::move(drive)), seen_(seen) {}
  DriveKind kind() const override { return drive_->kind(); }
  std::string describe() const override { return drive_->describe(); }
  std::uint32_t depth() const override { return drive_->depth(); }
  void submit(const DriveRead& read) override {
    seen_.push_back(read);
    drive_->submit(read);
  }
  void flush() override { drive_->flush(); }
  std::size_t collect(std::span<DriveCompletion> out, std::chrono::nanoseconds longest_wait) override {
    return drive_->collect(out, longest_wait);
  }
  Result<FileStamp> stamp(std::uint32_t file) const override { return drive_->stamp(file); }
  const std::filesystem::path& path(std::uint32_t file) const override { return drive_->path(file); }

 private:
  std::unique_ptr<Drive> drive_;
  std::vector<DriveRead>& seen_;
};

TEST_P(StoreOnEveryDrive, ReadsWholePagesIntoWholePages) {
  for (const std::uint64_t piece_bytes : {kSmallPieces, 2 * kSmallPieces, ExpertStoreOptions().piece_bytes}) {
    std::vector<DriveRead> seen;
    const auto store = model.open({.budget_bytes = model.all_bytes() / 2,
                                   .drive = GetParam(),
                                   .piece_bytes = piece_bytes,
                                   .wrap_drive = [&](std::unique_ptr<Drive> drive) -> std::unique_ptr<Drive> {
                                     return std::make_unique<WatchingDrive>(std::move(drive), seen);
                                   }});
    if (is_refused(*store)) GTEST_SKIP() << testing::PrintToString(store->refusals());
    live(model, *store, 5, 20);
    EXPECT_GT(seen.size(), 20u);
    for (const DriveRead& read : seen) {
      EXPECT_EQ(read.offset % kDriveAlignment, 0u);
      EXPECT_EQ(read.out.size() % kDriveAlignment, 0u);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(read.out.data()) % kDriveAlignment, 0u);
      EXPECT_GT(read.out.size(), 0u);
      EXPECT_LE(read.out.size(), piece_bytes);
    }
  }
}

// ---- Leases ----

TEST(ExpertStore, ACallerThatHoldsOneLeaseLessThanTheLimitMakesProgress) {
  const StoredModel model;
  for (const std::uint64_t budget : budgets_of(model))
    for (const FetchOrder order : {FetchOrder::ready_first, FetchOrder::ascending}) {
      const auto store = model.open({.budget_bytes = budget, .drive = {DriveKind::buffered, {}}});
      const std::uint32_t limit = store->lease_limit();
      ASSERT_GE(limit, 1u);
      // Held for the rest of the test. Their fetches have ended.
      std::vector<Lease> held;
      for (std::uint32_t i = 0; i + 1 < limit; ++i) {
        const WantedExperts one = {i};
        Fetch fetch = store->begin(LayerId(1), one, FetchOrder::ready_first);
        Result<std::optional<Lease>> lease = fetch.next();
        ASSERT_TRUE(lease && *lease);
        held.push_back(**std::move(lease));
      }
      for (int round = 0; round < 3; ++round)
        for (std::uint32_t layer = 0; layer < StoredModel::kLayers; ++layer)
          expect_fetch(model, *store, layer, all_experts(), order);
      for (const Lease& lease : held) EXPECT_TRUE(model.is_right(1, lease));
    }
}

TEST(ExpertStore, ALeasedExpertCanBeWantedAgain) {
  const StoredModel model;
  const auto store = model.open({.budget_bytes = model.least_bytes(), .drive = {DriveKind::buffered, {}}});
  const WantedExperts one = {3};
  Result<std::optional<Lease>> first = store->begin(LayerId(1), one, FetchOrder::ready_first).next();
  ASSERT_TRUE(first && *first);
  {
    Fetch fetch = store->begin(LayerId(1), one, FetchOrder::ascending);
    const Result<std::optional<Lease>> second = fetch.next();
    ASSERT_TRUE(second && *second);
    EXPECT_EQ((*second)->view().gate.first_block, (*first)->view().gate.first_block);
    first->reset();
    EXPECT_TRUE(model.is_right(1, **second));
  }
  EXPECT_EQ(store->statistics().misses, 1u);
  fetch_everything_twice(model, *store);
}

TEST(ExpertStore, KeepsTheContractOfOneFetchAtATime) {
  const StoredModel model;
  const auto store = model.open({.drive = {DriveKind::buffered, {}}});
  const WantedExperts wanted = {0};
  const Fetch fetch = store->begin(LayerId(0), wanted, FetchOrder::ascending);
  EXPECT_CONTRACT((void)store->begin(LayerId(1), wanted, FetchOrder::ascending), "one Fetch at a time");
}

TEST(ExpertStore, OutlivesTheModelThatItWasOpenedWith) {
  auto model = std::make_unique<StoredModel>();
  const auto store = model->open({.budget_bytes = model->least_bytes(), .drive = {DriveKind::buffered, {}}});
  const std::string expected(model->record(1, 2));
  model.reset();  // also deletes the files
  const WantedExperts wanted = {2};
  Fetch fetch = store->begin(LayerId(1), wanted, FetchOrder::ascending);
  const Result<std::optional<Lease>> lease = fetch.next();
  ASSERT_TRUE(lease && *lease);
  EXPECT_EQ(std::memcmp((*lease)->view().gate.first_block, expected.data(), expected.size()), 0);
}

// ---- Budgets ----

TEST(ExpertStore, RejectsABudgetBelowOneRecordOfEverySize) {
  const StoredModel model;
  EXPECT_EQ(model.least_bytes(), model.record_bytes(0, 0) + model.record_bytes(1, 0));
  for (const std::uint64_t budget : {std::uint64_t{0}, model.record_bytes(1, 0), model.least_bytes() - 1}) {
    const auto store = ExpertStore::open(model.model(), {.budget_bytes = budget});
    ASSERT_FALSE(store);
    EXPECT_EQ(store.error().code(), ErrorCode::invalid_argument);
    EXPECT_THAT(store, States(human_bytes(budget), human_bytes(model.least_bytes())));
  }
  EXPECT_TRUE(ExpertStore::open(model.model(), {.budget_bytes = model.least_bytes()}));
}

// If few records are large, their share of a small budget is less than one record.
TEST(ExpertStore, TakesNoMoreThanItsBudgetHoweverTheSizesAreMixed) {
  const std::vector<StoredModel::IsLarge> mixes = {
      StoredModel::is_usually_large,
      [](std::uint32_t layer, std::uint32_t expert) { return layer == 1 && expert == 3; },
      [](std::uint32_t layer, std::uint32_t expert) { return layer == 1 || expert > 0; },
      [](std::uint32_t, std::uint32_t) { return false; }};
  for (const StoredModel::IsLarge& is_large : mixes) {
    const StoredModel model(is_large);
    std::uint64_t last = 0;
    for (std::uint64_t budget = model.least_bytes(); budget <= model.all_bytes() + 4096; budget += 1024) {
      const std::uint64_t bytes = ExpertStore::bytes_of(model.model(), budget);
      EXPECT_LE(bytes, budget);
      EXPECT_GE(bytes, last) << "more budget must not give fewer slots";
      last = bytes;
    }
    EXPECT_EQ(last, model.all_bytes());
    const auto store = model.open({.budget_bytes = model.least_bytes(), .drive = {DriveKind::buffered, {}}});
    fetch_everything_twice(model, *store);
  }
}

TEST(ExpertStore, OneSizeOfRecordsLeavesNoRoomUnused) {
  const StoredModel model([](std::uint32_t, std::uint32_t) { return false; });
  const std::uint64_t record = model.record_bytes(0, 0);
  for (std::uint64_t slots = 1; slots <= 12; ++slots)
    for (const std::uint64_t more : {std::uint64_t{0}, record - 1})
      EXPECT_EQ(ExpertStore::bytes_of(model.model(), slots * record + more), slots * record);
}

// ---- Files that differ from the manifest ----

TEST(ExpertStore, RejectsAFileThatShrankSinceTheModelWasOpened) {
  const StoredModel model;
  std::filesystem::resize_file(model.file(1), model.contents(1).size() - 4096);
  for (const DriveChoice& drive : kEveryDrive) {
    const auto store = ExpertStore::open(model.model(), {.drive = drive});
    ASSERT_FALSE(store);
    EXPECT_EQ(store.error().code(), ErrorCode::corrupt_data);
    EXPECT_THAT(store,
                States(model.file(1).native(), model.contents(1).size(), model.contents(1).size() - 4096));
  }
}

TEST(ExpertStore, NamesAMissingFile) {
  const StoredModel model;
  std::filesystem::remove(model.file(0));
  const auto store = ExpertStore::open(model.model(), {});
  ASSERT_FALSE(store);
  EXPECT_THAT(store, States(model.file(0).native()));
}

// ---- Counting ----

// A sweep through one slot: a record that was loading when the sweep began is evicted for an earlier one.
TEST(ExpertStore, CountsARecordThatASweepEvictsAsOneMiss) {
  const StoredModel model;
  const auto faults = std::make_shared<DriveFaults>();
  const auto store = model.open(
      {.budget_bytes = model.least_bytes(), .drive = {DriveKind::buffered, {}}, .speculates = false}, faults);
  faults->set_plan({.faults = {{.kind = DriveFaultKind::stuck, .index = 0}}});
  const WantedExperts last = {4};
  { const Fetch dropped = store->begin(LayerId(1), last, FetchOrder::ready_first); }  // still being read
  const ExpertStatistics before = store->statistics();
  {
    const WantedExperts wanted = {1, 4};
    Fetch fetch = store->begin(LayerId(1), wanted, FetchOrder::ascending);
    faults->release_stuck();
    WantedExperts came;
    while (true) {
      const Result<std::optional<Lease>> lease = fetch.next();
      ASSERT_TRUE(lease) << lease.error().message();
      if (!*lease) break;
      EXPECT_TRUE(model.is_right(1, **lease));
      came.push_back((*lease)->expert().index());
    }
    EXPECT_THAT(came, ElementsAre(1, 4));
  }
  const ExpertStatistics took = store->statistics() - before;
  EXPECT_EQ(took.wanted(), 2u);
  EXPECT_EQ(took.misses, 2u);
  EXPECT_EQ(took.hits, 0u);
  EXPECT_EQ(took.late, 0u);
}

}  // namespace
}  // namespace moeflux
