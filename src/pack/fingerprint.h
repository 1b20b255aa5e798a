#pragma once
// The fingerprint of a packed model: the identity of its weights.
//
// It covers (name, shape, encoding in the source, stored encoding, digest of the source's bytes) of every
// tensor and expert, and the config. Layout is not part of it, so packing again keeps it. The stored encoding
// is, because it changes values.

#include <cstdint>
#include <vector>

#include "base/function_ref.h"
#include "base/hash.h"
#include "base/result.h"
#include "pack/plan.h"
#include "source/source_model.h"

namespace moeflux {

// Digests of the source's bytes, in the order of the plan.
struct PlanDigests {
  std::vector<Digest> tensors;
  std::vector<std::vector<Digest>> experts;  // per expert file, per expert
};

Digest fingerprint_of(const SourceModel& source, const PackPlan& plan, const PlanDigests& digests);

// The same, after reading every byte of the source that the plan covers, with `jobs` threads. Blocks until
// done; `progress` is called from several threads, one at a time, and ends the reading with its first error.
Result<Digest> read_fingerprint(
    const SourceModel& source, const PackPlan& plan, unsigned jobs,
    FunctionRef<Status(std::uint64_t done_bytes, std::uint64_t total_bytes)> progress);

}  // namespace moeflux
