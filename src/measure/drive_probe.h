#pragma once
// Measures how fast a drive reads expert records while nothing else runs: the limit for streaming.
//
// Reads whole, randomly chosen records, in pieces of the same size as the expert store's and at the drive's
// full queue depth. For a drive that reads through the page cache, the rate includes cached data. One thread
// at a time.

#include <cstdint>

#include "base/result.h"
#include "io/drive/drive.h"
#include "model/packed_model.h"

namespace moeflux {

struct DriveProbe {
  double bytes_per_second = 0;
  std::uint64_t bytes = 0;  // bytes read
  std::string drive;        // the description of the drive
};

// Reads about `bytes` bytes, but at least one record. A model without experts is invalid_argument.
Result<DriveProbe> probe_drive(const PackedModel& model, const DriveChoice& choice, std::uint64_t bytes,
                               std::uint64_t seed);

}  // namespace moeflux
