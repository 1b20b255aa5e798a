#include "io/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "base/sizes.h"
#include "io/posix_file_system.h"
#include "io/testing/faulty_file_system.h"
#include "io/testing/temporary_directory.h"

namespace moeflux {
namespace {

// A /proc and /sys in a temporary directory.
struct FakeMachine : testing::Test {
  TemporaryDirectory root;
  PosixFileSystem disk;

  void write(std::string_view path, std::string_view content) { root.write(path, content); }
  void write_siblings(unsigned core, std::string_view list) {
    write("sys/devices/system/cpu/cpu" + std::to_string(core) + "/topology/thread_siblings_list",
          std::string(list) + "\n");
  }
  void write_core(unsigned core, unsigned id, unsigned package) {
    const std::string topology = "sys/devices/system/cpu/cpu" + std::to_string(core) + "/topology/";
    write(topology + "core_id", std::to_string(id) + "\n");
    write(topology + "physical_package_id", std::to_string(package) + "\n");
  }
  void allow(std::string_view list) {
    write("proc/self/status",
          "Name:\tcat\nCpus_allowed:\tff\nCpus_allowed_list:\t" + std::string(list) + "\nMems_allowed:\t1\n");
  }
  Machine read() { return read_machine(disk, root.path()); }
};

using Cores = FakeMachine;
using Memory = FakeMachine;
using ControlGroups = FakeMachine;

TEST_F(FakeMachine, HasDefaultsIfAllFilesAreMissing) {
  const Machine machine = read();
  EXPECT_EQ(machine.processor, "unknown");
  EXPECT_EQ(machine.logical_cores, std::max(1u, std::thread::hardware_concurrency()));
  EXPECT_EQ(machine.physical_cores, machine.logical_cores);
  EXPECT_EQ(machine.cache_bytes, 0u);
  EXPECT_EQ(machine.memory_total_bytes, 0u);
  EXPECT_EQ(machine.memory_available_bytes, 0u);
  EXPECT_FALSE(machine.cgroup_limit_bytes);
  EXPECT_FALSE(machine.cgroup_used_bytes);
  EXPECT_EQ(machine.transparent_huge_pages, "unknown");
  EXPECT_EQ(machine.huge_page_bytes, 0u);
  EXPECT_EQ(machine.usable_memory_bytes(), 0u);
}

TEST_F(FakeMachine, HasDefaultsIfFilesAreMalformed) {
  for (const char* file :
       {"proc/cpuinfo", "proc/meminfo", "proc/self/status", "proc/self/cgroup", "sys/fs/cgroup/memory.max",
        "sys/kernel/mm/transparent_hugepage/enabled", "sys/kernel/mm/transparent_hugepage/hpage_pmd_size"})
    for (const std::string& content :
         {std::string("\n\n:\n::\n"), std::string(300, 'x'), std::string("MemTotal:"),
          std::string("Cpus_allowed_list:\t0-99999999999\n0::/../..\n"),
          std::string("Cpus_allowed_list:\t3-1,,-\n]model name[\n"), std::string(100, '\0')}) {
      write(file, content);
      const Machine machine = read();
      EXPECT_GE(machine.logical_cores, 1u);
      EXPECT_GE(machine.physical_cores, 1u);
      EXPECT_EQ(machine.usable_memory_bytes(), 0u);
    }
}

TEST_F(FakeMachine, HasDefaultsIfFilesCannotBeRead) {
  FaultyFileSystem files(disk);
  files.set_plan({.faults = {{.and_all_later = true}}});
  EXPECT_EQ(read_machine(files).processor, "unknown");
  files.set_plan({.faults = {{.operation = FileOperation::read, .and_all_later = true}}});
  EXPECT_EQ(read_machine(files).processor, "unknown");
  EXPECT_GE(read_machine(files).physical_cores, 1u);
}

TEST_F(FakeMachine, SurvivesShortReads) {
  write("proc/cpuinfo", "processor\t: 0\nmodel name\t: A Processor @ 2.60GHz\n");
  FaultyFileSystem files(disk);
  files.set_plan({.longest_read_bytes = 1});
  EXPECT_EQ(read_machine(files, root.path()).processor, "A Processor @ 2.60GHz");
}

TEST_F(FakeMachine, ReportsTheNameOfTheFirstProcessor) {
  write("proc/cpuinfo",
        "processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9B14\nflags\t\t: fpu\n\n"
        "processor\t: 1\nmodel name\t: another\n");
  EXPECT_EQ(read().processor, "AMD EPYC 9B14");
}

TEST_F(FakeMachine, ReportsTheModeOfHugePages) {
  for (const char* mode : {"always", "madvise", "never"}) {
    std::string choices = "always madvise never\n";
    choices.replace(choices.find(mode), std::string(mode).size(), "[" + std::string(mode) + "]");
    write("sys/kernel/mm/transparent_hugepage/enabled", choices);
    EXPECT_EQ(read().transparent_huge_pages, mode);
  }
}

TEST_F(FakeMachine, PrefersTheSizeOfTransparentHugePagesToThatOfReservedOnes) {
  write("proc/meminfo", "Hugepagesize:       1048576 kB\n");
  EXPECT_EQ(read().huge_page_bytes, kGiB);
  write("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152\n");
  EXPECT_EQ(read().huge_page_bytes, 2 * kMiB);
}

TEST_F(FakeMachine, HasTheLargestCacheOfItsFirstCore) {
  const std::string folder = "sys/devices/system/cpu/cpu0/cache/index";
  write(folder + "0/size", "48K\n");
  write(folder + "1/size", "327680K\n");
  write(folder + "2/size", "2048K\n");
  EXPECT_EQ(read().cache_bytes, 320 * kMiB);
  write(folder + "3/size", "99999999999999999999K\n");
  EXPECT_EQ(read().cache_bytes, 320 * kMiB);
}

TEST_F(Cores, CountHyperThreadsOnceAsPhysicalCores) {
  allow("0-7");
  for (unsigned core = 0; core < 8; ++core)
    write_siblings(core, std::to_string(core % 4) + "," + std::to_string(core % 4 + 4));
  EXPECT_EQ(read().logical_cores, 8u);
  EXPECT_EQ(read().physical_cores, 4u);
}

TEST_F(Cores, CountOnlyThoseThatTheProcessMayRunOn) {
  for (unsigned core = 0; core < 16; ++core)
    write_siblings(core, std::to_string(core / 2 * 2) + "-" + std::to_string(core / 2 * 2 + 1));
  write("sys/devices/system/cpu/online", "0-15\n");
  EXPECT_EQ(read().logical_cores, 16u);
  EXPECT_EQ(read().physical_cores, 8u);
  allow("2,5-7,12");  // 2; 5; 6 and 7; 12
  EXPECT_EQ(read().logical_cores, 5u);
  EXPECT_EQ(read().physical_cores, 4u);
  allow("1");
  EXPECT_EQ(read().physical_cores, 1u);
}

TEST_F(Cores, AreDistinguishedByPackageAndCoreId) {
  allow("0-3");
  write_core(0, 0, 0);
  write_core(1, 0, 1);
  write_core(2, 0, 0);
  write_core(3, 0, 1);
  EXPECT_EQ(read().logical_cores, 4u);
  EXPECT_EQ(read().physical_cores, 2u);
}

TEST_F(Cores, AreAllPhysicalWithoutTopologyFiles) {
  allow("0,2-4");
  EXPECT_EQ(read().logical_cores, 4u);
  EXPECT_EQ(read().physical_cores, 4u);
}

TEST_F(Memory, IsReadFromMeminfo) {
  write("proc/meminfo",
        "MemTotal:       24684100 kB\nMemFree:        16844832 kB\nMemAvailable:   23299132 kB\n");
  EXPECT_EQ(read().memory_total_bytes, 24684100 * kKiB);
  EXPECT_EQ(read().memory_available_bytes, 23299132 * kKiB);
  EXPECT_EQ(read().usable_memory_bytes(), 23299132 * kKiB);
}

TEST_F(ControlGroups, LimitTheMemoryInVersionTwo) {
  write("proc/meminfo", "MemTotal: 64000000 kB\nMemAvailable: 60000000 kB\n");
  write("proc/self/cgroup", "0::/user.slice/a.scope\n");
  write("sys/fs/cgroup/user.slice/a.scope/memory.max", "8589934592\n");
  write("sys/fs/cgroup/user.slice/a.scope/memory.current", "3221225472\n");
  write("sys/fs/cgroup/user.slice/memory.max", "max\n");
  EXPECT_EQ(read().cgroup_limit_bytes, 8 * kGiB);
  EXPECT_EQ(read().cgroup_used_bytes, 3 * kGiB);
  EXPECT_EQ(read().usable_memory_bytes(), 5 * kGiB);
}

TEST_F(ControlGroups, CountReclaimablePageCacheAsFree) {
  write("proc/self/cgroup", "0::/a\n");
  write("sys/fs/cgroup/a/memory.max", std::to_string(8 * kGiB));
  write("sys/fs/cgroup/a/memory.current", std::to_string(7 * kGiB));
  write("sys/fs/cgroup/a/memory.stat", "anon 1\nfile 2\ninactive_file " + std::to_string(4 * kGiB) +
                                           "\nactive_file " + std::to_string(kGiB) + "\n");
  EXPECT_EQ(read().cgroup_used_bytes, 2 * kGiB);
  EXPECT_EQ(read().usable_memory_bytes(), 6 * kGiB);
}

TEST_F(ControlGroups, ReportTheContainingGroupWithTheLeastFreeMemory) {
  write("proc/meminfo", "MemAvailable: 60000000 kB\n");
  write("proc/self/cgroup", "0::/outer/inner\n");
  write("sys/fs/cgroup/outer/inner/memory.max", std::to_string(8 * kGiB));
  write("sys/fs/cgroup/outer/inner/memory.current", std::to_string(kGiB));
  write("sys/fs/cgroup/outer/memory.max", std::to_string(4 * kGiB));
  write("sys/fs/cgroup/outer/memory.current", std::to_string(2 * kGiB));
  EXPECT_EQ(read().cgroup_limit_bytes, 4 * kGiB);
  EXPECT_EQ(read().usable_memory_bytes(), 2 * kGiB);
  write("sys/fs/cgroup/outer/inner/memory.current", std::to_string(7 * kGiB));
  EXPECT_EQ(read().cgroup_limit_bytes, 8 * kGiB);
  EXPECT_EQ(read().usable_memory_bytes(), kGiB);
}

TEST_F(ControlGroups, FallBackToTheOutermostGroupInAContainer) {
  write("sys/fs/cgroup/memory.max", std::to_string(2 * kGiB));
  for (const char* groups : {"0::/\n", "0::/../../docker/0123\n", "0::/docker/0123\n"}) {
    write("proc/self/cgroup", groups);
    EXPECT_EQ(read().cgroup_limit_bytes, 2 * kGiB) << groups;
    EXPECT_EQ(read().cgroup_used_bytes, 0u);
  }
}

TEST_F(ControlGroups, LimitTheMemoryInVersionOne) {
  write("proc/meminfo", "MemAvailable: 60000000 kB\n");
  write("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/api/77\n1:cpuset:/\n0::/\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");  // no limit
  EXPECT_FALSE(read().cgroup_limit_bytes);
  write("sys/fs/cgroup/memory/api/77/memory.limit_in_bytes", std::to_string(6 * kGiB) + "\n");
  write("sys/fs/cgroup/memory/api/77/memory.usage_in_bytes", std::to_string(5 * kGiB) + "\n");
  write("sys/fs/cgroup/memory/api/77/memory.stat",
        "cache 1\ninactive_file 99\ntotal_inactive_file " + std::to_string(kGiB) + "\ntotal_active_file 0\n");
  EXPECT_EQ(read().cgroup_limit_bytes, 6 * kGiB);
  EXPECT_EQ(read().cgroup_used_bytes, 4 * kGiB);
  EXPECT_EQ(read().usable_memory_bytes(), 2 * kGiB);
}

TEST_F(ControlGroups, LeaveNoMemoryIfFull) {
  write("proc/meminfo", "MemAvailable: 60000000 kB\n");
  write("proc/self/cgroup", "0::/a\n");
  write("sys/fs/cgroup/a/memory.max", "1000\n");
  write("sys/fs/cgroup/a/memory.current", "4096\n");
  EXPECT_EQ(read().usable_memory_bytes(), 0u);
}

TEST(ThisMachine, HasCoresAndMemory) {
  PosixFileSystem files;
  const Machine machine = read_machine(files);
  EXPECT_GE(machine.physical_cores, 1u);
  EXPECT_GE(machine.logical_cores, machine.physical_cores);
  EXPECT_GT(machine.memory_total_bytes, 0u);
  EXPECT_GT(machine.usable_memory_bytes(), 0u);
  EXPECT_LE(machine.usable_memory_bytes(), machine.memory_total_bytes);
}

}  // namespace
}  // namespace moeflux
