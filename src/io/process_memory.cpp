#include "io/process_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/arithmetic.h"
#include "base/sizes.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kMaxStatusBytes = 64 * kKiB;

// The value in bytes of the line "KEY:   number kB" of /proc/self/status.
std::optional<std::uint64_t> kib_line(std::string_view status, std::string_view key) {
  while (!status.empty()) {
    const std::size_t end = status.find('\n');
    std::string_view line = status.substr(0, end);
    status.remove_prefix(end == std::string_view::npos ? status.size() : end + 1);
    if (!line.starts_with(key) || !line.substr(key.size()).starts_with(':')) continue;
    line.remove_prefix(std::min(line.find_first_not_of(": \t", key.size()), line.size()));
    std::uint64_t kib = 0;
    const auto [rest, error] = std::from_chars(line.data(), line.data() + line.size(), kib);
    const std::string_view unit(rest, static_cast<std::size_t>(line.data() + line.size() - rest));
    if (error != std::errc() || unit != " kB") return std::nullopt;
    return checked_multiply(kib, kKiB);
  }
  return std::nullopt;
}

std::optional<std::uint64_t> major_faults_so_far() {
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) != 0 || usage.ru_majflt < 0) return std::nullopt;
  return static_cast<std::uint64_t>(usage.ru_majflt);
}

}  // namespace

ProcessMemory read_process_memory(FileSystem& files) { return read_process_memory(files, "/"); }

ProcessMemory read_process_memory(FileSystem& files, const std::filesystem::path& root) {
  ProcessMemory memory;
  memory.major_faults = major_faults_so_far();
  const Result<std::string> status = files.read_text(root / "proc/self/status", kMaxStatusBytes);
  if (!status) return memory;
  memory.resident_bytes = kib_line(*status, "VmRSS");
  memory.peak_resident_bytes = kib_line(*status, "VmHWM");
  return memory;
}

Status reset_peak_resident_bytes(FileSystem& files) { return reset_peak_resident_bytes(files, "/"); }

Status reset_peak_resident_bytes(FileSystem& files, const std::filesystem::path& root) {
  constexpr std::string_view kResetPeak = "5";  // resets VmHWM; 1 to 4 clear page flags
  MF_TRY(const std::unique_ptr<WriteFile> file, files.create(root / "proc/self/clear_refs"));
  return file->append(std::as_bytes(std::span(kResetPeak)));
}

}  // namespace moeflux
