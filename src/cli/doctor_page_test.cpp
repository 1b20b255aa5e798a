#include "cli/doctor_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "base/json.h"
#include "base/sizes.h"
#include "cli/inspect.h"
#include "io/posix_file_system.h"

namespace moeflux::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

Diagnosis sick() {
  Diagnosis diagnosis;
  diagnosis.machine.processor = "A Processor";
  diagnosis.machine.logical_cores = 16;
  diagnosis.machine.physical_cores = 8;
  diagnosis.machine.memory_total_bytes = 64 * kGiB;
  diagnosis.machine.memory_available_bytes = 50 * kGiB;
  diagnosis.machine.transparent_huge_pages = "madvise";
  diagnosis.machine.huge_page_bytes = 2 * kMiB;
  diagnosis.kernels = {{"avx512", false, false}, {"avx2", true, true}, {"scalar", true, false}};
  diagnosis.huge_pages = {16 * kMiB, 8 * kMiB};
  return diagnosis;
}

TEST(DoctorPage, SaysWhatTheMachineIs) {
  const std::string page = render_page(sick());
  EXPECT_THAT(page, HasSubstr("processor   A Processor\n"));
  EXPECT_THAT(page, HasSubstr("cores       8 physical, 16 logical\n"));
  EXPECT_THAT(page, HasSubstr("kernels     avx512        not on this processor\n"));
  EXPECT_THAT(page, HasSubstr("\n            avx2          runs here, chosen\n"));
  EXPECT_THAT(page, HasSubstr("\n            scalar        runs here\n"));
  EXPECT_THAT(page, HasSubstr("memory      total         68,719,476,736 B (68.7 GB)\n"));
  EXPECT_THAT(page, HasSubstr("cgroup limit  none\n"));
  EXPECT_THAT(page, HasSubstr("huge pages  mode          madvise\n"));
  EXPECT_THAT(page, HasSubstr("tried         8.39 MB granted of 16.8 MB asked for\n"));
}

TEST(DoctorPage, HasTheSameNumbersAsJson) {
  const Json json = Json::parse(render_json(sick()));
  EXPECT_EQ(json["processor"], "A Processor");
  EXPECT_EQ(json["physical_cores"], 8);
  EXPECT_EQ(json["logical_cores"], 16);
  EXPECT_EQ(json["kernels"].size(), 3u);
  EXPECT_EQ(json["kernels"][1], Json({{"name", "avx2"}, {"runs_here", true}, {"chosen", true}}));
  EXPECT_EQ(json["memory"]["total_bytes"], 64 * kGiB);
  EXPECT_EQ(json["memory"]["available_bytes"], 50 * kGiB);
  EXPECT_TRUE(json["memory"]["cgroup_limit_bytes"].is_null());
  EXPECT_TRUE(json["memory"]["cgroup_used_bytes"].is_null());
  EXPECT_EQ(json["memory"]["usable_bytes"], 50 * kGiB);
  EXPECT_EQ(json["huge_pages"]["mode"], "madvise");
  EXPECT_EQ(json["huge_pages"]["page_bytes"], 2 * kMiB);
  EXPECT_EQ(json["huge_pages"]["tried_bytes"], 16 * kMiB);
  EXPECT_EQ(json["huge_pages"]["granted_bytes"], 8 * kMiB);
}

TEST(DoctorPage, ShowsTheLimitOfAControlGroup) {
  Diagnosis diagnosis = sick();
  diagnosis.machine.cgroup_limit_bytes = 8 * kGiB;
  diagnosis.machine.cgroup_used_bytes = 2 * kGiB;
  EXPECT_THAT(render_page(diagnosis), HasSubstr("cgroup limit  8,589,934,592 B (8.59 GB), 2.15 GB used\n"));
  EXPECT_THAT(render_page(diagnosis), HasSubstr("usable        6,442,450,944 B (6.44 GB)\n"));
  EXPECT_EQ(Json::parse(render_json(diagnosis))["memory"]["cgroup_limit_bytes"], 8 * kGiB);
}

TEST(DoctorPage, SaysWhatIsUnknown) {
  const std::string page = render_page(Diagnosis{});
  EXPECT_THAT(page, HasSubstr("processor   unknown\n"));
  EXPECT_THAT(page, HasSubstr("total         unknown\n"));
  EXPECT_THAT(page, HasSubstr("tried         no memory to try it with\n"));
}

TEST(DoctorPage, LetsNoControlCharacterThroughAndKeepsItsColumns) {
  Diagnosis diagnosis = sick();
  diagnosis.machine.processor = "\x1b[31m" + std::string(300, 'x');
  diagnosis.machine.transparent_huge_pages = "\a";
  EXPECT_THAT(render_page(diagnosis), Not(HasSubstr("\x1b")));
  EXPECT_THAT(render_page(diagnosis), Not(HasSubstr("\a")));
  std::istringstream lines(render_page(diagnosis));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), kPageColumns) << line;
}

TEST(DoctorPage, OfThisMachineNamesTheKernelsThatAreChosen) {
  PosixFileSystem files;
  const Diagnosis diagnosis = diagnose(files);
  EXPECT_THAT(render_page(diagnosis), HasSubstr("chosen"));
  EXPECT_EQ(Json::parse(render_json(diagnosis))["kernels"].size(), diagnosis.kernels.size());
}

}  // namespace
}  // namespace moeflux::cli
