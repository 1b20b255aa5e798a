#include "measure/doctor.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "io/posix_file_system.h"
#include "kernels/kernel_table.h"

namespace moeflux {
namespace {

struct Doctor : testing::Test {
  PosixFileSystem files;
  Diagnosis diagnosis = diagnose(files);
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

}  // namespace
}  // namespace moeflux
