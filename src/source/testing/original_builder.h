#pragma once
// Writes a tiny checkpoint as the original's converters do: model_weights.bin and .json, and
// packed_experts/layer_NN.bin. Independent of the code that reads them. Test code only. Plain values; one
// thread at a time.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "source/testing/tiny_models.h"

namespace moeflux {

struct OriginalArtifacts {
  Json manifest;
  std::string weights;              // model_weights.bin
  std::vector<std::string> layers;  // layer_NN.bin; empty for a dense layer
  std::string experts_folder = "packed_experts";

  // `artifacts` and `root` are folders below `directory`; they may be the same.
  void write(const TemporaryDirectory& directory, const std::string& artifacts,
             const std::string& root) const;
};

// Converts an MLX checkpoint with stacked experts.
OriginalArtifacts original_of(const TinyCheckpoint& tiny);

}  // namespace moeflux
