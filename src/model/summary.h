#pragma once
// The numbers `inspect` prints about a model, for every source format and for packed models. Plain values.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"
#include "quant/encoding.h"

namespace moeflux {

// How much of a model is stored in one encoding.
struct EncodingUse {
  std::string encoding;  // "affine 4-bit group 64"
  std::uint64_t matrices;
  std::uint64_t bytes;
};

// Sorts the largest first, which then counts as the encoding of the model.
inline void sort_by_bytes(std::vector<EncodingUse>& uses) {
  std::stable_sort(uses.begin(), uses.end(),
                   [](const EncodingUse& a, const EncodingUse& b) { return a.bytes > b.bytes; });
}

// Adds `matrices` matrices of `bytes` bytes in total to the entry of their encoding.
inline void add_use(std::vector<EncodingUse>& uses, const Encoding& encoding, std::uint64_t matrices,
                    std::uint64_t bytes) {
  const std::string name = describe(encoding);
  auto use = std::find_if(uses.begin(), uses.end(), [&](const EncodingUse& u) { return u.encoding == name; });
  if (use == uses.end()) use = uses.insert(uses.end(), EncodingUse{name, 0, 0});
  use->matrices += matrices;
  use->bytes += bytes;
}

struct ModelSummary {
  std::string path;
  std::string format;  // "MLX safetensors"
  ModelConfig config{};
  std::uint64_t files = 0;
  std::uint64_t file_bytes = 0;

  std::uint64_t resident_bytes = 0;  // all weights but routed experts
  std::uint64_t experts = 0;         // routed experts, over all layers
  std::uint64_t expert_bytes = 0;    // of all routed experts
  std::uint64_t smallest_expert_bytes = 0, largest_expert_bytes = 0;
  // Bytes of routed experts that a token visits, over all layers, if it chooses the largest ones.
  std::uint64_t token_expert_bytes = 0;
  std::uint64_t skipped_bytes = 0;  // vision, multi-token prediction

  std::vector<EncodingUse> resident_encodings, expert_encodings;
  std::vector<std::string> notes;
};

}  // namespace moeflux
