#pragma once
// Reads a whole packed model and compares every checksum.
//
// A finding names the tensor, record or padding that has changed. The whole model is read even after a first
// finding. Memory is bounded by one buffer per job. Blocks until done; `progress` is called from several
// threads, one at a time.

#include <cstdint>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "model/packed_model.h"

namespace moeflux {

struct VerifyReport {
  std::uint64_t bytes = 0;
  std::uint64_t tensors = 0, records = 0;
  std::vector<std::string> findings;  // in the order of the files; empty: the model is sound
};

Result<VerifyReport> verify(const PackedModel& model, unsigned jobs,
                            FunctionRef<void(std::uint64_t done_bytes, std::uint64_t total_bytes)> progress);

}  // namespace moeflux
