#include "measure/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/testing/states.h"
#include "io/posix_file_system.h"
#include "io/testing/faulty_file_system.h"
#include "io/testing/temporary_directory.h"
#include "kernels/kernel_table.h"

namespace moeflux {
namespace {

using test::States;

struct Doctor : testing::Test {
  PosixFileSystem files;
  TemporaryDirectory folder;
  Diagnosis diagnosis = diagnose(files, folder.path());
  const DriveDiagnosis& drive = diagnosis.drive;

  std::size_t left_in_folder() {
    const auto names = files.list(folder.path());
    return names ? names->size() : 99;
  }
};

TEST_F(Doctor, ListsTheKernelsOfThisBuildFastestFirst) {
  ASSERT_EQ(diagnosis.kernels.size(), compiled_kernels().size());
  for (std::size_t i = 0; i < diagnosis.kernels.size(); ++i) {
    EXPECT_EQ(diagnosis.kernels[i].name, compiled_kernels()[i]->name);
    EXPECT_EQ(diagnosis.kernels[i].runs_here, compiled_kernels()[i]->runs_here());
  }
  EXPECT_EQ(diagnosis.kernels.back().name, "scalar");
  EXPECT_TRUE(diagnosis.kernels.back().runs_here);
}

TEST_F(Doctor, FindsExactlyOneTableThatIsChosenAndItIsTheFirstThatRuns) {
  const auto first = std::ranges::find_if(diagnosis.kernels, &KernelsFound::runs_here);
  ASSERT_NE(first, diagnosis.kernels.end());
  EXPECT_TRUE(first->is_chosen);
  EXPECT_EQ(std::ranges::count_if(diagnosis.kernels, &KernelsFound::is_chosen), 1);
}

TEST_F(Doctor, GrantsNoMoreHugePagesThanItAskedFor) {
  EXPECT_EQ(diagnosis.huge_pages.asked_bytes, kHugePageProbeBytes);
  EXPECT_LE(diagnosis.huge_pages.granted_bytes, kHugePageProbeBytes);
  if (diagnosis.machine.transparent_huge_pages == "never") {
    EXPECT_EQ(diagnosis.huge_pages.granted_bytes, 0u);
  }
}

TEST_F(Doctor, LooksAtTheMachineThroughItsFiles) {
  const Machine machine = read_machine(files);
  EXPECT_EQ(diagnosis.machine.processor, machine.processor);
  EXPECT_EQ(diagnosis.machine.physical_cores, machine.physical_cores);
  EXPECT_EQ(diagnosis.machine.memory_total_bytes, machine.memory_total_bytes);
}

TEST_F(Doctor, TriesEveryDriveAndLeavesNothingBehind) {
  EXPECT_EQ(drive.problem, "");
  EXPECT_EQ(drive.folder, folder.path());
  ASSERT_EQ(drive.tried.size(), 3u);
  EXPECT_EQ(drive.tried[0].asked, DriveKind::uring);
  EXPECT_EQ(drive.tried[1].asked, DriveKind::pread);
  EXPECT_EQ(drive.tried[2].asked, DriveKind::buffered);
  EXPECT_EQ(drive.tried[2].found, DriveKind::buffered);
  EXPECT_EQ(drive.fixed_buffer_bytes, kFixedBufferProbeBytes);
  EXPECT_EQ(left_in_folder(), 0u);
}

// On any machine, a drive other than the requested one comes with a reason.
TEST_F(Doctor, HasAReasonWhereADriveIsNotTheOneThatWasAskedFor) {
  for (const DriveTried& tried : drive.tried) {
    ASSERT_TRUE(tried.found);
    EXPECT_NE(tried.description, "");
    if (*tried.found != tried.asked) {
      EXPECT_THAT(tried.refusals, testing::Contains(States("refused")));
    }
  }
  if (drive.has_uring() == true && !drive.has_fixed_buffers) {
    EXPECT_THAT(drive.tried[0].refusals, testing::Contains(States("fixed buffers", "refused")));
  }
}

TEST_F(Doctor, SaysSoWhereTheFolderCannotBeWritten) {
  const DriveDiagnosis nowhere = diagnose(files, folder / "nowhere").drive;
  EXPECT_EQ(nowhere.folder, folder / "nowhere");
  EXPECT_THAT(nowhere.problem, States((folder / "nowhere").native()));
  EXPECT_TRUE(nowhere.tried.empty());
  EXPECT_FALSE(nowhere.has_uring());
  EXPECT_FALSE(nowhere.has_direct_reads());
  EXPECT_EQ(left_in_folder(), 0u);
}

TEST_F(Doctor, NamesTheFolderInFull) {
  EXPECT_EQ(diagnose(files, folder / "nowhere/..").drive.folder, folder.path());
  EXPECT_EQ(diagnose(files, ".").drive.folder, std::filesystem::current_path());
}

TEST_F(Doctor, CleansUpWhenTheDiskIsFull) {
  FaultyFileSystem faulty(files);
  faulty.set_plan({.disk_bytes = 100});
  EXPECT_THAT(diagnose(faulty, folder.path()).drive.problem, States(folder.path().native(), "probe"));
  EXPECT_EQ(left_in_folder(), 0u);
}

TEST(DriveDiagnoses, DoNotKnowOfIoUringWhereDirectReadsAreRefused) {
  DriveDiagnosis drive;
  drive.tried = {{DriveKind::uring, DriveKind::buffered, "", {}},
                 {DriveKind::pread, DriveKind::buffered, "", {}}};
  EXPECT_EQ(drive.has_uring(), std::nullopt);
  EXPECT_EQ(drive.has_direct_reads(), false);
  drive.tried = {{DriveKind::uring, DriveKind::pread, "", {}}, {DriveKind::pread, DriveKind::pread, "", {}}};
  EXPECT_EQ(drive.has_uring(), false);
  EXPECT_EQ(drive.has_direct_reads(), true);
  drive.tried[0].found = DriveKind::uring;
  EXPECT_EQ(drive.has_uring(), true);
}

}  // namespace
}  // namespace moeflux
