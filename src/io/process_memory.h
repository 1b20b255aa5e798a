#pragma once
// How much memory this process takes and how often it waited for the drive to get a page: for reports.
//
// Read from /proc/self/status and getrusage(). Reading never fails: what the system does not tell is absent.
// The values are those of a moment and of the whole process, all its threads together. Any thread.

#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/result.h"
#include "io/file_system.h"

namespace moeflux {

struct ProcessMemory {
  std::optional<std::uint64_t> resident_bytes;  // VmRSS: anonymous pages, and mapped files that are in memory
  std::optional<std::uint64_t>
      peak_resident_bytes;                    // VmHWM: the most since the start, or since the last reset
  std::optional<std::uint64_t> major_faults;  // pages that a drive was read for, since the start
};

ProcessMemory read_process_memory(FileSystem& files);

// The same with the proc that is in `root`; the faults are always this process's own.
ProcessMemory read_process_memory(FileSystem& files, const std::filesystem::path& root);

// The peak begins again at what is resident now. Not every kernel and container allows it; after an error the
// peak goes on as it was.
Status reset_peak_resident_bytes(FileSystem& files);
Status reset_peak_resident_bytes(FileSystem& files, const std::filesystem::path& root);

}  // namespace moeflux
