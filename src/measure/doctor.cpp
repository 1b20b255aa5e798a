#include "measure/doctor.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/memory/aligned_buffer.h"
#include "io/drive/uring_drive.h"
#include "io/system_error.h"
#include "kernels/kernel_table.h"

namespace moeflux {
namespace {

std::vector<KernelsFound> find_kernels() {
  std::vector<KernelsFound> found;
  const auto chosen = select_kernels();
  for (const KernelTable* table : compiled_kernels())
    found.push_back({table->name, table->runs_here(), chosen && *chosen == table});
  return found;
}

// Touches every page: the kernel grants pages on the first write.
HugePageProbe probe_huge_pages() {
  auto buffer = HugeBuffer::create(kHugePageProbeBytes);
  if (!buffer) return {};
  std::memset(buffer->data(), 1, buffer->size());
  return {buffer->size(), buffer->granted_huge_bytes()};
}

// A file to read, in a new directory with a unique name; the destructor removes both.
class ProbeFile {
 public:
  static Result<ProbeFile> make(FileSystem& files, const std::filesystem::path& folder) {
    std::string directory = (folder / ".moeflux-doctor-XXXXXX").native();
    if (::mkdtemp(directory.data()) == nullptr)
      return system_error(errno, fmt::format("cannot make a folder in '{}'", folder.native()));
    ProbeFile probe(files, std::move(directory));
    MF_TRY(const std::unique_ptr<WriteFile> file, files.create(probe.path()));
    MF_TRY_STATUS(file->append(std::array<std::byte, kDriveAlignment>{}));
    return probe;
  }
  ProbeFile(ProbeFile&& other) noexcept
      : files_(other.files_), directory_(std::exchange(other.directory_, {})) {}
  ~ProbeFile() {
    if (!directory_.empty()) static_cast<void>(files_.remove_all(directory_));  // an error here has no remedy
  }

  std::filesystem::path path() const { return directory_ / "probe"; }

 private:
  ProbeFile(FileSystem& files, std::filesystem::path directory)
      : files_(files), directory_(std::move(directory)) {}

  FileSystem& files_;
  std::filesystem::path directory_;  // empty: moved from
};

std::optional<std::uint64_t> locked_memory_limit() {
  rlimit limit;
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_max == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_max;
}

void try_drive(DriveKind kind, const std::filesystem::path& path, std::span<std::byte> memory,
               DriveDiagnosis& diagnosis) {
  DriveTried& tried = diagnosis.tried.emplace_back();
  tried.asked = kind;
  DriveOptions options;
  options.choice.kind = kind;
  if (!memory.empty()) options.memory = {memory};
  const Result<OpenedDrive> opened = open_drive(std::span(&path, 1), options);
  if (!opened) {
    tried.refusals = {opened.error().message()};
    return;
  }
  tried.found = opened->drive->kind();
  tried.description = opened->drive->describe();
  tried.refusals = opened->refusals;
  if (const auto* uring = dynamic_cast<const UringDrive*>(opened->drive.get()))
    diagnosis.has_fixed_buffers = uring->has_fixed_buffers();
}

DriveDiagnosis diagnose_drive(FileSystem& files, const std::filesystem::path& folder) {
  DriveDiagnosis diagnosis;
  std::error_code unknown;
  diagnosis.folder = std::filesystem::absolute(folder, unknown).lexically_normal();
  if (unknown) diagnosis.folder = folder;
  if (!diagnosis.folder.has_filename()) diagnosis.folder = diagnosis.folder.parent_path();  // "/models/"
  diagnosis.locked_memory_limit_bytes = locked_memory_limit();
  const Result<ProbeFile> probe = ProbeFile::make(files, diagnosis.folder);
  if (!probe) {
    diagnosis.problem = probe.error().message();
    return diagnosis;
  }
  Result<HugeBuffer> memory = HugeBuffer::create(kFixedBufferProbeBytes);
  if (memory) diagnosis.fixed_buffer_bytes = memory->size();
  try_drive(DriveKind::uring, probe->path(), memory ? memory->bytes() : std::span<std::byte>(), diagnosis);
  try_drive(DriveKind::pread, probe->path(), {}, diagnosis);
  try_drive(DriveKind::buffered, probe->path(), {}, diagnosis);
  return diagnosis;
}

// The result of asking for `kind`; absent: not asked for, or no drive opened.
std::optional<DriveKind> found_for(const DriveDiagnosis& diagnosis, DriveKind kind) {
  const auto tried = std::ranges::find(diagnosis.tried, kind, &DriveTried::asked);
  return tried == diagnosis.tried.end() ? std::nullopt : tried->found;
}

}  // namespace

std::optional<bool> DriveDiagnosis::has_direct_reads() const {
  const std::optional<DriveKind> found = found_for(*this, DriveKind::pread);
  if (!found) return std::nullopt;
  return *found == DriveKind::pread;
}

std::optional<bool> DriveDiagnosis::has_uring() const {
  const std::optional<DriveKind> found = found_for(*this, DriveKind::uring);
  if (!found || *found == DriveKind::buffered) return std::nullopt;
  return *found == DriveKind::uring;
}

Diagnosis diagnose(FileSystem& files, const std::filesystem::path& folder) {
  return {read_machine(files), find_kernels(), probe_huge_pages(), diagnose_drive(files, folder)};
}

}  // namespace moeflux
