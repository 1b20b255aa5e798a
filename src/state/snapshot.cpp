#include "state/snapshot.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/overloaded.h"

namespace moeflux {
namespace {

bool equal_bits(const float* a, const float* b, std::size_t words) {
  return std::memcmp(a, b, words * sizeof(float)) == 0;
}

// Whether the first `count` rows of all heads are equal.
bool equal_rows(const KvShape& shape, const KvBlock& a, const KvBlock& b, std::size_t count) {
  if (a.memory == b.memory) return true;
  for (std::size_t head = 0; head < shape.heads; ++head) {
    const std::size_t row = head * kKvBlockPositions;
    const std::size_t key = row * shape.key_row_words(), value = row * shape.value_row_words();
    if (!equal_bits(a.keys + key, b.keys + key, count * shape.key_row_words())) return false;
    if (a.values != nullptr &&
        !equal_bits(a.values + value, b.values + value, count * shape.value_row_words()))
      return false;
  }
  return true;
}

bool equal_recurrent(const StateShape& shape, const BlockRef& a, const BlockRef& b) {
  if (a == b) return true;
  if (a && b) return equal_bits(a.data(), b.data(), shape.recurrent_size);
  const BlockRef& block = a ? a : b;  // the other one stands for zeros
  return std::ranges::all_of(std::as_bytes(std::span(block.data(), shape.recurrent_size)),
                             [](std::byte byte) { return byte == std::byte{0}; });
}

}  // namespace

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

Snapshot earlier_snapshot(const Snapshot& later, std::uint32_t position, BlockRef recurrent) {
  MF_REQUIRE(later.tokens_begin() <= position && position <= later.position(),
             "the position is on the timeline");
  const Snapshot::Contents& from = later.contents();
  auto contents = std::make_shared<Snapshot::Contents>();
  contents->owner = from.owner;
  contents->position = position;
  const std::span<const TokenId> tokens = later.tokens().first(position - from.tokens_begin);
  contents->tokens.assign(tokens.begin(), tokens.end());
  contents->tokens_begin = from.tokens_begin;
  contents->blocks.resize(from.blocks.size());
  for (std::size_t i = 0; i < from.blocks.size(); ++i) {
    const std::size_t count = std::min(from.blocks[i].size(), kv_blocks_for(position));
    contents->blocks[i].assign(from.blocks[i].begin(),
                               from.blocks[i].begin() + static_cast<std::ptrdiff_t>(count));
  }
  contents->recurrent = std::move(recurrent);
  return Snapshot(std::move(contents));
}

bool is_on_timeline(const StateShape& shape, const Snapshot& earlier, const Snapshot& later) {
  const Snapshot::Contents &a = earlier.contents(), &b = later.contents();
  if (a.position > b.position || a.tokens_begin != b.tokens_begin) return false;
  if (!std::ranges::equal(a.tokens, std::span(b.tokens).first(a.tokens.size()))) return false;
  for (std::size_t layer = 0; layer < shape.kv.size(); ++layer)
    for (std::size_t block = 0; block < a.blocks[layer].size(); ++block) {
      const std::uint64_t rows = a.position - block * std::uint64_t{kKvBlockPositions};
      if (!equal_rows(shape.kv[layer], a.blocks[layer][block], b.blocks[layer][block],
                      std::min<std::uint64_t>(rows, kKvBlockPositions)))
        return false;
    }
  if (a.position == b.position) return equal_recurrent(shape, a.recurrent, b.recurrent);
  return a.position != 0 || equal_recurrent(shape, a.recurrent, {});
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
