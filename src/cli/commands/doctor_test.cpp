#include "cli/commands/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <string_view>

#include "base/json/json.h"
#include "base/sizes.h"
#include "base/testing/states.h"
#include "cli/labeled_line.h"
#include "io/posix_file_system.h"
#include "io/testing/temporary_directory.h"

namespace moeflux::cli {
namespace {

using test::States;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// The line of the page that begins with `label`, in the column of labels or in that of names.
std::string line_of(const std::string& page, std::string_view label) {
  constexpr std::size_t kNameColumn = 12;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(label)) return line;
    if (line.size() > kNameColumn && std::string_view(line).substr(kNameColumn).starts_with(label))
      return line;
  }
  ADD_FAILURE() << "no line has the label '" << label << "':\n" << page;
  return {};
}

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
  diagnosis.drive.folder = "/models";
  diagnosis.drive.locked_memory_limit_bytes = 8 * kMiB;
  diagnosis.drive.fixed_buffer_bytes = 64 * kMiB;
  diagnosis.drive.tried = {
      {DriveKind::uring,
       DriveKind::uring,
       "io_uring, direct reads",
       {"fixed buffers are refused (ENOMEM): 67.1 MB would be locked, and 8.39 MB may be; io_uring reads "
        "without; to allow them, raise the limit of locked memory ('ulimit -l' or LimitMEMLOCK=)"}},
      {DriveKind::pread, DriveKind::pread, "8 threads, direct reads", {}},
      {DriveKind::buffered, DriveKind::buffered, "8 threads, page cache", {}}};
  return diagnosis;
}

TEST(DoctorPage, DescribesTheMachine) {
  const std::string page = render_page(sick());
  EXPECT_THAT(page, HasSubstr("processor   A Processor\n"));
  EXPECT_THAT(page, HasSubstr("cores       8 physical, 16 logical\n"));
  EXPECT_THAT(page, HasSubstr("kernels     avx512        "));
  EXPECT_THAT(line_of(page, "avx512"), AllOf(States("not"), Not(States("chosen"))));
  EXPECT_THAT(line_of(page, "avx2"), States("runs here", "chosen"));
  EXPECT_THAT(line_of(page, "scalar"), AllOf(States("runs here"), Not(States("chosen"))));
  EXPECT_THAT(page, HasSubstr("memory      total         68,719,476,736 B (68.7 GB)\n"));
  EXPECT_THAT(page, HasSubstr("cgroup limit  none\n"));
  EXPECT_THAT(page, HasSubstr("huge pages  mode          madvise\n"));
  EXPECT_THAT(line_of(page, "tried"), States("8.39 MB granted", "16.8 MB"));
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

TEST(DoctorPage, StatesHowFilesAreReadAndRemedies) {
  const std::string page = render_page(sick());
  EXPECT_THAT(page, HasSubstr("drive       folder        /models\n"));
  EXPECT_THAT(page, HasSubstr("\n            direct reads  work here\n"));
  EXPECT_THAT(page, HasSubstr("\n            io_uring      works here\n"));
  EXPECT_THAT(page, HasSubstr("\n            locked memory 8,388,608 B (8.39 MB) at most\n"));
  EXPECT_THAT(page, HasSubstr("\n            fixed buffers 67.1 MB refused\n"));
  EXPECT_THAT(page, HasSubstr("\n            chosen        io_uring, direct reads\n"));
  EXPECT_THAT(page, HasSubstr("\n            note          fixed buffers are refused (ENOMEM)"));
  EXPECT_THAT(page, HasSubstr("LimitMEMLOCK=)\n"));

  Diagnosis well = sick();
  well.drive.has_fixed_buffers = true;
  EXPECT_THAT(line_of(render_page(well), "locked memory"), States("8,388,608 B (8.39 MB)", "exempt"));
  well.drive.locked_memory_limit_bytes.reset();
  well.drive.tried[0].refusals.clear();
  EXPECT_THAT(line_of(render_page(well), "locked memory"), States("no limit"));
  EXPECT_THAT(line_of(render_page(well), "fixed buffers"), States("67.1 MB", "registered"));
  EXPECT_THAT(render_page(well), Not(HasSubstr("note")));
}

TEST(DoctorPage, StatesTheFallbackDriveAndEachReasonOnce) {
  Diagnosis without_uring = sick();
  without_uring.drive.tried[0] = {
      DriveKind::uring, DriveKind::pread, "8 threads, direct reads", {"io_uring is refused (EPERM)"}};
  EXPECT_THAT(render_page(without_uring), HasSubstr("io_uring      refused\n"));
  EXPECT_THAT(line_of(render_page(without_uring), "fixed buffers"), States("not tried", "io_uring"));
  EXPECT_THAT(render_page(without_uring), HasSubstr("chosen        8 threads, direct reads\n"));

  Diagnosis without_direct = sick();
  for (std::size_t i : {0u, 1u}) {
    without_direct.drive.tried[i].found = DriveKind::buffered;
    without_direct.drive.tried[i].refusals = {"direct reads of 'x' are refused (EINVAL)"};
  }
  const std::string page = render_page(without_direct);
  EXPECT_THAT(page, HasSubstr("direct reads  refused\n"));
  EXPECT_THAT(line_of(page, "io_uring"), States("not tried", "direct reads"));
  EXPECT_EQ(page.find("EINVAL"), page.rfind("EINVAL"));
}

TEST(DoctorPage, ReportsAFolderThatCannotBeWritten) {
  Diagnosis diagnosis = sick();
  diagnosis.drive.tried.clear();
  diagnosis.drive.problem = "cannot make a folder in '/models': Permission denied";
  const std::string page = render_page(diagnosis);
  EXPECT_THAT(page,
              HasSubstr("tried         nothing: cannot make a folder in '/models': Permission denied\n"));
  EXPECT_THAT(page, HasSubstr("direct reads  unknown\n"));
  EXPECT_THAT(page, HasSubstr("io_uring      unknown\n"));
  EXPECT_THAT(page, HasSubstr("fixed buffers unknown\n"));
  EXPECT_THAT(page, Not(HasSubstr("\n            chosen")));
  const Json drive = Json::parse(render_json(diagnosis))["drive"];
  EXPECT_EQ(drive["problem"], diagnosis.drive.problem);
  EXPECT_TRUE(drive["io_uring"].is_null() && drive["direct_reads"].is_null() && drive["chosen"].is_null());
}

TEST(DoctorPage, HasTheDriveAsJson) {
  const Json drive = Json::parse(render_json(sick()))["drive"];
  EXPECT_EQ(drive["folder"], "/models");
  EXPECT_TRUE(drive["problem"].is_null());
  EXPECT_EQ(drive["direct_reads"], true);
  EXPECT_EQ(drive["io_uring"], true);
  EXPECT_EQ(drive["locked_memory_limit_bytes"], 8 * kMiB);
  EXPECT_EQ(drive["fixed_buffers"], Json({{"tried_bytes", 64 * kMiB}, {"registered", false}}));
  EXPECT_EQ(drive["chosen"], "uring");
  ASSERT_EQ(drive["tried"].size(), 3u);
  EXPECT_EQ(drive["tried"][0]["asked"], "uring");
  EXPECT_EQ(drive["tried"][0]["refusals"].size(), 1u);
  EXPECT_EQ(drive["tried"][1]["description"], "8 threads, direct reads");
}

TEST(DoctorPage, ShowsTheLimitOfAControlGroup) {
  Diagnosis diagnosis = sick();
  diagnosis.machine.cgroup_limit_bytes = 8 * kGiB;
  diagnosis.machine.cgroup_used_bytes = 2 * kGiB;
  EXPECT_THAT(render_page(diagnosis), HasSubstr("cgroup limit  8,589,934,592 B (8.59 GB), 2.15 GB used\n"));
  EXPECT_THAT(render_page(diagnosis), HasSubstr("usable        6,442,450,944 B (6.44 GB)\n"));
  EXPECT_EQ(Json::parse(render_json(diagnosis))["memory"]["cgroup_limit_bytes"], 8 * kGiB);
}

TEST(DoctorPage, MarksUnknownValues) {
  const std::string page = render_page(Diagnosis{});
  EXPECT_THAT(page, HasSubstr("processor   unknown\n"));
  EXPECT_THAT(page, HasSubstr("total         unknown\n"));
  EXPECT_THAT(line_of(page, "tried"), States("no memory"));
}

TEST(DoctorPage, ReplacesControlCharactersAndKeepsItsColumns) {
  Diagnosis diagnosis = sick();
  diagnosis.machine.processor = "\x1b[31m" + std::string(300, 'x');
  diagnosis.machine.transparent_huge_pages = "\a";
  diagnosis.drive.folder = "/\x1b" + std::string(300, 'y');
  EXPECT_THAT(render_page(diagnosis), Not(HasSubstr("\x1b")));
  EXPECT_THAT(render_page(diagnosis), Not(HasSubstr("\a")));
  std::istringstream lines(render_page(diagnosis));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), kPageColumns) << line;
}

TEST(DoctorPage, NamesTheChosenKernelsOfThisMachine) {
  PosixFileSystem files;
  const TemporaryDirectory folder;
  const Diagnosis diagnosis = diagnose(files, folder.path());
  EXPECT_THAT(render_page(diagnosis), HasSubstr("chosen"));
  EXPECT_EQ(Json::parse(render_json(diagnosis))["kernels"].size(), diagnosis.kernels.size());
  EXPECT_EQ(Json::parse(render_json(diagnosis))["drive"]["tried"].size(), 3u);
}

}  // namespace
}  // namespace moeflux::cli
