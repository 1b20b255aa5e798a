#pragma once
// The current hints of each layer, and a cursor over those of the layers to come.
//
// A hint says that a layer will want an expert. The cursor visits the hints in the order in which the layers
// run next, and within a layer the likeliest first. Nothing allocates after construction. One thread at a
// time.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"

namespace moeflux {

class HintTable {
 public:
  struct Hint {
    LayerId layer;
    std::uint32_t expert;
    float confidence;
  };

  // `first_record`: [layers + 1], ascending; layer i has first_record[i + 1] - first_record[i] experts.
  explicit HintTable(std::span<const std::uint32_t> first_record) : layers_(first_record.size() - 1) {
    for (std::size_t i = 0; i < layers_.size(); ++i)
      layers_[i].experts.reserve(first_record[i + 1] - first_record[i]);
  }

  // Replaces the hints of `layer` and rewinds the cursor. Keeps at most as many hints as the layer has
  // experts.
  void set(LayerId layer, std::span<const std::uint32_t> experts, float confidence) {
    LayerHints& hints = layers_[layer.index()];
    hints.experts.assign(experts.begin(), experts.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                                experts.size(), hints.experts.capacity())));
    hints.next = 0;
    hints.confidence = confidence;
    distance_ = 0;
  }
  void clear(LayerId layer) { layers_[layer.index()].experts.clear(); }
  std::span<const std::uint32_t> of(LayerId layer) const { return layers_[layer.index()].experts; }

  // `layer` runs now; the cursor begins at the layer after it.
  void begin_layer(LayerId layer) {
    now_ = layer.index();
    distance_ = 0;
  }
  // The hint under the cursor, or nullopt when all have been visited.
  std::optional<Hint> current() {
    for (; distance_ < layers_.size(); ++distance_) {
      const std::uint32_t layer = cursor_layer();
      const LayerHints& hints = layers_[layer];
      if (hints.next < hints.experts.size())
        return Hint{LayerId(layer), hints.experts[hints.next], hints.confidence};
    }
    return std::nullopt;
  }
  // Requires: current() is a hint.
  void advance() { ++layers_[cursor_layer()].next; }

  // Confidence of the hints that were given last for the layer under the cursor.
  float confidence() const { return layers_[cursor_layer()].confidence; }
  // How many layers lie between the one after the running layer and the one under the cursor.
  std::uint32_t distance() const { return distance_; }
  // The same for any layer.
  std::uint32_t distance_to(LayerId layer) const {
    return (layer.index() + layer_count() - now_ - 1) % layer_count();
  }

 private:
  struct LayerHints {
    std::vector<std::uint32_t> experts;  // reserved for all of the layer
    std::size_t next = 0;                // index of the next hint to visit
    float confidence = 0;
  };

  std::uint32_t layer_count() const { return static_cast<std::uint32_t>(layers_.size()); }
  std::uint32_t cursor_layer() const { return (now_ + 1 + distance_) % layer_count(); }

  std::vector<LayerHints> layers_;
  std::uint32_t now_ = 0;
  std::uint32_t distance_ = 0;  // layer_count() when all hints have been visited
};

}  // namespace moeflux
