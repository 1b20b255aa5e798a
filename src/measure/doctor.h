#pragma once
// What this machine is and what moeflux makes of it: for a person who wonders why it is slow, and for bug
// reports.
//
// Nothing here needs a model. What cannot be found out is 0, absent or "unknown" (io/machine.h). Plain
// values: any thread.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/sizes.h"
#include "io/drive.h"
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

// A kind of drive that was asked for, and what came of it.
struct DriveTried {
  DriveKind asked = DriveKind::uring;
  std::optional<DriveKind> found;     // absent: none, and the last refusal is the error
  std::string description;            // of the drive that was found
  std::vector<std::string> refusals;  // on the way to it, with what would help
};

// How experts would be read that lie in a folder.
struct DriveDiagnosis {
  std::filesystem::path folder;
  std::string problem;            // why nothing could be tried there; empty: nothing is wrong
  std::vector<DriveTried> tried;  // uring, which is the one to be chosen, pread and buffered

  // That this process may lock, once it has raised its limit as far as it may; absent: no limit is known.
  std::optional<std::uint64_t> locked_memory_limit_bytes;
  std::uint64_t fixed_buffer_bytes =
      0;  // that uring was given to register; 0: there was no memory to try it with
  bool has_fixed_buffers = false;

  // Absent: it could not be tried. io_uring is not where direct reads are refused.
  std::optional<bool> has_direct_reads() const;
  std::optional<bool> has_uring() const;
};

struct Diagnosis {
  Machine machine;
  std::vector<KernelsFound> kernels;  // all of this build, fastest first
  HugePageProbe huge_pages;
  DriveDiagnosis drive;
};

inline constexpr std::uint64_t kHugePageProbeBytes = 16 * kMiB;
inline constexpr std::uint64_t kFixedBufferProbeBytes = 64 * kMiB;

// Allocates so many bytes for a moment, and makes a small file in `folder`, which is gone when it returns.
Diagnosis diagnose(FileSystem& files, const std::filesystem::path& folder);

}  // namespace moeflux
