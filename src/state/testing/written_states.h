#pragma once
// Small models, and states in which every number encodes its timeline, layer, position and channel.
//
// A step computes nothing: it writes these numbers where a forward pass would write its results. Test code
// only.

#include <bit>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "model/testing/tiny_packed_model.h"
#include "state/session_state.h"

namespace moeflux {

// Linear, full, linear, full attention. Key and value dimensions of a recurrent state differ, so that a
// missing transposition is detected.
inline ModelConfig small_qwen_config() {
  ModelConfig config = tiny_qwen_config();
  config.layers[0].mixer = GatedDeltaNetConfig{
      .key_heads = 1, .value_heads = 2, .key_head_dim = 2, .value_head_dim = 3, .conv_width = 3};
  auto& attention = std::get<GatedAttentionConfig>(config.layers[1].mixer);
  attention.kv_heads = 2;
  attention.head_dim = 4;
  config.layers.insert(config.layers.end(), {config.layers[0], config.layers[1]});
  return config;
}

// A model with recurrent states that are larger than a piece.
inline ModelConfig large_qwen_config() {
  ModelConfig config = small_qwen_config();
  for (const std::size_t layer : {0u, 2u}) {
    auto& net = std::get<GatedDeltaNetConfig>(config.layers[layer].mixer);
    net.key_head_dim = net.value_head_dim = 512;
  }
  return config;
}

// The same with recurrent states of three strips, the last of which is smaller.
inline ModelConfig striped_qwen_config() {
  ModelConfig config = small_qwen_config();
  for (const std::size_t layer : {0u, 2u}) {
    auto& net = std::get<GatedDeltaNetConfig>(config.layers[layer].mixer);
    net.key_head_dim = 3;
    net.value_head_dim = 2 * kDeltaStrip + 5;
  }
  return config;
}

inline ModelConfig small_deepseek_config() {
  ModelConfig config = tiny_deepseek_config();
  for (LayerConfig& layer : config.layers) {
    auto& mla = std::get<MlaConfig>(layer.mixer);
    mla.latent_dim = 3;
    mla.rope_dim = mla.rope.dims = 2;
  }
  return config;
}

// A history that branches at `begin`: timeline 0 wrote the positions before it.
struct Timeline {
  std::uint32_t number = 0;
  std::uint32_t begin = 0;
  std::uint32_t at(std::uint32_t position) const { return position < begin ? 0 : number; }
};

// Never 0 and exactly representable.
inline float written_number(std::uint32_t timeline, std::size_t layer, std::uint32_t position,
                            std::size_t channel) {
  return static_cast<float>(((timeline * 4 + layer) * 8192 + position) * 64 + channel + 1);
}
inline constexpr std::size_t kKeyChannels = 0, kValueChannels = 32, kConvChannels = 0, kDeltaChannels = 32;

inline TokenId written_token(std::uint32_t timeline, std::uint32_t position) {
  return TokenId((position * 7 + timeline) % 96);
}

// The place in memory of element `index` of a state in a file of version 3 or 4, [value_heads][key][value].
inline std::size_t delta_place(const RecurrentShape& shape, std::size_t index) {
  const DeltaStateShape& head = shape.delta_head;
  const std::size_t within = index % head.size();
  return index - within + head.place(within / head.value_dim, within % head.value_dim);
}

// Writes what a step of `rows` rows writes before it is committed.
inline void write_step(SessionState& state, std::uint32_t rows, Timeline timeline) {
  const StateShape& shape = state.shape();
  for (std::uint32_t i = 0; i < shape.kv.size(); ++i) {
    const KvShape& kv = shape.kv[i];
    const std::uint32_t end = state.position() + rows;
    for (std::uint32_t p = state.position(); p < end && kv.heads != 0; ++p) {
      const KvBlock& block = state.kv(LayerId(i))[p / kKvBlockPositions];
      for (std::size_t head = 0; head < kv.heads; ++head) {
        const std::size_t row = head * kKvBlockPositions + p % kKvBlockPositions;
        for (std::size_t d = 0; d < kv.key_dim; ++d)
          block.keys[row * kv.key_dim + d] =
              written_number(timeline.at(p), i, p, kKeyChannels + head * kv.key_dim + d);
        for (std::size_t d = 0; d < kv.value_dim; ++d)
          block.values[row * kv.value_dim + d] =
              written_number(timeline.at(p), i, p, kValueChannels + head * kv.value_dim + d);
      }
    }
    const RecurrentShape& recurrent = shape.recurrent[i];
    for (std::size_t c = 0; c < recurrent.conv_size; ++c)
      state.conv(LayerId(i)).after[c] = written_number(timeline.at(end - 1), i, end, kConvChannels + c);
    for (std::size_t c = 0; c < recurrent.delta_size(); ++c)
      state.delta(LayerId(i)).after[delta_place(recurrent, c)] =
          written_number(timeline.at(end - 1), i, end, kDeltaChannels + c);
  }
}

inline std::vector<TokenId> written_tokens(std::uint32_t from, std::uint32_t to, Timeline timeline = {}) {
  std::vector<TokenId> tokens;
  for (std::uint32_t p = from; p < to; ++p) tokens.push_back(written_token(timeline.at(p), p));
  return tokens;
}

// Runs and commits a step.
inline Status run_step(SessionState& state, std::uint32_t rows, Timeline timeline = {}) {
  MF_TRY_STATUS(state.begin_step(written_tokens(state.position(), state.position() + rows, timeline)));
  write_step(state, rows, timeline);
  state.commit();
  return {};
}

// The bits of all numbers of a state, in the order of a snapshot file of version 3 or 4.
template <class BlocksOf, class ConvOf, class DeltaOf>
std::vector<std::uint32_t> bits_of(const StateShape& shape, std::uint32_t position, BlocksOf blocks_of,
                                   ConvOf conv_of, DeltaOf delta_of) {
  std::vector<std::uint32_t> bits;
  const auto add = [&](const float* numbers, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) bits.push_back(std::bit_cast<std::uint32_t>(numbers[i]));
  };
  for (std::uint32_t i = 0; i < shape.kv.size(); ++i) {
    const KvShape& kv = shape.kv[i];
    const auto add_rows = [&](float* KvBlock::*part, std::size_t dim) {
      for (std::uint32_t p = 0; p < position && dim != 0; ++p)
        for (std::size_t head = 0; head < kv.heads; ++head)
          add(blocks_of(i)[p / kKvBlockPositions].*part +
                  (head * kKvBlockPositions + p % kKvBlockPositions) * dim,
              dim);
    };
    add_rows(&KvBlock::keys, kv.key_dim);
    add_rows(&KvBlock::values, kv.value_dim);
    add(conv_of(i), shape.recurrent[i].conv_size);
    for (std::size_t c = 0; c < shape.recurrent[i].delta_size(); ++c)
      add(delta_of(i) + delta_place(shape.recurrent[i], c), 1);
  }
  return bits;
}

inline std::vector<std::uint32_t> bits_of(SessionState& state) {
  return bits_of(
      state.shape(), state.position(), [&](std::uint32_t layer) { return state.kv(LayerId(layer)); },
      [&](std::uint32_t layer) { return state.conv(LayerId(layer)).before; },
      [&](std::uint32_t layer) { return state.delta(LayerId(layer)).before; });
}

inline std::vector<std::uint32_t> bits_of(const StateShape& shape, const Snapshot& snapshot) {
  const Snapshot::Contents& contents = snapshot.contents();
  const std::vector<float> zeros(shape.recurrent_size);
  const float* const recurrent = contents.recurrent ? contents.recurrent.data() : zeros.data();
  return bits_of(
      shape, contents.position,
      [&](std::uint32_t layer) { return std::span<const KvBlock>(contents.blocks[layer]); },
      [&](std::uint32_t layer) { return recurrent + shape.recurrent[layer].conv_offset; },
      [&](std::uint32_t layer) { return recurrent + shape.recurrent[layer].delta_offset; });
}

// What bits_of() returns after steps that wrote `position` positions.
inline std::vector<std::uint32_t> written_bits(const StateShape& shape, std::uint32_t position,
                                               Timeline timeline = {}) {
  std::vector<std::uint32_t> bits;
  const auto add = [&](float number) { bits.push_back(std::bit_cast<std::uint32_t>(number)); };
  const auto add_recurrent = [&](std::size_t layer, std::size_t first, std::size_t count) {
    for (std::size_t c = first; c < first + count; ++c)
      add(position == 0 ? 0 : written_number(timeline.at(position - 1), layer, position, c));
  };
  for (std::size_t i = 0; i < shape.kv.size(); ++i) {
    const KvShape& kv = shape.kv[i];
    const auto add_rows = [&](std::size_t first, std::size_t count) {
      for (std::uint32_t p = 0; p < position; ++p)
        for (std::size_t c = first; c < first + count; ++c) add(written_number(timeline.at(p), i, p, c));
    };
    add_rows(kKeyChannels, std::size_t{kv.heads} * kv.key_dim);
    add_rows(kValueChannels, std::size_t{kv.heads} * kv.value_dim);
    add_recurrent(i, kConvChannels, shape.recurrent[i].conv_size);
    add_recurrent(i, kDeltaChannels, shape.recurrent[i].delta_size());
  }
  return bits;
}

// The bits of the recurrent states among them, which is what a file has of a checkpoint.
inline std::vector<std::uint32_t> written_recurrent_bits(const StateShape& shape, std::uint32_t position) {
  StateShape recurrent = shape;
  for (KvShape& kv : recurrent.kv) kv = {};
  return written_bits(recurrent, position);
}

}  // namespace moeflux
