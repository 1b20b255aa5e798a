#include "state/snapshot.h"

#include <algorithm>

#include "base/overloaded.h"

namespace moeflux {

std::size_t KvShape::block_bytes() const {
  return std::size_t{heads} * kKvBlockPositions * (key_row_words() + value_row_words()) * sizeof(float);
}

std::uint64_t StateShape::kv_bytes(std::uint64_t positions) const {
  const std::uint64_t blocks = kv_blocks_for(positions);
  std::uint64_t bytes = 0;
  for (const KvShape& shape : kv)
    if (shape.heads != 0) bytes += blocks * BlockPool::block_bytes(shape.block_bytes());
  return bytes;
}

std::uint64_t StateShape::block_sizes() const {
  std::vector<std::size_t> sizes;
  const auto add = [&](std::size_t size) {
    if (size != 0 && std::ranges::find(sizes, size) == sizes.end()) sizes.push_back(size);
  };
  for (const KvShape& shape : kv) add(BlockPool::block_bytes(shape.block_bytes()));
  add(recurrent_block_bytes());
  return sizes.size();
}

StateShape state_shape_of(const ModelConfig& config, KvDtype dtype) {
  StateShape shape;
  for (const LayerConfig& layer : config.layers) {
    KvShape& kv = shape.kv.emplace_back();
    RecurrentShape& recurrent = shape.recurrent.emplace_back();
    std::visit(overloaded{
                   [&](const GatedDeltaNetConfig& net) {
                     recurrent.conv_offset = shape.recurrent_size;
                     recurrent.conv_size = std::uint64_t{net.conv_width - 1} * net.conv_dim();
                     recurrent.delta_offset = recurrent.conv_offset + recurrent.conv_size;
                     recurrent.value_heads = net.value_heads;
                     recurrent.delta_head = {net.key_head_dim, net.value_head_dim};
                     shape.recurrent_size += recurrent.conv_size + recurrent.delta_size();
                   },
                   [&](const GatedAttentionConfig& attention) {
                     kv = {attention.kv_heads, attention.head_dim, attention.head_dim, dtype};
                   },
                   [&](const MlaConfig& mla) {
                     kv = {1, mla.latent_dim + mla.rope_dim, 0, dtype};
                   },
               },
               layer.mixer);
  }
  return shape;
}

}  // namespace moeflux
