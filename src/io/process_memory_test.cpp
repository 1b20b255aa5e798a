#include "io/process_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstddef>
#include <string>

#include "base/memory/aligned_buffer.h"
#include "base/sizes.h"
#include "base/testing/states.h"
#include "io/posix_file_system.h"
#include "io/testing/faulty_file_system.h"
#include "io/testing/temporary_directory.h"

namespace moeflux {
namespace {

// A /proc/self in a temporary directory.
struct FakeProcess : testing::Test {
  TemporaryDirectory root;
  PosixFileSystem disk;

  ProcessMemory with_status(std::string_view status) {
    root.write("proc/self/status", status);
    return read_process_memory(disk, root.path());
  }
};

TEST_F(FakeProcess, ReportsResidentAndPeakBytes) {
  const ProcessMemory memory = with_status(
      "Name:\tmoeflux\nVmPeak:\t   99999 kB\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nRssAnon:\t     512 "
      "kB\n");
  EXPECT_EQ(memory.resident_bytes, 1 * kMiB);
  EXPECT_EQ(memory.peak_resident_bytes, 2 * kMiB);
}

TEST_F(FakeProcess, ReportsNothingIfTheFileIsMissing) {
  const ProcessMemory memory = read_process_memory(disk, root.path());
  EXPECT_FALSE(memory.resident_bytes);
  EXPECT_FALSE(memory.peak_resident_bytes);
  EXPECT_TRUE(memory.major_faults);
}

TEST_F(FakeProcess, IgnoresMalformedLines) {
  for (const char* status :
       {"", "\n\n\n", "VmRSS", "VmRSS:", "VmRSS: kB", "VmRSS:\t-1 kB", "VmRSS:\t12", "VmRSS:\t12 MB",
        "VmRSS:\t12 kB and more", "XVmRSS:\t12 kB", "VmRSSX:\t12 kB", "VmRSS 12 kB",
        "VmRSS:\t99999999999999999999999 kB",  // more than 64 bits
        "VmRSS:\t18446744073709551615 kB"})    // more than 64 bits in bytes
    EXPECT_FALSE(with_status(status).resident_bytes) << status;
  EXPECT_EQ(with_status("VmRSS:\t12 kB").resident_bytes, 12 * kKiB) << "without a newline";
}

TEST_F(FakeProcess, ReportsNothingIfTheFileIsTooLarge) {
  std::string status = "VmRSS:\t12 kB\n";
  status.resize(kMiB, '\n');
  EXPECT_FALSE(with_status(status).resident_bytes);
}

TEST_F(FakeProcess, ReportsNothingIfTheFileCannotBeRead) {
  root.write("proc/self/status", "VmRSS:\t12 kB\n");
  FaultyFileSystem files(disk);
  files.set_plan({.faults = {{.operation = FileOperation::read, .and_all_later = true}}});
  EXPECT_FALSE(read_process_memory(files, root.path()).resident_bytes);
}

TEST_F(FakeProcess, ResetsThePeakThroughClearRefs) {
  root.write("proc/self/clear_refs", "");
  ASSERT_TRUE(reset_peak_resident_bytes(disk, root.path()));
  EXPECT_EQ(root.read("proc/self/clear_refs"), "5");
}

TEST_F(FakeProcess, ReturnsTheErrorOfResettingThePeak) {
  const Status no_proc = reset_peak_resident_bytes(disk, root.path());
  ASSERT_FALSE(no_proc);
  EXPECT_EQ(no_proc.error().code(), ErrorCode::not_found);
  EXPECT_THAT(no_proc, test::States("proc/self/clear_refs"));

  root.write("proc/self/clear_refs", "");
  FaultyFileSystem files(disk);
  files.set_plan({.faults = {{.operation = FileOperation::append}}});
  EXPECT_FALSE(reset_peak_resident_bytes(files, root.path()));
}

TEST(ProcessMemory, GrowsWithTheMemoryThatThisProcessWrites) {
  PosixFileSystem files;
  const ProcessMemory before = read_process_memory(files);
  if (!before.resident_bytes || !before.peak_resident_bytes)
    GTEST_SKIP() << "this system does not report the memory of a process";
  Result<AlignedBuffer> buffer = AlignedBuffer::create(32 * kMiB);
  ASSERT_TRUE(buffer);
  for (std::size_t at = 0; at < buffer->size(); at += 4096) buffer->bytes()[at] = std::byte{1};
  const ProcessMemory after = read_process_memory(files);
  // Less than 32 MiB: other pages of the process may be evicted at the same time.
  EXPECT_GE(*after.resident_bytes, *before.resident_bytes + 24 * kMiB);
  EXPECT_GE(*after.peak_resident_bytes, 24 * kMiB);
}

TEST(ProcessMemory, CountsTheMajorFaultsOfThisProcess) {
  PosixFileSystem files;
  rusage before{}, after{};
  ASSERT_EQ(::getrusage(RUSAGE_SELF, &before), 0);
  const ProcessMemory memory = read_process_memory(files);
  ASSERT_EQ(::getrusage(RUSAGE_SELF, &after), 0);
  ASSERT_TRUE(memory.major_faults);
  EXPECT_GE(*memory.major_faults, static_cast<std::uint64_t>(before.ru_majflt));
  EXPECT_LE(*memory.major_faults, static_cast<std::uint64_t>(after.ru_majflt));
}

TEST(ProcessMemory, HasAPeakThatCanBeReset) {
  PosixFileSystem files;
  {
    Result<HugeBuffer> buffer = HugeBuffer::create(64 * kMiB);
    ASSERT_TRUE(buffer);
    for (std::size_t at = 0; at < buffer->size(); at += 4096) buffer->bytes()[at] = std::byte{1};
  }
  const ProcessMemory before = read_process_memory(files);
  if (const Status reset = reset_peak_resident_bytes(files); !reset)
    GTEST_SKIP() << "not allowed here: " << reset.error().message();
  const ProcessMemory after = read_process_memory(files);
  ASSERT_TRUE(before.peak_resident_bytes && after.peak_resident_bytes);
  EXPECT_LE(*after.peak_resident_bytes + 32 * kMiB, *before.peak_resident_bytes);
}

}  // namespace
}  // namespace moeflux
