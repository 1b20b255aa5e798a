// Opening a model on a disk that fails always gives an error that names a path.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/testing/states.h"
#include "io/posix_file_system.h"
#include "io/testing/faulty_file_system.h"
#include "io/testing/temporary_directory.h"
#include "source/source_model.h"
#include "source/testing/goldens.h"
#include "source/testing/original_builder.h"

namespace moeflux {
namespace {

using test::States;

class FailingDisk : public testing::TestWithParam<const char*> {
 protected:
  TemporaryDirectory temporary;
  PosixFileSystem disk;
  FaultyFileSystem files{disk};
  std::filesystem::path path = model_path();
  std::string parent = path.parent_path().string();

  std::filesystem::path model_path() const {
    const std::string name = GetParam();
    if (name == "tern") return tern();
    if (name != "original") return golden(name);
    original_of(tiny_qwen_mlx()).write(temporary, "model/artifacts", "model/root");
    return temporary / "model";
  }
  // The number of operations on a disk without faults.
  std::uint64_t operations() {
    files.set_plan({});
    files.clear_log();
    const auto model = SourceModel::open(files, path);
    EXPECT_TRUE(model) << model.error().message();
    return files.log().size();
  }
};

TEST_P(FailingDisk, FailsTheOpeningIfAnyOperationFails) {
  const std::uint64_t count = operations();
  EXPECT_GT(count, 8u);
  for (std::uint64_t i = 0; i < count; ++i) {
    files.set_plan({.faults = {{.index = i}}});
    const auto model = SourceModel::open(files, path);
    ASSERT_FALSE(model) << "operation " << i;
    EXPECT_EQ(model.error().code(), ErrorCode::io_failed);
    EXPECT_THAT(model.error().message(), States(parent)) << "operation " << i;
  }
}

TEST_P(FailingDisk, ThatLosesAFileNeverDoesMoreThanFail) {
  const std::uint64_t count = operations();
  for (std::uint64_t i = 0; i < count; ++i) {
    files.set_plan({.faults = {{.index = i, .error_number = ENOENT}}});
    const auto model = SourceModel::open(files, path);
    if (!model) {
      EXPECT_THAT(model.error().message(), States(parent)) << "operation " << i;
    }
  }
}

TEST_P(FailingDisk, ThatEmptiesAFileNeverDoesMoreThanFail) {
  const std::uint64_t count = operations();
  std::vector<std::filesystem::path> opened;
  for (const FileOperationRecord& record : files.log())
    if (record.operation == FileOperation::open_read) opened.push_back(record.path);
  for (const std::filesystem::path& victim : opened)
    for (std::uint64_t i = 0; i < count; ++i)
      for (const std::uint64_t left : {0u, 100u}) {
        files.set_plan({.truncations = {{.path = victim, .size_bytes = left, .from_operation = i}}});
        const auto model = SourceModel::open(files, path);
        if (i == 0 && victim.extension() == ".json") {
          EXPECT_FALSE(model);
        }
        if (!model) {
          EXPECT_THAT(model.error().message(), States(parent)) << "operation " << i;
        }
      }
}

TEST_P(FailingDisk, ThatReadsInSmallPiecesIsNoFailure) {
  files.set_plan({.longest_read_bytes = 1009});
  const auto model = SourceModel::open(files, path);
  EXPECT_TRUE(model) << model.error().message();
}

TEST_P(FailingDisk, FailsTheSummaryToo) {
  files.set_plan({});
  const auto model = SourceModel::open(files, path);
  ASSERT_TRUE(model);
  files.set_plan({.faults = {{.operation = FileOperation::size}}});
  const auto summary = model->summarise();
  ASSERT_FALSE(summary);
  EXPECT_EQ(summary.error().code(), ErrorCode::io_failed);
}

INSTANTIATE_TEST_SUITE_P(, FailingDisk,
                         testing::Values("qwen35moe-tiny-mlx4", "deepseekv3-tiny-fp8", "tern", "original"),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace moeflux
