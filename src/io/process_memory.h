#pragma once
// Memory use and major page faults of this process, for reports.
//
// Read from /proc/self/status and getrusage(). Reading never fails: values that the system does not report
// are absent. The values are a snapshot of the whole process. Thread-safe.

#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/result.h"
#include "io/file_system.h"

namespace moeflux {

struct ProcessMemory {
  std::optional<std::uint64_t> resident_bytes;  // VmRSS: anonymous pages, and resident pages of mapped files
  std::optional<std::uint64_t> peak_resident_bytes;  // VmHWM: the peak since the start or the last reset
  std::optional<std::uint64_t> major_faults;         // page faults that read from a drive, since the start
};

ProcessMemory read_process_memory(FileSystem& files);

// The same with `root`/proc instead of /proc. The faults are always those of this process.
ProcessMemory read_process_memory(FileSystem& files, const std::filesystem::path& root);

// Resets the peak to what is resident now. Some kernels and containers do not allow it; after an error the
// peak is unchanged.
Status reset_peak_resident_bytes(FileSystem& files);
Status reset_peak_resident_bytes(FileSystem& files, const std::filesystem::path& root);

}  // namespace moeflux
