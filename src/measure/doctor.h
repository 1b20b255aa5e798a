#pragma once
// What this machine is and what moeflux makes of it: for a person who wonders why it is slow, and for bug
// reports.
//
// Nothing here needs a model. What cannot be found out is 0 or "unknown" (io/machine.h). Plain values: any
// thread.

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/sizes.h"
#include "io/file_system.h"
#include "io/machine.h"

namespace moeflux {

struct KernelsFound {
  std::string_view name;
  bool runs_here = false;
  bool is_chosen = false;  // unless somebody asks for others
};

// Whether memory that huge pages were asked for really lies in them.
struct HugePageProbe {
  std::uint64_t asked_bytes = 0;  // 0: there was no memory to try it with
  std::uint64_t granted_bytes = 0;
};

struct Diagnosis {
  Machine machine;
  std::vector<KernelsFound> kernels;  // all of this build, fastest first
  HugePageProbe huge_pages;
};

inline constexpr std::uint64_t kHugePageProbeBytes = 16 * kMiB;

// Allocates and writes kHugePageProbeBytes for a moment.
Diagnosis diagnose(FileSystem& files);

}  // namespace moeflux
