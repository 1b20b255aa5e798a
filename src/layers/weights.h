#pragma once
// Finds a model's resident weights by name, once, when its layers are created.
//
// PackedModel::open has checked names and shapes, so a missing name is a bug in moeflux, not in the file.
// Refers to the model and to the memory; the returned views are valid as long as the memory. Immutable:
// thread-safe.

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

  // Looks names up under "layers.LAYER.".
  Weights of_layer(std::uint32_t layer) const;

  bool has(std::string_view name) const;
  tile16::TiledMatrix matrix(std::string_view name) const;
  std::span<const float> vector(std::string_view name) const;  // of a table: all rows, one after another

 private:
  const PackedTensor& tensor(std::string_view name) const;

  const PackedModel& model_;
  std::span<const std::byte> memory_;
  std::string prefix_;
};

}  // namespace moeflux
