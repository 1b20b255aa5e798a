#pragma once
// model.safetensors.index.json: which shard holds which tensor.
//
//   {"metadata": {...}, "weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors", ...}}
//
// A streaming parser visits it pair by pair, so an index takes no more memory than its text. Pure functions:
// any thread.

#include <cstdint>
#include <string_view>

#include "base/function_ref.h"
#include "base/result.h"

namespace moeflux {

inline constexpr std::uint64_t kMaxIndexBytes = 24u << 20;  // 120 bytes for each of 200,000 tensors
inline constexpr std::size_t kMaxShards = 4096;

// Calls `visit(tensor, file)` for every pair of the weight_map, in file order. A file name that is not a
// plain name in the same directory is an error: an index must not refer to files outside its checkpoint.
// `what` names the index in errors.
Status visit_weight_map(std::string_view json, std::string_view what,
                        FunctionRef<Status(std::string_view tensor, std::string_view file)> visit);

}  // namespace moeflux
