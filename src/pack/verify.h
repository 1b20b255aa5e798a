#pragma once
// Reads a packed model from end to end and compares every checksum.
//
// A byte that changed is named: the tensor, the record, or the padding that it is in. All of the model is read, even
// after a first finding. Memory is bounded by a buffer a job. Blocks until done; `progress` is called from several
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
  std::vector<std::string> findings;  // sentences, in the order of the files; empty: the model is sound
};

Result<VerifyReport> verify(const PackedModel& model, unsigned jobs,
                            FunctionRef<void(std::uint64_t done_bytes, std::uint64_t total_bytes)> progress);

}  // namespace moeflux
