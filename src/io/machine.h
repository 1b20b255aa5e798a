#pragma once
// The machine that we run on, as far as plans depend on it: cores, memory, huge pages.
//
// Read from /proc and /sys, once; a value, and out of date as soon as somebody else allocates. Reading never
// fails: what the system does not tell is 0, absent or "unknown". Plain values: any thread.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "io/file_system.h"

namespace moeflux {

struct Machine {
  std::string processor = "unknown";  // its name, as the vendor writes it

  // That this process may run on: affinity and cpusets count, quotas of time do not. At least 1 each.
  unsigned logical_cores = 1;
  unsigned physical_cores = 1;  // hyper-threads of one core count once

  std::uint64_t memory_total_bytes = 0;
  std::uint64_t memory_available_bytes = 0;  // without swapping; page cache that can go counts as available

  // Of the control groups around this process, the one that leaves the least room; absent: none has a limit.
  std::optional<std::uint64_t> cgroup_limit_bytes;
  std::optional<std::uint64_t> cgroup_used_bytes;  // by all in it, without page cache that can go

  std::string transparent_huge_pages = "unknown";  // "always", "madvise" or "never"
  std::uint64_t huge_page_bytes = 0;

  // What this process can still take: the system's memory, or the group's if that is less.
  std::uint64_t usable_memory_bytes() const;
};

Machine read_machine(FileSystem& files);

// The same with the proc and sys that are in `root`.
Machine read_machine(FileSystem& files, const std::filesystem::path& root);

}  // namespace moeflux
