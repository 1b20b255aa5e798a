// Packing on a disk that fails: the message names a path, there is no manifest, and the next run produces the
// same bytes without repeating finished work.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <string>
#include <vector>

#include "base/testing/states.h"
#include "io/testing/faulty_file_system.h"
#include "pack/testing/packing.h"

namespace moeflux {
namespace {

using test::States;

// A disk that passes the check for room, as if another program filled it afterwards.
class ClaimsRoom final : public FileSystem {
 public:
  explicit ClaimsRoom(FileSystem& disk) : disk_(disk) {}
  Result<std::unique_ptr<ReadFile>> open_read(const std::filesystem::path& p) override {
    return disk_.open_read(p);
  }
  Result<std::unique_ptr<WriteFile>> create(const std::filesystem::path& p) override {
    return disk_.create(p);
  }
  Result<FileInfo> info(const std::filesystem::path& p) override { return disk_.info(p); }
  Result<std::vector<std::string>> list(const std::filesystem::path& p) override { return disk_.list(p); }
  Status make_directory(const std::filesystem::path& p) override { return disk_.make_directory(p); }
  Status rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    return disk_.rename(from, to);
  }
  Status remove_all(const std::filesystem::path& p) override { return disk_.remove_all(p); }
  Status sync_directory(const std::filesystem::path& p) override { return disk_.sync_directory(p); }
  Result<std::uint64_t> free_bytes(const std::filesystem::path&) override { return std::uint64_t{1} << 40; }

 private:
  FileSystem& disk_;
};

struct FailingPacks : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem disk;
  FaultyFileSystem files{disk};
  ClaimsRoom roomy{files};
  std::filesystem::path path = tiny_deepseek_mlx().write(temporary);
  SourceModel source = open();
  std::filesystem::path destination = temporary / "packed";
  Files undisturbed = pack_undisturbed();

  SourceModel open() {  // on the failing disk, so that its reads fail as well
    auto model = SourceModel::open(files, path);
    EXPECT_TRUE(model) << model.error().message();
    return *std::move(model);
  }
  Files pack_undisturbed() {
    packed_to(source, temporary / "undisturbed");
    return files_in(temporary / "undisturbed");
  }
  // The operations of a pack that succeeds.
  std::vector<FileOperationRecord> rehearse() {
    files.set_plan({});
    files.clear_log();
    const auto report = pack_into(roomy, source, destination);
    EXPECT_TRUE(report) << report.error().message();
    std::filesystem::remove_all(destination);
    return files.log();
  }

  bool has(const char* name) const { return std::filesystem::exists(destination / name); }

  // Whether the last run got as far as renaming the manifest.
  bool manifest_was_renamed() const {
    const auto log = files.log();
    return std::any_of(log.begin(), log.end(), [](const FileOperationRecord& record) {
      return record.operation == FileOperation::rename && record.target.filename() == "manifest.json" &&
             !record.failed;
    });
  }

  // The packed files that are finished according to the journal.
  std::set<std::string> finished() const {
    std::set<std::string> names;
    const std::string journal = temporary.read("packed/pack.journal");
    for (const char* name : {"resident.bin", "experts/layer_001.bin"})
      if (journal.find(std::string("\"") + name + "\"") != std::string::npos) names.insert(name);
    return names;
  }

  // Runs a pack that must fail and then one that must not.
  void fail_and_resume(const FaultPlan& plan, ErrorCode code, const std::string& what) {
    std::filesystem::remove_all(destination);
    files.set_plan(plan);
    files.clear_log();
    const auto failed = pack_into(roomy, source, destination);
    ASSERT_FALSE(failed) << what;
    EXPECT_EQ(failed.error().code(), code) << what;
    EXPECT_THAT(failed.error().message(), States(temporary.path().string())) << what;
    EXPECT_EQ(has("manifest.json"), manifest_was_renamed()) << what;
    const std::set<std::string> kept = finished();

    files.set_plan({});
    files.clear_log();
    const auto resumed = pack_into(roomy, source, destination);
    ASSERT_TRUE(resumed) << what << ": " << resumed.error().message();
    EXPECT_EQ(files_in(destination), undisturbed) << what;
    std::uint64_t kept_bytes = 0;
    for (const std::string& name : kept) kept_bytes += undisturbed.at(name).size();
    EXPECT_EQ(resumed->kept_bytes, kept_bytes) << what;
    for (const FileOperationRecord& record : files.log())
      if (record.operation == FileOperation::create) {
        const std::string name =
            std::filesystem::relative(record.path, destination).replace_extension().string();
        EXPECT_EQ(kept.count(name), 0u) << what << ": " << name << " is written again";
      }
  }
};

std::string describe(const FileOperationRecord& record, std::uint64_t index) {
  return "operation " + std::to_string(index) + ", " + std::string(name_of(record.operation)) + " of " +
         record.path.filename().string();
}

using AFailingDisk = FailingPacks;

TEST_F(AFailingDisk, FailsThePackWhicheverOperationFailsAndTheNextRunCompletesIt) {
  const std::vector<FileOperationRecord> operations = rehearse();
  EXPECT_GT(operations.size(), 50u);
  for (std::uint64_t i = 0; i < operations.size(); ++i) {
    fail_and_resume({.faults = {{.index = i}}}, ErrorCode::io_failed, describe(operations[i], i));
  }
}

TEST_F(AFailingDisk, ThatIsFullAtAnyWriteFailsThePackAndTheNextRunCompletesIt) {
  const std::vector<FileOperationRecord> operations = rehearse();
  for (const FileOperation writing : {FileOperation::create, FileOperation::append, FileOperation::sync,
                                      FileOperation::make_directory, FileOperation::rename}) {
    std::uint64_t index = 0;
    for (const FileOperationRecord& record : operations)
      if (record.operation == writing) {
        const std::string what = describe(record, index);
        fail_and_resume({.faults = {{.operation = writing, .index = index++, .error_number = ENOSPC}}},
                        ErrorCode::no_space, what);
      }
    EXPECT_GT(index, 0u) << name_of(writing);
  }
}

TEST_F(AFailingDisk, ThatFillsUpInTheMiddleOfAWriteFailsThePackAndTheNextRunCompletesIt) {
  std::uint64_t total = 0;
  for (const FileOperationRecord& record : rehearse())
    if (record.operation == FileOperation::append) total += record.bytes;
  for (std::uint64_t room = 0; room < total; room += total / 23)
    fail_and_resume({.disk_bytes = room}, ErrorCode::no_space, "room for " + std::to_string(room) + " bytes");
  fail_and_resume({.disk_bytes = total - 1}, ErrorCode::no_space, "room for all but a byte");
}

TEST_F(AFailingDisk, ThatDoesNotSayHowMuchRoomItHasIsNotWrittenTo) {
  files.set_plan({.faults = {{.operation = FileOperation::free_bytes}}});
  const auto failed = pack_into(files, source, destination);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), ErrorCode::io_failed);
  EXPECT_FALSE(std::filesystem::exists(destination));
}

TEST_F(AFailingDisk, ThatFailsForGoodFailsThePackOfSeveralJobsOnce) {
  for (const std::uint64_t index : {0u, 3u, 9u}) {
    std::filesystem::remove_all(destination);
    files.set_plan({.faults = {{.operation = FileOperation::append, .index = index, .and_all_later = true}}});
    const auto failed = pack_into(files, source, destination, {.bits = {}, .jobs = 4});
    if (failed) continue;  // the run has fewer operations
    EXPECT_EQ(failed.error().code(), ErrorCode::io_failed);
    EXPECT_FALSE(has("manifest.json"));
    files.set_plan({});
    ASSERT_TRUE(pack_into(files, source, destination, {.bits = {}, .jobs = 4}));
    EXPECT_EQ(files_in(destination), undisturbed);
  }
}

// ---- Cancelled packs ----

// Packs, and asks for the end at progress report `at`, counted from 0. Returns the number of reports.
struct CancelledPack {
  Result<PackReport> report;
  std::size_t reports;
};
CancelledPack pack_cancelled_at(std::size_t at, const SourceModel& source, FileSystem& files,
                                const std::filesystem::path& destination, unsigned jobs = 1) {
  std::atomic<bool> cancel = at == 0;
  std::size_t reports = 0;
  PackOptions options{.bits = {}, .jobs = jobs};
  options.cancel = &cancel;
  auto report = pack(source, files, files, destination, options,
                     [&](const PackProgress&) { cancel = ++reports >= at; });
  return {std::move(report), reports};
}

using ACancelledPack = FailingPacks;

TEST_F(ACancelledPack, LeavesWhatItHasFinishedAndTheNextRunCompletesIt) {
  const std::size_t reports = pack_cancelled_at(~std::size_t{0}, source, disk, destination).reports;
  ASSERT_GE(reports, 2u);
  for (std::size_t at = 0; at <= reports; ++at)
    for (const unsigned jobs : {1u, 4u}) {
      std::filesystem::remove_all(destination);
      const CancelledPack cancelled = pack_cancelled_at(at, source, disk, destination, jobs);
      ASSERT_FALSE(cancelled.report) << at;
      EXPECT_EQ(cancelled.report.error().code(), ErrorCode::cancelled);
      EXPECT_THAT(cancelled.report.error().message(), States("cancelled"));
      EXPECT_EQ(std::filesystem::exists(destination), at > 0);
      EXPECT_FALSE(has("manifest.json"));
      std::uint64_t finished_bytes = 0;
      if (at > 0) {
        for (const std::string& name : finished()) finished_bytes += undisturbed.at(name).size();
        for (const auto& [name, bytes] : files_in(destination))
          EXPECT_FALSE(name.ends_with(".partial")) << name;
      }
      const auto resumed = pack_into(disk, source, destination);
      ASSERT_TRUE(resumed) << resumed.error().message();
      EXPECT_EQ(resumed->kept_bytes, finished_bytes) << at;
      EXPECT_EQ(files_in(destination), undisturbed) << at;
    }
}

TEST_F(ACancelledPack, KeepsTheFilesBeforeTheCancelledOne) {
  ASSERT_FALSE(pack_cancelled_at(2, source, disk, destination).report);
  EXPECT_EQ(finished().size(), 1u);
}

TEST_F(ACancelledPack, MayBeTheComparisonWithAFinishedOne) {
  packed_to(source, destination);
  const CancelledPack cancelled = pack_cancelled_at(1, source, disk, destination, 2);
  ASSERT_FALSE(cancelled.report);
  EXPECT_EQ(cancelled.report.error().code(), ErrorCode::cancelled);
  EXPECT_EQ(files_in(destination), undisturbed);
}

// A file has its name only when it is on the disk, and is in the journal only when it has its name.
TEST_F(AFailingDisk, FindsEachStepOnTheDiskBeforeTheNextOneBegins) {
  const std::vector<FileOperationRecord> log = rehearse();
  const auto position = [&](FileOperation operation, const std::string& name, std::size_t from = 0) {
    for (std::size_t i = from; i < log.size(); ++i)
      if (log[i].operation == operation && log[i].path.filename() == name) return i;
    ADD_FAILURE() << name_of(operation) << " of " << name << " after " << from;
    return log.size();
  };
  const std::size_t begun = position(FileOperation::rename, "pack.journal.partial");
  const std::size_t created = position(FileOperation::create, "resident.bin.partial");
  EXPECT_LT(begun, created);
  std::size_t last = 0;
  for (const char* name : {"resident.bin.partial", "layer_001.bin.partial"}) {
    const std::size_t synced = position(FileOperation::sync, name, created);
    const std::size_t renamed = position(FileOperation::rename, name, synced);
    const std::size_t directory = renamed + 1;
    EXPECT_EQ(log[directory].operation, FileOperation::sync_directory);
    last = position(FileOperation::rename, "pack.journal.partial", directory);
  }
  const std::size_t manifest = position(FileOperation::rename, "manifest.json.partial", last);
  EXPECT_EQ(log[manifest + 1].operation, FileOperation::sync_directory);
  EXPECT_EQ(position(FileOperation::remove_all, "pack.journal", manifest), log.size() - 1);
}

TEST_F(AFailingDisk, MayHaveKilledAPackBeforeItsJournalWasWhole) {
  temporary.write("packed/pack.journal.partial", "0123");
  packed_to(source, destination);
  EXPECT_EQ(files_in(destination), undisturbed);
}

TEST_F(AFailingDisk, MayHaveKilledAPackInTheMiddleOfAFile) {
  files.set_plan({.faults = {{.operation = FileOperation::create, .file_name = "layer_001.bin.partial"}}});
  ASSERT_FALSE(pack_into(files, source, destination));
  temporary.write("packed/experts/layer_001.bin.partial", "half of it");
  temporary.write("packed/manifest.json.partial", "{");
  packed_to(source, destination);
  EXPECT_EQ(files_in(destination), undisturbed);
}

}  // namespace
}  // namespace moeflux
