#pragma once
// Describes this machine and how moeflux would use it, to explain its speed and for bug reports.
//
// Needs no model. A value that could not be determined is 0, absent or "unknown" (io/machine.h). Plain
// values; any thread.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/sizes.h"
#include "io/drive/drive.h"
#include "io/file_system.h"
#include "io/machine.h"

namespace moeflux {

struct KernelsFound {
  std::string_view name;
  bool runs_here = false;
  bool is_chosen = false;  // the default
};

// How much of a buffer for which huge pages were requested actually gets them.
struct HugePageProbe {
  std::uint64_t asked_bytes = 0;  // 0: no memory for the probe
  std::uint64_t granted_bytes = 0;
};

// The attempt to open one kind of drive.
struct DriveTried {
  DriveKind asked = DriveKind::uring;
  std::optional<DriveKind> found;     // absent: none; the last refusal is the error
  std::string description;            // of the drive found
  std::vector<std::string> refusals;  // before it was found, each with its remedy
};

// How experts in a folder would be read.
struct DriveDiagnosis {
  std::filesystem::path folder;
  std::string problem;            // why no drive could be tried there; empty: no problem
  std::vector<DriveTried> tried;  // uring (the default choice), pread and buffered

  // The memory that this process may lock, after it raised its limit as far as possible; absent: no limit.
  std::optional<std::uint64_t> locked_memory_limit_bytes;
  std::uint64_t fixed_buffer_bytes = 0;  // that uring was asked to register; 0: no memory for the probe
  bool has_fixed_buffers = false;

  // Absent: could not be tried. io_uring is not tried where direct reads are refused.
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

// Diagnoses the machine. Temporarily allocates the probe sizes above and makes a small file in `folder`,
// which is removed before the call returns.
Diagnosis diagnose(FileSystem& files, const std::filesystem::path& folder);

}  // namespace moeflux
