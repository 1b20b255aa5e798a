#include "state/original_snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "state/original_keys.h"

namespace moeflux {
namespace {

struct OriginalHeader {
  std::vector<std::pair<std::string_view, std::uint64_t>> expected;  // from word 2 on
};

// The header that a file of the original must have for this model.
OriginalHeader original_header(const ModelConfig& config, const StateShape& shape, std::uint32_t version) {
  std::uint64_t interval = 1, kv_heads = 0, head_dim = 0, conv = 0, delta = 0, latent = 0, rope = 0;
  bool has_attention = false;
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const MixerConfig& mixer = config.layers[i].mixer;
    if (const auto* attention = std::get_if<GatedAttentionConfig>(&mixer);
        attention != nullptr && !has_attention) {
      has_attention = true;
      interval = i + 1;
      kv_heads = attention->kv_heads;
      head_dim = attention->head_dim;
    }
    if (const auto* mla = std::get_if<MlaConfig>(&mixer)) {
      latent = mla->latent_dim;
      rope = mla->rope_dim;
    }
    conv = std::max(conv, shape.recurrent[i].conv_size * sizeof(float));
    delta = std::max(delta, shape.recurrent[i].delta_size() * sizeof(float));
  }
  OriginalHeader header{{{"the number of layers", config.layers.size()},
                         {"the distance between attention layers", interval},
                         {"the number of kv heads", kv_heads},
                         {"the head size", head_dim},
                         {"the bytes of a convolution state", conv},
                         {"the bytes of a recurrent state", delta}}};
  if (version == 2) {
    header.expected.emplace_back("the latent size", latent);
    header.expected.emplace_back("the rotated size", rope);
  }
  // The values that the original writes for a family without these layers are unknown, so they are not
  // compared.
  if (latent != 0) header.expected[1].first = header.expected[2].first = header.expected[3].first = {};
  return header;
}

class OriginalReader {
 public:
  OriginalReader(const ReadFile& file, std::uint64_t file_bytes, const ModelConfig& config,
                 const StateShape& shape, std::uint32_t version, std::uint32_t context)
      : file_(file),
        file_bytes_(file_bytes),
        config_(config),
        shape_(shape),
        version_(version),
        context_(context) {}

  // Checks the whole file before anything is allocated.
  Status check() {
    if (version_ == 1 && has_mla())
      return snapshot_error(ErrorCode::bad_version,
                            "version 1 does not support latent attention, which this model has");
    const OriginalHeader header = original_header(config_, shape_, version_);
    begin_ = (2 + header.expected.size()) * sizeof(std::uint32_t);
    if (file_bytes_ < begin_)
      return snapshot_error(
          ErrorCode::buffer_too_small,
          fmt::format("expected a header of {} bytes, found {} bytes", begin_, file_bytes_));
    for (std::size_t i = 0; i < header.expected.size(); ++i) {
      MF_TRY(const auto found, word_at<std::uint32_t>((2 + i) * sizeof(std::uint32_t)));
      const auto& [field, expected] = header.expected[i];
      if (!field.empty() && found != expected)
        return shape_mismatch(field, found, static_cast<std::int64_t>(expected));
    }
    std::uint64_t at = begin_;
    for (std::size_t layer = 0; layer < shape_.kv.size(); ++layer) {
      if (shape_.kv[layer].heads != 0) {
        MF_TRY_STATUS(need(layer, at, sizeof(std::int32_t)));
        MF_TRY(const auto length, word_at<std::int32_t>(at));
        MF_TRY_STATUS(check_length(layer, length));
        at += sizeof(std::int32_t);
      }
      const std::uint64_t size = layer_bytes(shape_, layer, positions_);
      MF_TRY_STATUS(need(layer, at, size));
      at += size;
    }
    if (at != file_bytes_)
      return snapshot_error(ErrorCode::trailing_bytes,
                            fmt::format("{} bytes follow the last layer", file_bytes_ - at));
    return {};
  }

  // Requires: check() succeeded.
  Result<Snapshot> read(const OwnedPool& pool) const {
    MF_TRY(const auto contents, empty_contents(shape_, pool, positions_));
    contents->tokens_begin = positions_;  // the original stores no tokens
    PieceReader in(file_, begin_, file_bytes_);
    for (std::size_t layer = 0; layer < shape_.kv.size(); ++layer) {
      const KvShape& kv = shape_.kv[layer];
      if (kv.heads != 0) MF_TRY_STATUS(in.skip(sizeof(std::int32_t)));
      if (const auto* mla = std::get_if<MlaConfig>(&config_.layers[layer].mixer))
        MF_TRY_STATUS(read_latents(in, *mla, contents->blocks[layer], positions_));
      else if (kv.heads != 0)
        MF_TRY_STATUS(read_attention(in, kv, contents->blocks[layer], positions_));
      else
        MF_TRY_STATUS(read_recurrent(in, layer, contents->recurrent.data()));
    }
    convert_original_keys(config_, contents->blocks, positions_);
    return Snapshot(contents);
  }

 private:
  bool has_mla() const {
    return std::ranges::any_of(config_.layers, [](const LayerConfig& layer) {
      return std::holds_alternative<MlaConfig>(layer.mixer);
    });
  }

  template <class T>
  Result<T> word_at(std::uint64_t offset) const {
    T word{};
    MF_TRY_STATUS(file_.read_exactly(offset, std::as_writable_bytes(std::span(&word, 1))));
    return word;
  }

  Status need(std::size_t layer, std::uint64_t at, std::uint64_t size) const {
    if (size <= file_bytes_ - at) return {};
    return snapshot_error(ErrorCode::truncated, fmt::format("layer {}: expected {} bytes, found {}", layer,
                                                            size, file_bytes_ - at));
  }

  Status check_length(std::size_t layer, std::int32_t length) {
    if (length < 0)
      return snapshot_error(ErrorCode::negative_length,
                            fmt::format("layer {}: the number of positions is {}", layer, length));
    const auto positions = static_cast<std::uint32_t>(length);
    if (positions > context_)
      return snapshot_error(ErrorCode::length_overflow,
                            fmt::format("layer {}: expected at most {} positions (the context), found {}",
                                        layer, context_, positions));
    if (has_length_ && positions != positions_)
      return snapshot_error(ErrorCode::unequal_lengths,
                            fmt::format("layer {}: expected {} positions like the layers before it, found {}",
                                        layer, positions_, positions));
    has_length_ = true;
    positions_ = positions;
    return {};
  }

  static Status read_attention(PieceReader& in, const KvShape& kv, std::span<const KvBlock> blocks,
                               std::uint32_t positions) {
    MF_TRY_STATUS(take_rows(in, blocks, keys_of(kv), positions));
    return take_rows(in, blocks, values_of(kv), positions);
  }

  // The file has the latents of all positions, then the keys of all positions, which the original has
  // rotated; a block has both per position.
  static Status read_latents(PieceReader& in, const MlaConfig& mla, std::span<const KvBlock> blocks,
                             std::uint32_t positions) {
    const std::size_t latent = mla.latent_dim, rope = mla.rope_dim, key = latent + rope;
    const auto row = [&](std::size_t p) {
      return blocks[p / kKvBlockPositions].keys + p % kKvBlockPositions * key;
    };
    for (std::size_t p = 0; p < positions; ++p) MF_TRY_STATUS(take_floats(in, {row(p), latent}));
    for (std::size_t p = 0; p < positions; ++p) MF_TRY_STATUS(take_floats(in, {row(p) + latent, rope}));
    return {};
  }

  Status read_recurrent(PieceReader& in, std::size_t layer, float* recurrent) const {
    const RecurrentShape& place = shape_.recurrent[layer];
    MF_TRY_STATUS(take_floats(in, {recurrent + place.conv_offset, place.conv_size}));
    float* to = recurrent + place.delta_offset;
    const DeltaStateShape& head = place.delta_head;
    std::vector<float> keys(head.key_dim);
    for (std::size_t h = 0; h < place.value_heads; ++h, to += head.size())
      for (std::size_t v = 0; v < head.value_dim; ++v) {
        MF_TRY_STATUS(take_floats(in, keys));
        for (std::size_t k = 0; k < head.key_dim; ++k) to[head.place(k, v)] = keys[k];
      }
    return {};
  }

  const ReadFile& file_;
  const std::uint64_t file_bytes_;
  const ModelConfig& config_;
  const StateShape& shape_;
  const std::uint32_t version_, context_;
  std::uint64_t begin_ = 0;
  std::uint32_t positions_ = 0;  // the same for every layer that has a length
  bool has_length_ = false;
};

}  // namespace

Result<Snapshot> read_original_snapshot(const ReadFile& file, std::uint64_t file_bytes, std::uint32_t version,
                                        const ModelConfig& config, const StateShape& shape,
                                        const OwnedPool& pool, std::uint32_t context) {
  OriginalReader reader(file, file_bytes, config, shape, version, context);
  MF_TRY_STATUS(reader.check());
  return reader.read(pool);
}

}  // namespace moeflux
