#pragma once
// How much memory an engine will use, computed before it allocates any.
//
// The sizes come from the packed model and the options; the workspace is measured by running the layers on
// operations that only measure. A plan that does not fit is refused, with its numbers, before anything is
// read; otherwise the kernel's OOM killer would end the process later. Plain values.

#include <cstdint>
#include <string>

#include "base/result.h"

namespace moeflux {

struct MemoryPlan {
  std::uint64_t weights_bytes = 0;  // resident.bin
  std::uint64_t derived_bytes = 0;  // matrices computed from it when the model is opened (MLA)
  std::uint64_t experts_bytes = 0;
  // Of all planned sessions, in whole slabs, or the budget of their states if that is less.
  std::uint64_t kv_bytes = 0;         // at the full context
  std::uint64_t recurrent_bytes = 0;  // with checkpoints
  std::uint64_t workspace_bytes = 0;
  // What the machine has available and the cgroup allows; 0: unknown.
  std::uint64_t usable_bytes = 0;

  std::uint64_t state_bytes() const { return kv_bytes + recurrent_bytes; }
  std::uint64_t total_bytes() const {
    return weights_bytes + derived_bytes + experts_bytes + state_bytes() + workspace_bytes;
  }

  // The parts, their sum and the usable memory, on one line.
  std::string describe() const;

  // Returns out_of_memory with every number if the total exceeds the usable memory.
  Status check() const;
};

// Usable memory that a plan leaves free: for the program itself, the system, and whatever no plan counts.
std::uint64_t reserve_bytes(std::uint64_t usable_bytes);

}  // namespace moeflux
