#include "engine/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/sizes.h"

namespace moeflux {
namespace {

using Part = std::pair<std::string_view, std::uint64_t>;

std::array<Part, 6> parts_of(const MemoryPlan& plan) {
  return {{{"resident weights", plan.weights_bytes},
           {"derived matrices", plan.derived_bytes},
           {"experts", plan.experts_bytes},
           {"keys and values", plan.kv_bytes},
           {"recurrent states", plan.recurrent_bytes},
           {"workspace", plan.workspace_bytes}}};
}

}  // namespace

std::uint64_t reserve_bytes(std::uint64_t usable_bytes) {
  return std::clamp<std::uint64_t>(usable_bytes / 20, 64 * kMiB, kGiB);
}

std::string MemoryPlan::describe() const {
  std::string text;
  for (const auto& [name, bytes] : parts_of(*this))
    if (bytes != 0) text += fmt::format("{} {}, ", name, human_bytes(bytes));
  text += fmt::format("together {}", human_bytes(total_bytes()));
  if (usable_bytes != 0) text += fmt::format(" of {} usable", human_bytes(usable_bytes));
  return text;
}

Status MemoryPlan::check() const {
  if (usable_bytes == 0 || total_bytes() <= usable_bytes) return {};
  return Error(
      ErrorCode::out_of_memory,
      fmt::format(
          "not enough memory: {}; use a smaller expert cache, a shorter context or fewer rows per step",
          describe()));
}

}  // namespace moeflux
