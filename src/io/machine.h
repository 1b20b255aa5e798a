#pragma once
// The cores, memory and huge pages of this machine, as the memory plan needs them.
//
// A snapshot of /proc and /sys: other processes change the available memory at any time. Reading never fails:
// values that the system does not report are 0, absent or "unknown". Plain values: any thread.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "io/file_system.h"

namespace moeflux {

struct Machine {
  std::string processor = "unknown";  // the vendor's model name

  // Cores that this process may run on. Affinity and cpusets are respected, CPU time quotas are not. At least
  // 1 each.
  unsigned logical_cores = 1;
  unsigned physical_cores = 1;  // hyper-threads of one core count once

  // The largest cache of the first core, which may be shared with other virtual machines; 0 if unknown.
  std::uint64_t cache_bytes = 0;

  std::uint64_t memory_total_bytes = 0;
  std::uint64_t memory_available_bytes = 0;  // without swapping; includes reclaimable page cache

  // The control group with the least free memory of those that contain this process; absent if none has a
  // limit.
  std::optional<std::uint64_t> cgroup_limit_bytes;
  std::optional<std::uint64_t> cgroup_used_bytes;  // by all its processes, without reclaimable page cache

  std::string transparent_huge_pages = "unknown";  // "always", "madvise" or "never"
  std::uint64_t huge_page_bytes = 0;

  // What this process can still allocate: the available memory of the system or of the control group,
  // whichever is less.
  std::uint64_t usable_memory_bytes() const;
};

Machine read_machine(FileSystem& files);

// The same with `root`/proc and `root`/sys instead of /proc and /sys.
Machine read_machine(FileSystem& files, const std::filesystem::path& root);

}  // namespace moeflux
