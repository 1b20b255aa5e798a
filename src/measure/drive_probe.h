#pragma once
// How fast a drive reads expert records, when nothing else is to be done: the limit that streaming is compared with.
//
// Records are read whole, at random, in the pieces that the store uses and with as many reads out as the drive takes.
// What is in the page cache comes from there if the drive reads through it. One thread at a time.

#include <cstdint>

#include "base/result.h"
#include "io/drive.h"
#include "model/packed_model.h"

namespace moeflux {

struct DriveProbe {
  double bytes_per_second = 0;
  std::uint64_t bytes = 0;  // that were read
  std::string drive;        // its description
};

// Reads about `bytes` bytes, one record at least. A model without experts is invalid_argument.
Result<DriveProbe> probe_drive(const PackedModel& model, const DriveChoice& choice, std::uint64_t bytes,
                               std::uint64_t seed);

}  // namespace moeflux
