#pragma once
// Shared by the streaming tests: every kind of drive, engines with resident experts or a faulty drive, cache
// sizes. Test code only; one thread at a time.

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "engine/testing/test_models.h"
#include "experts/resident_experts.h"
#include "io/testing/faulty_drive.h"

namespace moeflux {

inline constexpr SimulatedDriveSpeed kFastSimulation = {.bytes_per_second = std::uint64_t{1} << 32,
                                                        .latency = std::chrono::microseconds(5)};
inline const std::array<DriveChoice, 4> kStreamingDrives = {
    DriveChoice{DriveKind::uring, {}}, DriveChoice{DriveKind::pread, {}},
    DriveChoice{DriveKind::buffered, {}}, DriveChoice{DriveKind::sim, kFastSimulation}};

// An engine that holds all experts in memory, in ResidentExperts rather than the store.
inline std::shared_ptr<Engine> open_resident(const ModelOnDisk& model,
                                             EngineOptions options = {.threads = 1}) {
  options.experts = [](const PackedModel& packed) -> Result<std::unique_ptr<ExpertSource>> {
    MF_TRY(std::unique_ptr<ResidentExperts> resident, ResidentExperts::open(packed));
    return std::unique_ptr<ExpertSource>(std::move(resident));
  };
  return model.open(options);
}

// An engine that streams from a faulty drive.
inline std::shared_ptr<Engine> open_faulty(const ModelOnDisk& model, EngineOptions options,
                                           const std::shared_ptr<DriveFaults>& faults) {
  options.store.wrap_drive = [faults](std::unique_ptr<Drive> drive) {
    return std::make_unique<FaultyDrive>(std::move(drive), faults);
  };
  return model.open(options);
}

// Room for one record of every size, a tenth, half, all experts.
inline std::vector<std::uint64_t> cache_sizes(const ModelOnDisk& model) {
  PosixFileSystem disk;
  const PackedModel packed = *PackedModel::open(disk, model.path());
  const std::uint64_t least = ExpertStore::least_bytes(packed), all = ResidentExperts::bytes_of(packed);
  return {least, std::max(least, all / 10), all / 2, all};
}

}  // namespace moeflux
