// Files that change while a store reads them. Bytes that are not the record are never handed out.

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "base/testing/states.h"
#include "experts/testing/stored_model.h"

namespace moeflux {
namespace {

using test::States;

// Changes the modification time by more than the resolution of any file system's clock.
void touch(const std::filesystem::path& path) {
  struct stat status;
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  struct timespec times[2] = {status.st_atim, status.st_mtim};
  times[1].tv_sec += 17;
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

class ChangingFiles : public testing::TestWithParam<DriveChoice> {
 protected:
  void SetUp() override {
    store =
        model.open({.budget_bytes = model.least_bytes(), .drive = GetParam(), .speculates = false}, faults);
    if (store->drive().kind() != GetParam().kind) GTEST_SKIP() << testing::PrintToString(store->refusals());
  }
  // Overwrites the bytes of the file in place.
  void overwrite(std::uint32_t layer, const std::string& bytes) const {
    std::fstream file(model.file(layer), std::ios::binary | std::ios::in | std::ios::out);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    ASSERT_TRUE(file.good());
    touch(model.file(layer));
  }
  void expect_failure(std::uint32_t layer, std::uint32_t expert, const std::string& cause) {
    const Result<WantedExperts> failed = try_fetch(model, *store, layer, {expert});
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code(), ErrorCode::io_failed);
    EXPECT_THAT(failed, States(fmt::format("expert {}", expert), fmt::format("layer {}", layer),
                               "'" + model.file(layer).native() + "'", cause));
  }
  StoredModel model;
  std::shared_ptr<DriveFaults> faults = std::make_shared<DriveFaults>();
  std::unique_ptr<ExpertStore> store;
};
INSTANTIATE_TEST_SUITE_P(, ChangingFiles, testing::ValuesIn(kEveryDrive),
                         [](const auto& choice) { return std::string(name_of(choice.param.kind)); });

TEST_P(ChangingFiles, ATouchedFileIsStillReadAndVerifiedFromThenOn) {
  expect_fetch(model, *store, 1, all_experts());
  touch(model.file(1));
  fetch_everything_twice(model, *store);
  faults->set_plan({.faults = {{.kind = DriveFaultKind::flipped_bit, .index = 0}}});
  expect_failure(1, 2, "checksum");
  faults->set_plan({.faults = {{.kind = DriveFaultKind::flipped_bit, .index = 0}}});
  expect_failure(1, 3, "the file has changed since it was opened");
  faults->set_plan({});
  fetch_everything_twice(model, *store);
}

TEST_P(ChangingFiles, AnOverwrittenFileIsRejectedUntilItIsRestored) {
  expect_fetch(model, *store, 1, {0});
  std::string other = model.contents(1);
  std::ranges::reverse(other);
  overwrite(1, other);
  for (std::uint32_t expert = 1; expert < StoredModel::kExperts; ++expert)
    expect_failure(1, expert, "checksum");
  expect_fetch(model, *store, 0, {0, 1, 2, 3, 4, 5});  // from the other file
  expect_failure(1, 0, "checksum");                    // evicted meanwhile: there is one slot of its size
  overwrite(1, model.contents(1));
  fetch_everything_twice(model, *store);
}

TEST_P(ChangingFiles, OverwritingOneRecordLeavesTheOthersValid) {
  std::string other = model.contents(1);
  other[model.record_bytes(1, 0) + 5000] = static_cast<char>(~other[model.record_bytes(1, 0) + 5000]);
  overwrite(1, other);
  expect_failure(1, 1, "checksum");
  expect_fetch(model, *store, 1, {0, 2, 3, 4, 5});
  expect_failure(1, 1, "the file has changed since it was opened");
  expect_fetch(model, *store, 0, all_experts());
}

TEST_P(ChangingFiles, ATruncatedFileServesItsWholeRecordsAndFailsTheOthers) {
  const std::uint64_t record = model.record_bytes(1, 0);
  // Truncated within a page, within a sector, at a sector, at a page, between two records, and to nothing.
  for (const std::uint64_t size : {3 * record + 4096 + 1000, 3 * record + 700, 3 * record + 512,
                                   3 * record + 4096, 3 * record, std::uint64_t{0}}) {
    SCOPED_TRACE(testing::Message() << "cut off at " << size);
    std::filesystem::resize_file(model.file(1), size);
    if (size != 0) expect_fetch(model, *store, 1, {0, 1, 2});
    for (const std::uint32_t expert : {3u, 4u, 5u}) expect_failure(1, expert, "the file has been cut off");
    expect_fetch(model, *store, 0, all_experts());
    model.restore_file(1);
    fetch_everything_twice(model, *store);
  }
}

TEST_P(ChangingFiles, AReplacedFileIsReadFromTheOpenDescriptor) {
  std::string other = model.contents(1);
  std::ranges::reverse(other);
  const std::filesystem::path path = model.file(1), beside = path.native() + ".new";
  std::ofstream(beside, std::ios::binary) << other;
  std::filesystem::rename(beside, path);
  fetch_everything_twice(model, *store);
  std::filesystem::remove(path);
  fetch_everything_twice(model, *store);
}

}  // namespace
}  // namespace moeflux
