#include "layers/weights.h"

#include <fmt/format.h>

#include "base/check.h"

namespace moeflux {

Weights Weights::of_layer(std::uint32_t layer) const {
  Weights weights(model_, memory_);
  weights.prefix_ = fmt::format("layers.{}.", layer);
  return weights;
}

bool Weights::has(std::string_view name) const { return model_.find(prefix_ + std::string(name)) != nullptr; }

const PackedTensor& Weights::tensor(std::string_view name) const {
  const PackedTensor* tensor = model_.find(prefix_ + std::string(name));
  MF_REQUIRE(tensor != nullptr, "an opened packed model has every tensor of its config");
  return *tensor;
}

tile16::TiledMatrix Weights::matrix(std::string_view name) const {
  const PackedTensor& found = tensor(name);
  MF_REQUIRE(found.layout == TensorLayout::tile16, "a matrix is stored in tiles");
  return {found.format.rows, found.format.cols, found.format.encoding, memory_.data() + found.offset,
          tile16::block_bytes(found.format.encoding, found.format.cols)};
}

std::span<const float> Weights::vector(std::string_view name) const {
  const PackedTensor& found = tensor(name);
  MF_REQUIRE(found.layout == TensorLayout::rows, "a vector is stored as rows of floats");
  return {reinterpret_cast<const float*>(memory_.data() + found.offset),
          found.format.rows * found.format.cols};
}

}  // namespace moeflux
