#pragma once
// What `inspect` says of a model, whichever format it is in: the same numbers for text and JSON.
// Plain values.

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"

namespace moeflux {

// How much of a model is stored in one encoding.
struct EncodingUse {
  std::string encoding;  // "affine 4-bit group 64"
  std::uint64_t matrices;
  std::uint64_t bytes;
};

struct ModelSummary {
  std::string path;
  std::string format;  // "MLX safetensors"
  ModelConfig config{};
  std::uint64_t files = 0;
  std::uint64_t file_bytes = 0;

  std::uint64_t resident_bytes = 0;  // all that is not a routed expert: needed by every token
  std::uint64_t experts = 0;         // routed experts of all layers
  std::uint64_t expert_bytes = 0;    // of all of them
  std::uint64_t smallest_expert_bytes = 0, largest_expert_bytes = 0;
  std::uint64_t token_expert_bytes =
      0;                            // routed experts that one token visits, over all layers; the largest ones
  std::uint64_t skipped_bytes = 0;  // vision, multi-token prediction

  std::vector<EncodingUse> resident_encodings, expert_encodings;
  std::vector<std::string> notes;
};

}  // namespace moeflux
