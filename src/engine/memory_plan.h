#pragma once
// What an engine will take of memory, computed before any of it is taken.
//
// The sizes are those of the packed model and of the options; the workspace is measured by running the layers on
// operations that only count. A plan that does not fit is refused with its numbers: nothing has been read then, and
// the machine does not find out by killing somebody. Plain values.

#include <cstdint>
#include <string>

#include "base/result.h"

namespace moeflux {

struct MemoryPlan {
  std::uint64_t weights_bytes = 0;  // resident.bin
  std::uint64_t derived_bytes = 0;  // matrices made of it when a model is opened (MLA)
  std::uint64_t experts_bytes = 0;
  std::uint64_t kv_bytes = 0;  // keys and values of one session at the full context, or the budget if less
  std::uint64_t recurrent_bytes = 0;  // of one session, both sides and its checkpoints
  std::uint64_t workspace_bytes = 0;
  std::uint64_t usable_bytes =
      0;  // of the machine: what is available, and what the cgroup leaves; 0: not known

  std::uint64_t total_bytes() const {
    return weights_bytes + derived_bytes + experts_bytes + kv_bytes + recurrent_bytes + workspace_bytes;
  }

  // Its parts, their sum and what is usable, on one line.
  std::string describe() const;

  // out_of_memory, with every number, when the total is more than is usable.
  Status check() const;
};

}  // namespace moeflux
