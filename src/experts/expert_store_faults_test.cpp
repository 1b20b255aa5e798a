// A failed read fails the fetch that wants it and nothing else, whichever read it is and however it fails.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/testing/states.h"
#include "experts/testing/stored_model.h"

namespace moeflux {
namespace {

using test::States;

constexpr std::uint64_t kSmallPieces = 4096;

struct ScriptedFetch {
  std::uint32_t layer;
  WantedExperts wanted;
  FetchOrder order;
};

// Misses, hits, evictions, both sizes and both orders.
const std::vector<ScriptedFetch>& script() {
  static const std::vector<ScriptedFetch> fetches = {{0, {0, 1, 5}, FetchOrder::ready_first},
                                                     {1, {0, 2, 4}, FetchOrder::ready_first},
                                                     {0, {1, 2, 3}, FetchOrder::ascending},
                                                     {1, {0, 1, 2, 3, 4, 5}, FetchOrder::ascending},
                                                     {0, {0, 3, 4, 5}, FetchOrder::ready_first}};
  return fetches;
}

// The fetch of the script that failed, and its error.
struct Failure {
  std::size_t at;
  Error error;
};
// Runs the script until a fetch fails.
std::optional<Failure> run_script(const StoredModel& model, ExpertStore& store) {
  for (std::size_t i = 0; i < script().size(); ++i) {
    const ScriptedFetch& fetch = script()[i];
    const Result<WantedExperts> came = try_fetch(model, store, fetch.layer, fetch.wanted, fetch.order);
    if (!came) return Failure{i, came.error()};
  }
  return std::nullopt;
}

// The error names layer, expert, file and cause.
void expect_named(const StoredModel& model, const Failure& failure, const std::string& cause) {
  const ScriptedFetch& fetch = script()[failure.at];
  EXPECT_EQ(failure.error.code(), ErrorCode::io_failed);
  EXPECT_THAT(failure.error, States(fmt::format("layer {}", fetch.layer),
                                    "'" + model.file(fetch.layer).native() + "'", cause));
  EXPECT_TRUE(std::ranges::any_of(fetch.wanted, [&](std::uint32_t expert) {
    return test::states_fact(failure.error.message(), fmt::format("expert {}", expert));
  })) << failure.error.message();
}

// Some tests set a short patience. A read that exceeds it on a busy machine is not a failure of the store.
void fetch_patiently(const StoredModel& model, ExpertStore& store, const ScriptedFetch& wanted) {
  Result<WantedExperts> came = try_fetch(model, store, wanted.layer, wanted.wanted, wanted.order);
  for (int i = 0; i < 500 && !came && test::states_fact(came.error().message(), "no answer"); ++i)
    came = try_fetch(model, store, wanted.layer, wanted.wanted, wanted.order);
  ASSERT_TRUE(came) << came.error().message();
  EXPECT_EQ(came->size(), wanted.wanted.size());
}

void expect_nothing_is_lost(const StoredModel& model, ExpertStore& store, const DriveFaults& faults) {
  for (int round = 0; round < 2; ++round)
    for (std::uint32_t layer = 0; layer < StoredModel::kLayers; ++layer)
      for (const FetchOrder order : {FetchOrder::ready_first, FetchOrder::ascending})
        fetch_patiently(model, store, {layer, all_experts(), order});
  drain(store, faults);
  EXPECT_EQ(faults.stuck(), 0u);
}

class FaultsOfDrives : public testing::TestWithParam<DriveChoice> {
 protected:
  void SetUp() override {
    const auto store = model.open({.drive = GetParam()});
    if (store->drive().kind() != GetParam().kind) GTEST_SKIP() << testing::PrintToString(store->refusals());
  }
  ExpertStoreOptions options() const {
    return {.budget_bytes = model.all_bytes() / 2,
            .drive = GetParam(),
            .speculates = false,
            .piece_bytes = kSmallPieces};
  }
  // Runs the script with a fault at each of its reads in turn, always on the same store.
  void fail_at_every_read(const ExpertStoreOptions& store_options, DriveFaultKind kind,
                          const std::string& cause) {
    const auto faults = std::make_shared<DriveFaults>();
    std::uint64_t failures = 0;
    const auto store = model.open(store_options, faults);
    for (std::uint64_t index = 0;; ++index) {
      const std::uint64_t reads_before = faults->reads();
      faults->set_plan({.faults = {{.kind = kind, .index = index}}});
      const std::optional<Failure> failure = run_script(model, *store);
      if (!failure && faults->reads() - reads_before <= index) break;  // past the last read
      ASSERT_TRUE(failure) << "read " << index << " failed, and the fetch did not";
      ++failures;
      expect_named(model, *failure, cause);
      faults->set_plan({});
      faults->release_stuck();
      fetch_patiently(model, *store, script()[failure->at]);
      expect_nothing_is_lost(model, *store, *faults);
      if (HasFailure()) FAIL() << "after a fault at read " << index;
    }
    EXPECT_GT(failures, 20u);
  }
  StoredModel model;
};
INSTANTIATE_TEST_SUITE_P(, FaultsOfDrives, testing::ValuesIn(kEveryDrive),
                         [](const auto& choice) { return std::string(name_of(choice.param.kind)); });

TEST_P(FaultsOfDrives, AFailedReadNamesItsPlaceAndIsReadAgain) {
  fail_at_every_read(options(), DriveFaultKind::error, "Input/output error");
}

TEST_P(FaultsOfDrives, AReadPastTheEndNamesItsPlaceAndIsReadAgain) {
  fail_at_every_read(options(), DriveFaultKind::end_of_file, "the file has been cut off");
}

TEST_P(FaultsOfDrives, AFlippedBitIsDetectedWhenReadsAreVerified) {
  ExpertStoreOptions verifying = options();
  verifying.verifies_reads = true;
  fail_at_every_read(verifying, DriveFaultKind::flipped_bit, "checksum");
}

TEST_P(FaultsOfDrives, AReadThatNeverEndsTimesOutAndItsSlotIsFreedLater) {
  ExpertStoreOptions impatient = options();
  impatient.patience = std::chrono::milliseconds(20);
  fail_at_every_read(impatient, DriveFaultKind::stuck, "no answer");
}

TEST_P(FaultsOfDrives, AShortReadIsContinuedWhereItEnded) {
  const auto faults = std::make_shared<DriveFaults>();
  ExpertStoreOptions verifying = options();
  verifying.verifies_reads = true;
  for (const std::uint64_t piece_bytes : {kSmallPieces, ExpertStoreOptions().piece_bytes}) {
    verifying.piece_bytes = piece_bytes;
    const auto store = model.open(verifying, faults);
    for (std::uint64_t index = 0;; ++index) {
      const std::uint64_t before = faults->reads();
      faults->set_plan({.faults = {{.kind = DriveFaultKind::short_read, .index = index}}});
      const std::optional<Failure> failure = run_script(model, *store);
      ASSERT_FALSE(failure) << failure->error.message();
      if (faults->reads() - before <= index) break;
    }
    // Also if every read, and every continuation, is short.
    faults->set_plan({.faults = {{.kind = DriveFaultKind::short_read, .index = 0, .and_all_later = true}}});
    fetch_everything_twice(model, *store);
    drain(*store, *faults);
  }
}

TEST_P(FaultsOfDrives, AFlippedBitIsNotDetectedUnlessReadsAreVerified) {
  const auto faults = std::make_shared<DriveFaults>();
  const auto store = model.open(options(), faults);
  faults->set_plan({.faults = {{.kind = DriveFaultKind::flipped_bit, .index = 0}}});
  const WantedExperts wanted = {2};
  Fetch fetch = store->begin(LayerId(1), wanted, FetchOrder::ready_first);
  const Result<std::optional<Lease>> lease = fetch.next();
  ASSERT_TRUE(lease && *lease);
  EXPECT_FALSE(model.is_right(1, **lease));
}

TEST_P(FaultsOfDrives, AnyOrderOfCompletionsGivesTheRightBytes) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const auto faults = std::make_shared<DriveFaults>();
    ExpertStoreOptions any = options();
    any.speculates = seed % 2 == 0;
    any.budget_bytes = seed % 3 == 0 ? model.all_bytes() : model.all_bytes() / seed;
    any.budget_bytes = std::max(any.budget_bytes, model.least_bytes());
    const auto store = model.open(any, faults);
    faults->set_plan({.pick = random_pick(seed)});
    live(model, *store, static_cast<unsigned>(seed), 40);
    fetch_everything_twice(model, *store);
    drain(*store, *faults);
    if (HasFailure()) FAIL() << "with seed " << seed;
  }
}

// Whatever fails, and however often, a fetch returns an error or the right bytes.
TEST_P(FaultsOfDrives, RandomFaultsNeverGiveWrongBytesAndNeverLoseASlot) {
  std::uint64_t failed = 0;
  for (unsigned seed = 1; seed <= 8; ++seed) {
    std::mt19937 random(seed);
    const auto faults = std::make_shared<DriveFaults>();
    ExpertStoreOptions any = options();
    any.speculates = seed % 2 == 0;
    any.verifies_reads = true;
    any.budget_bytes = std::max(model.least_bytes(), model.all_bytes() * (seed % 5) / 4);
    any.patience = std::chrono::milliseconds(20);
    const auto store = model.open(any, faults);
    for (int i = 0; i < 60; ++i) {
      DriveFaultPlan plan;
      constexpr DriveFaultKind kKinds[] = {DriveFaultKind::error, DriveFaultKind::end_of_file,
                                           DriveFaultKind::short_read, DriveFaultKind::flipped_bit,
                                           DriveFaultKind::stuck};
      for (std::uint64_t n = 0; n < 8; ++n)
        if (random() % 4 == 0) plan.faults.push_back({.kind = kKinds[random() % 5], .index = n});
      if (random() % 2 == 0) plan.pick = random_pick(random());
      faults->set_plan(plan);
      const auto layer = static_cast<std::uint32_t>(random() % StoredModel::kLayers);
      if (random() % 2 == 0) store->hint(LayerId(1 - layer), random_wanted(random), 1.0F);
      const FetchOrder order = random() % 2 == 0 ? FetchOrder::ascending : FetchOrder::ready_first;
      const WantedExperts wanted = random_wanted(random);
      if (random() % 8 == 0) {
        const Fetch dropped = store->begin(LayerId(layer), wanted, order);
      }
      failed += !try_fetch(model, *store, layer, wanted, order);  // compares the bytes
      if (random() % 2 == 0) store->advance_reads();
      if (random() % 3 == 0) faults->release_stuck();
    }
    faults->set_plan({});
    faults->release_stuck();
    drain(*store, *faults);  // ends the faulty reads in flight
    expect_nothing_is_lost(model, *store, *faults);
    if (HasFailure()) FAIL() << "with seed " << seed;
  }
  EXPECT_GT(failed, 50u);
}

TEST_P(FaultsOfDrives, AStoreCanBeDestroyedWhileAnyReadIsInFlight) {
  for (std::uint64_t index = 0; index < 12; ++index)
    for (const bool is_stuck : {true, false}) {
      const auto faults = std::make_shared<DriveFaults>();
      ExpertStoreOptions impatient = options();
      impatient.speculates = true;
      impatient.patience = std::chrono::milliseconds(1);
      const auto store = model.open(impatient, faults);
      DriveFaultPlan plan{.faults = {}, .pick = random_pick(index)};
      const auto kind = is_stuck ? DriveFaultKind::stuck : DriveFaultKind::error;
      plan.faults = {{.kind = kind, .index = index, .and_all_later = is_stuck}};
      faults->set_plan(plan);
      store->hint(LayerId(1), all_experts(), 1.0F);
      const WantedExperts wanted = all_experts();
      const bool has_come = try_fetch(model, *store, 0, wanted).has_value();
      EXPECT_FALSE(has_come && is_stuck);  // a single error may hit a guess
      { const Fetch dropped = store->begin(LayerId(1), wanted, FetchOrder::ascending); }
    }
}

// ---- The end of a fetch ----

class FaultsOfAFetch : public testing::Test {
 protected:
  ExpertStoreOptions options() const {
    return {.budget_bytes = model.all_bytes() / 2,
            .drive = {DriveKind::buffered, {}},
            .piece_bytes = kSmallPieces};
  }
  StoredModel model;
  std::shared_ptr<DriveFaults> faults = std::make_shared<DriveFaults>();
};

TEST_F(FaultsOfAFetch, AfterAnErrorTheFetchHasEndedAndItsLeasesStayValid) {
  const auto store = model.open(options(), faults);
  const WantedExperts first = {0}, wanted = {0, 1, 2};
  expect_fetch(model, *store, 1, first);
  faults->set_plan({.faults = {{.kind = DriveFaultKind::error, .index = 0, .and_all_later = true}}});
  {
    Fetch fetch = store->begin(LayerId(1), wanted, FetchOrder::ascending);
    const Result<std::optional<Lease>> lease = fetch.next();
    // If the error is not known yet, the expert in memory is handed out first.
    const Result<std::optional<Lease>> failed = fetch.next();
    ASSERT_FALSE(failed);
    EXPECT_FALSE(fetch.is_one_ready());
    const Result<std::optional<Lease>> again = fetch.next();
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error().message(), failed.error().message());
    if (lease) {
      ASSERT_TRUE(*lease);
      EXPECT_TRUE(model.is_right(1, **lease));
    }
  }
  faults->set_plan({});
  expect_fetch(model, *store, 1, wanted);
}

TEST_F(FaultsOfAFetch, AnErrorDoesNotAffectTheNextFetch) {
  const auto store = model.open(options(), faults);
  faults->set_plan({.faults = {{.kind = DriveFaultKind::error, .index = 0, .and_all_later = true}}});
  const WantedExperts wanted = {0, 1, 2};
  {
    const Fetch dropped = store->begin(LayerId(0), wanted, FetchOrder::ready_first);
  }  // no fetch gets its errors
  faults->set_plan({});
  expect_fetch(model, *store, 0, wanted);
  expect_fetch(model, *store, 1, wanted);
}

TEST_F(FaultsOfAFetch, OtherRecordsAreServedWhileAReadIsStuck) {
  ExpertStoreOptions impatient = options();
  impatient.patience = std::chrono::milliseconds(20);
  const auto store = model.open(impatient, faults);
  faults->set_plan({.faults = {{.kind = DriveFaultKind::stuck, .index = 1}}});
  const ScriptedFetch stuck{1, {2}, FetchOrder::ready_first};
  for (int i = 0; i < 3; ++i) {  // it is not submitted again
    const Result<WantedExperts> failed = try_fetch(model, *store, stuck.layer, stuck.wanted);
    ASSERT_FALSE(failed);
    EXPECT_THAT(failed, States("expert 2", "layer 1", model.file(1).native(), "no answer"));
    EXPECT_EQ(faults->stuck(), 1u);
  }
  for (int i = 0; i < 3; ++i) {
    fetch_patiently(model, *store, {0, {0, 1, 2, 3, 4}, FetchOrder::ready_first});
    fetch_patiently(model, *store, {1, {0, 1, 3, 4, 5}, FetchOrder::ascending});
  }
  faults->release_stuck();
  fetch_patiently(model, *store, stuck);
  expect_nothing_is_lost(model, *store, *faults);
}

// Completes every read except the first, one at a time, each after a pause.
class DrippingDrive final : public Drive {
 public:
  DrippingDrive(std::unique_ptr<Drive> drive, std::chrono::nanoseconds pause, std::uint64_t& answers)
      : drive_(std::move(drive)), pause_(pause), answers_(answers) {}
  DriveKind kind() const override { return drive_->kind(); }
  std::string describe() const override { return drive_->describe(); }
  std::uint32_t depth() const override { return drive_->depth(); }
  void submit(const DriveRead& read) override {
    if (std::exchange(is_first_, false)) return;
    drive_->submit(read);
  }
  void flush() override { drive_->flush(); }
  std::size_t collect(std::span<DriveCompletion> out, std::chrono::nanoseconds longest_wait) override {
    if (longest_wait == std::chrono::nanoseconds(0)) return 0;
    std::this_thread::sleep_for(std::min(pause_, longest_wait));
    const std::size_t count = drive_->collect(out.first(1), std::chrono::nanoseconds(0));
    answers_ += count;
    return count;
  }
  Result<FileStamp> stamp(std::uint32_t file) const override { return drive_->stamp(file); }
  const std::filesystem::path& path(std::uint32_t file) const override { return drive_->path(file); }

 private:
  std::unique_ptr<Drive> drive_;
  std::chrono::nanoseconds pause_;
  std::uint64_t& answers_;
  bool is_first_ = true;
};

TEST_F(FaultsOfAFetch, AWantedReadTimesOutAlthoughOtherReadsEnd) {
  std::uint64_t answers = 0;
  ExpertStoreOptions impatient = options();
  impatient.budget_bytes = model.all_bytes();  // so the store also reads the other records
  impatient.speculates = true;
  impatient.patience = std::chrono::milliseconds(40);
  impatient.wrap_drive = [&](std::unique_ptr<Drive> drive) -> std::unique_ptr<Drive> {
    return std::make_unique<DrippingDrive>(std::move(drive), impatient.patience / 2, answers);
  };
  const auto store = model.open(impatient);
  const Result<WantedExperts> failed = try_fetch(model, *store, 1, {2});
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed, States("expert 2", "layer 1", "no answer"));
  const std::uint64_t wanted_pieces = model.record_bytes(1, 2) / kSmallPieces;
  EXPECT_LE(answers, wanted_pieces + 3) << "of " << model.all_bytes() / kSmallPieces;
}

TEST_F(FaultsOfAFetch, ADriveThatRecoversIsUsedAgain) {
  ExpertStoreOptions impatient = options();
  impatient.patience = std::chrono::milliseconds(5);
  const auto store = model.open(impatient, faults);
  faults->set_plan({.faults = {{.kind = DriveFaultKind::stuck, .index = 0, .and_all_later = true}}});
  for (int i = 0; i < 6; ++i)
    for (std::uint32_t layer = 0; layer < StoredModel::kLayers; ++layer) {
      const Result<WantedExperts> failed = try_fetch(
          model, *store, layer, all_experts(), i % 2 == 0 ? FetchOrder::ascending : FetchOrder::ready_first);
      ASSERT_FALSE(failed);
      EXPECT_THAT(failed, States(fmt::format("layer {}", layer), model.file(layer).native(), "no answer"));
    }
  faults->set_plan({});
  faults->release_stuck();
  expect_nothing_is_lost(model, *store, *faults);
}

// ---- Guesses ----

TEST_F(FaultsOfAFetch, AFailedReadOfAGuessFailsNoFetch) {
  for (const DriveFaultKind kind :
       {DriveFaultKind::error, DriveFaultKind::end_of_file, DriveFaultKind::flipped_bit}) {
    ExpertStoreOptions verifying = options();
    verifying.verifies_reads = true;
    const auto store = model.open(verifying, faults);
    for (std::uint64_t index = 0; index < 10; ++index) {
      const ExpertStatistics before = store->statistics();
      faults->set_plan({.faults = {{.kind = kind, .index = index, .and_all_later = index % 2 == 0}}});
      const std::uint32_t layer = index % StoredModel::kLayers;
      store->hint(LayerId(layer), all_experts(), 1.0F);
      for (int i = 0; i < 4; ++i) {
        store->advance_reads();
        drain(*store, *faults);
      }
      EXPECT_EQ(store->statistics().demanded_bytes, before.demanded_bytes);
      faults->set_plan({});
      expect_fetch(model, *store, layer, all_experts());
    }
    EXPECT_GT(store->statistics().speculated_bytes, 0u);
    expect_nothing_is_lost(model, *store, *faults);
  }
}

TEST_F(FaultsOfAFetch, AFailedReadOfAFillFailsNoFetch) {
  ExpertStoreOptions all = options();
  all.budget_bytes = model.all_bytes();
  for (const DriveFaultKind kind : {DriveFaultKind::error, DriveFaultKind::end_of_file}) {
    const auto store = model.open(all, faults);
    faults->set_plan({.faults = {{.kind = kind, .index = 0, .and_all_later = true}}});
    for (int i = 0; i < 100; ++i) store->advance_reads();
    drain(*store, *faults);
    EXPECT_GT(store->statistics().filled_bytes, 0u);
    faults->set_plan({});
    fetch_everything_twice(model, *store);
    drain(*store, *faults);
  }
}

TEST_F(FaultsOfAFetch, AStuckGuessDelaysNoOtherRecord) {
  ExpertStoreOptions impatient = options();
  impatient.patience = std::chrono::milliseconds(20);
  const auto store = model.open(impatient, faults);
  faults->set_plan({.faults = {{.kind = DriveFaultKind::stuck, .index = 0}}});
  const WantedExperts guess = {4};
  store->hint(LayerId(1), guess, 1.0F);
  store->advance_reads();
  EXPECT_EQ(faults->stuck(), 1u);
  for (int i = 0; i < 3; ++i) {
    fetch_patiently(model, *store, {0, {0, 1, 2, 3, 4, 5}, FetchOrder::ascending});
    fetch_patiently(model, *store, {1, {0, 1, 2, 3, 5}, FetchOrder::ready_first});
  }
  EXPECT_EQ(faults->stuck(), 1u);
  faults->release_stuck();
  expect_nothing_is_lost(model, *store, *faults);
}

}  // namespace
}  // namespace moeflux
