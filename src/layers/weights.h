#pragma once
// The resident weights of a model, found by name once, when its layers are made.
//
// The names and shapes are those that PackedModel::open has checked, so a name that is not there is a mistake of
// ours, not of the file. Views live as long as the memory. Read-only: any thread.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "model/packed_model.h"
#include "quant/tile16.h"

namespace moeflux {

class Weights {
 public:
  // `memory`: the bytes of resident.bin.
  Weights(const PackedModel& model, std::span<const std::byte> memory) : model_(model), memory_(memory) {}

  // Those of layer `layer`: "layers.3." before the name.
  Weights of_layer(std::uint32_t layer) const;

  bool has(std::string_view name) const;
  tile16::TiledMatrix matrix(std::string_view name) const;
  std::span<const float> vector(std::string_view name) const;  // also tables: all rows, one after another

 private:
  const PackedTensor& tensor(std::string_view name) const;

  const PackedModel& model_;
  std::span<const std::byte> memory_;
  std::string prefix_;
};

}  // namespace moeflux
