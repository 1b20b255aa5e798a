#include "state/session_state.h"

#include <cstring>
#include <utility>

#include "base/arithmetic.h"
#include "base/check.h"
#include "base/overloaded.h"

namespace moeflux {
namespace {

std::size_t blocks_for(std::uint64_t positions) {
  return divide_up<std::uint64_t>(positions, kKvBlockPositions);
}

// Floats of one side of all recurrent states.
std::uint64_t side_size_of(const ModelConfig& config) {
  std::uint64_t size = 0;
  for (const LayerConfig& layer : config.layers) {
    const RecurrentShape shape = recurrent_shape_of(layer.mixer);
    size += shape.conv + shape.delta;
  }
  return size;
}

}  // namespace

std::size_t KvShape::block_bytes() const {
  return std::size_t{heads} * kKvBlockPositions * (std::size_t{key_dim} + value_dim) * sizeof(float);
}

KvShape kv_shape_of(const MixerConfig& mixer) {
  return std::visit(overloaded{
                        [](const GatedDeltaNetConfig&) { return KvShape{}; },
                        [](const GatedAttentionConfig& attention) {
                          return KvShape{attention.kv_heads, attention.head_dim, attention.head_dim};
                        },
                        [](const MlaConfig& mla) {
                          return KvShape{1, mla.latent_dim + mla.rope_dim, 0};
                        },
                    },
                    mixer);
}

RecurrentShape recurrent_shape_of(const MixerConfig& mixer) {
  const auto* net = std::get_if<GatedDeltaNetConfig>(&mixer);
  if (net == nullptr) return {};
  return {std::uint64_t{net->conv_width - 1} * net->conv_dim(),
          std::uint64_t{net->value_heads} * net->key_head_dim * net->value_head_dim};
}

std::uint64_t SessionState::fixed_bytes(const ModelConfig& config) {
  return 2 * side_size_of(config) * sizeof(float);
}

std::uint64_t SessionState::kv_bytes(const ModelConfig& config, std::uint32_t positions) {
  std::uint64_t bytes = 0;
  for (const LayerConfig& layer : config.layers)
    bytes += blocks_for(positions) * kv_shape_of(layer.mixer).block_bytes();
  return bytes;
}

Result<SessionState> SessionState::create(const ModelConfig& config, KvPool& pool, std::uint32_t context) {
  SessionState state(pool);
  state.context_ = context;
  state.side_size_ = side_size_of(config);
  if (state.side_size_ != 0) {
    MF_TRY(state.recurrent_, HugeBuffer::create(fixed_bytes(config)));
  }
  std::uint64_t offset = 0;
  for (const LayerConfig& config_of_layer : config.layers) {
    Layer& layer = state.layers_.emplace_back();
    layer.kv_shape = kv_shape_of(config_of_layer.mixer);
    if (layer.kv_shape.heads != 0) layer.blocks.reserve(blocks_for(context));
    const RecurrentShape shape = recurrent_shape_of(config_of_layer.mixer);
    layer.conv_offset = offset;
    layer.delta_offset = offset + shape.conv;
    offset += shape.conv + shape.delta;
  }
  return state;
}

SessionState::SessionState(SessionState&& other) noexcept
    : pool_(other.pool_),
      layers_(std::exchange(other.layers_, {})),
      context_(other.context_),
      position_(std::exchange(other.position_, 0)),
      recurrent_(std::move(other.recurrent_)),
      side_size_(other.side_size_),
      current_(other.current_) {}

SessionState& SessionState::operator=(SessionState&& other) noexcept {
  if (this == &other) return *this;
  release_blocks();
  pool_ = other.pool_;
  layers_ = std::exchange(other.layers_, {});
  context_ = other.context_;
  position_ = std::exchange(other.position_, 0);
  recurrent_ = std::move(other.recurrent_);
  side_size_ = other.side_size_;
  current_ = other.current_;
  return *this;
}

SessionState::~SessionState() { release_blocks(); }

void SessionState::release_blocks() {
  for (Layer& layer : layers_) {
    for (const KvBlock& block : layer.blocks)
      pool_->release(reinterpret_cast<std::byte*>(block.keys), layer.kv_shape.block_bytes());
    layer.blocks.clear();
  }
}

Status SessionState::reserve(std::uint32_t rows) {
  MF_REQUIRE(rows <= context_ - position_, "the positions are in the context");
  const std::size_t wanted = blocks_for(std::uint64_t{position_} + rows);
  for (Layer& layer : layers_) {
    const KvShape& shape = layer.kv_shape;
    while (shape.heads != 0 && layer.blocks.size() < wanted) {
      MF_TRY(std::byte* const memory, pool_->acquire(shape.block_bytes()));
      float* const keys = reinterpret_cast<float*>(memory);
      float* const values = keys + std::size_t{shape.heads} * kKvBlockPositions * shape.key_dim;
      layer.blocks.push_back({keys, shape.value_dim == 0 ? nullptr : values});
    }
  }
  return {};
}

void SessionState::commit(std::uint32_t rows) {
  position_ += rows;
  current_ ^= 1;
}

void SessionState::clear() {
  release_blocks();
  position_ = 0;
  if (side_size_ != 0) std::memset(side(current_), 0, side_size_ * sizeof(float));
}

RecurrentView SessionState::conv(LayerId layer) {
  const std::uint64_t offset = layers_[layer.index()].conv_offset;
  return {side(current_) + offset, side(current_ ^ 1) + offset};
}

RecurrentView SessionState::delta(LayerId layer) {
  const std::uint64_t offset = layers_[layer.index()].delta_offset;
  return {side(current_) + offset, side(current_ ^ 1) + offset};
}

}  // namespace moeflux
