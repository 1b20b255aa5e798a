#pragma once
// Snapshot files written from docs/formats/snapshot.md, independently of the code under test, for tests that
// modify them. They contain the numbers of written_states.h. Test code only.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/hash.h"
#include "state/snapshot_file.h"
#include "state/testing/original_rope.h"
#include "state/testing/written_states.h"

namespace moeflux {

using Bytes = std::vector<std::byte>;

template <class T>
void put(Bytes& bytes, const T& value) {
  const auto raw = std::as_bytes(std::span(&value, 1));
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

template <class T>
void put_at(Bytes& bytes, std::size_t offset, const T& value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

inline SnapshotIdentity identity_of_tests() {
  SnapshotIdentity identity;
  identity.fingerprint = digest_of("the model");
  identity.law = 1;  // whatever the law is now: seeds of the fuzz target have this number
  identity.experts_per_token = 2;
  return identity;
}

// Recomputes the checksum in the last 8 bytes of a file of version 3 or 4.
inline void fix_checksum(Bytes& bytes) {
  if (bytes.size() < sizeof(std::uint64_t)) return;
  const std::size_t end = bytes.size() - sizeof(std::uint64_t);
  put_at(bytes, end, checksum_of(std::span(bytes).first(end)));
}

struct OwnFile {
  std::uint32_t version = 4;
  std::uint32_t tokens_begin = 0;
  std::vector<std::uint32_t> checkpoints = {};  // most recently used first
};

// A file of version 3 or 4.
inline Bytes own_file(const ModelConfig& config, std::uint32_t position, const OwnFile& file = {}) {
  const SnapshotIdentity identity = identity_of_tests();
  const StateShape shape = state_shape_of(config);
  Bytes bytes;
  for (const std::uint32_t word : {0x4D464C58u, file.version}) put(bytes, word);
  put(bytes, std::uint64_t{0});
  put(bytes, identity.fingerprint);
  for (const std::uint32_t word :
       {identity.law, identity.precision, identity.experts_per_token, identity.kv_dtype,
        static_cast<std::uint32_t>(config.layers.size()), position, file.tokens_begin,
        static_cast<std::uint32_t>(file.checkpoints.size())})
    put(bytes, word);
  for (const std::uint32_t checkpoint : file.checkpoints) put(bytes, checkpoint);
  for (const TokenId token : written_tokens(file.tokens_begin, position)) put(bytes, token.index());
  for (const std::uint32_t bits : written_bits(shape, position)) put(bytes, bits);
  for (const std::uint32_t checkpoint : file.checkpoints)
    if (checkpoint != 0 && checkpoint != position)
      for (const std::uint32_t bits : written_recurrent_bits(shape, checkpoint)) put(bytes, bits);
  put(bytes, std::uint64_t{0});
  put_at(bytes, 8, std::uint64_t{bytes.size()});
  fix_checksum(bytes);
  return bytes;
}

struct OriginalFile {
  Bytes bytes;
  std::vector<std::size_t> lengths_at;  // offsets of the lengths, for the layers that have one
};

// A version 1 or 2 file as the original writes it. Imported, the keys of latent attention are the written
// numbers up to import_tolerance(); everything else is exact.
inline OriginalFile original_file(const ModelConfig& config, std::uint32_t version, std::uint32_t position) {
  OriginalFile file;
  Bytes& bytes = file.bytes;
  const StateShape shape = state_shape_of(config);
  const bool is_qwen = config.family == Family::qwen3_5_moe;
  for (const std::uint32_t word :
       {0x4D464C58u, version, static_cast<std::uint32_t>(config.layers.size()), is_qwen ? 2u : 1u})
    put(bytes, word);
  if (is_qwen) {
    const auto& net = std::get<GatedDeltaNetConfig>(config.layers[0].mixer);
    const auto& attention = std::get<GatedAttentionConfig>(config.layers[1].mixer);
    for (const std::uint32_t word :
         {attention.kv_heads, attention.head_dim, (net.conv_width - 1) * net.conv_dim() * 4,
          net.value_heads * net.value_head_dim * net.key_head_dim * 4})
      put(bytes, word);
    if (version == 2) put(bytes, std::uint64_t{0});
  } else {
    const auto& mla = std::get<MlaConfig>(config.layers[0].mixer);
    for (const std::uint32_t word : {mla.heads, mla.nope_dim + mla.rope_dim, 0u, 0u}) put(bytes, word);
    if (version == 2)
      for (const std::uint32_t word : {mla.latent_dim, mla.rope_dim}) put(bytes, word);
  }
  for (std::size_t layer = 0; layer < config.layers.size(); ++layer) {
    const auto put_rows = [&](std::size_t first, std::size_t count) {
      for (std::uint32_t p = 0; p < position; ++p)
        for (std::size_t c = first; c < first + count; ++c) put(bytes, written_number(0, layer, p, c));
    };
    const auto put_recurrent = [&](std::size_t channel) {
      put(bytes, position == 0 ? 0.0f : written_number(0, layer, position, channel));
    };
    const auto put_length = [&] {
      file.lengths_at.push_back(bytes.size());
      put(bytes, position);
    };
    const MixerConfig& mixer = config.layers[layer].mixer;
    if (const auto* net = std::get_if<GatedDeltaNetConfig>(&mixer)) {
      for (std::size_t c = 0; c < shape.recurrent[layer].conv_size; ++c) put_recurrent(kConvChannels + c);
      for (std::size_t head = 0; head < net->value_heads; ++head)
        for (std::size_t value = 0; value < net->value_head_dim; ++value)
          for (std::size_t key = 0; key < net->key_head_dim; ++key)
            put_recurrent(kDeltaChannels + (head * net->key_head_dim + key) * net->value_head_dim + value);
    } else if (const auto* mla = std::get_if<MlaConfig>(&mixer)) {
      put_length();
      put_rows(kKeyChannels, mla->latent_dim);
      for (std::uint32_t p = 0; p < position; ++p) {
        std::vector<double> key;
        for (std::uint32_t c = 0; c < mla->rope_dim; ++c)
          key.push_back(written_number(0, layer, p, kKeyChannels + mla->latent_dim + c));
        const std::vector<double> raw = rotated_as_in_training(key, p, mla->rope, -1);
        std::vector<float> rotated(raw.begin(), raw.end());
        rotate_as_the_original(rotated, p, mla->rope);
        for (const float channel : rotated) put(bytes, channel);
      }
    } else {
      const auto& attention = std::get<GatedAttentionConfig>(mixer);
      put_length();
      put_rows(kKeyChannels, attention.kv_dim());
      put_rows(kValueChannels, attention.kv_dim());
    }
  }
  return file;
}

}  // namespace moeflux
