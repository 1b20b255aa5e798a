#include "state/snapshot_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/memory/aligned_buffer.h"
#include "state/original_keys.h"

namespace moeflux {
namespace {

constexpr std::size_t kHeaderBytes = 64;
constexpr std::size_t kChecksumBytes = 8;
constexpr std::size_t kFloat = sizeof(float);

template <class T>
T word_at(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// The keys or the values of a layer. `heads` is 0 for a layer without them.
struct Part {
  float* KvBlock::*rows;
  std::size_t heads, words;  // words per row

  std::size_t bytes(std::uint32_t positions) const { return positions * heads * words * kFloat; }
  // The layout of a block is [heads][positions][words].
  float* row(std::span<const KvBlock> blocks, std::uint32_t position, std::size_t head) const {
    return blocks[position / kKvBlockPositions].*rows +
           (head * kKvBlockPositions + position % kKvBlockPositions) * words;
  }
};
Part keys_of(const KvShape& shape) { return {&KvBlock::keys, shape.heads, shape.key_row_words()}; }
Part values_of(const KvShape& shape) { return {&KvBlock::values, shape.heads, shape.value_row_words()}; }

// Words per position of a layer's keys and values.
std::uint64_t row_words(const KvShape& shape) {
  return std::uint64_t{shape.heads} * (shape.key_row_words() + shape.value_row_words());
}

std::uint64_t layer_bytes(const StateShape& shape, std::size_t layer, std::uint64_t positions) {
  const RecurrentShape& recurrent = shape.recurrent[layer];
  return (positions * row_words(shape.kv[layer]) + recurrent.conv_size + recurrent.delta_size()) * kFloat;
}

// ---- Writing ----------------------------------------------------------------------------------------------

// Buffers small pieces and computes the checksum of the output.
class Writer {
 public:
  explicit Writer(SnapshotSink sink) : sink_(sink) { buffer_.reserve(kPieceBytes); }

  Status put(std::span<const std::byte> bytes) {
    if (buffer_.size() + bytes.size() > kPieceBytes) MF_TRY_STATUS(flush());
    if (bytes.size() > kPieceBytes) return pass_on(bytes);
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    return {};
  }
  template <class T>
  Status put_word(T value) {
    return put(std::as_bytes(std::span(&value, 1)));
  }
  Status finish() {
    MF_TRY_STATUS(flush());
    const std::uint64_t checksum = checksum_.value();
    return sink_(std::as_bytes(std::span(&checksum, 1)));
  }

 private:
  static constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

  Status flush() {
    MF_TRY_STATUS(pass_on(buffer_));
    buffer_.clear();
    return {};
  }
  Status pass_on(std::span<const std::byte> bytes) {
    if (bytes.empty()) return {};
    checksum_.add(bytes);
    return sink_(bytes);
  }

  SnapshotSink sink_;
  ChecksumStream checksum_;
  std::vector<std::byte> buffer_;
};

// Writes [positions][heads][words].
Status put_rows(Writer& writer, std::span<const KvBlock> blocks, const Part& part, std::uint32_t positions) {
  if (part.bytes(1) == 0) return {};
  for (std::uint32_t position = 0; position < positions; ++position)
    for (std::size_t head = 0; head < part.heads; ++head)
      MF_TRY_STATUS(writer.put(std::as_bytes(std::span(part.row(blocks, position, head), part.words))));
  return {};
}

// A file has a recurrent state as [value_heads][key][value]. In memory the values of a key are split into
// strips.
Status put_recurrent(Writer& writer, const RecurrentShape& shape, const float* recurrent) {
  if (shape.value_heads == 0) return {};
  MF_TRY_STATUS(writer.put(std::as_bytes(std::span(recurrent + shape.conv_offset, shape.conv_size))));
  const DeltaStateShape& head = shape.delta_head;
  const float* state = recurrent + shape.delta_offset;
  for (std::size_t h = 0; h < shape.value_heads; ++h, state += head.size())
    for (std::size_t key = 0; key < head.key_dim; ++key)
      for (std::size_t value = 0; value < head.value_dim; value += kDeltaStrip)
        MF_TRY_STATUS(writer.put(std::as_bytes(
            std::span(state + head.place(key, value), delta_strip_size(head.value_dim, value)))));
  return {};
}

// ---- Reading ----------------------------------------------------------------------------------------------

// Reads what put_rows() wrote. Returns the bytes after it.
std::span<const std::byte> take_rows(std::span<const std::byte> bytes, std::span<const KvBlock> blocks,
                                     const Part& part, std::uint32_t positions) {
  if (part.bytes(1) == 0) return bytes;
  const std::byte* from = bytes.data();
  for (std::uint32_t position = 0; position < positions; ++position)
    for (std::size_t head = 0; head < part.heads; ++head, from += part.words * kFloat)
      std::memcpy(part.row(blocks, position, head), from, part.words * kFloat);
  return bytes.subspan(part.bytes(positions));
}

// Reads what put_recurrent() wrote. Returns the bytes after it.
std::span<const std::byte> take_recurrent(std::span<const std::byte> bytes, const RecurrentShape& shape,
                                          float* recurrent) {
  const auto take = [&bytes](float* to, std::size_t count) {
    std::memcpy(to, bytes.data(), count * kFloat);
    bytes = bytes.subspan(count * kFloat);
  };
  if (shape.value_heads == 0) return bytes;
  take(recurrent + shape.conv_offset, shape.conv_size);
  const DeltaStateShape& head = shape.delta_head;
  float* state = recurrent + shape.delta_offset;
  for (std::size_t h = 0; h < shape.value_heads; ++h, state += head.size())
    for (std::size_t key = 0; key < head.key_dim; ++key)
      for (std::size_t value = 0; value < head.value_dim; value += kDeltaStrip)
        take(state + head.place(key, value), delta_strip_size(head.value_dim, value));
  return bytes;
}

// The pool of the blocks, and what keeps it alive.
struct OwnedPool {
  BlockPool& pool;
  std::shared_ptr<const void> owner;
};

// Contents with acquired blocks for `positions` positions.
Result<std::shared_ptr<Snapshot::Contents>> empty_contents(const StateShape& shape, const OwnedPool& from,
                                                           std::uint32_t positions) {
  auto contents = std::make_shared<Snapshot::Contents>();
  contents->owner = from.owner;
  contents->position = positions;
  contents->blocks.resize(shape.kv.size());
  for (std::size_t layer = 0; layer < shape.kv.size(); ++layer) {
    const KvShape& kv = shape.kv[layer];
    if (kv.heads == 0) continue;
    for (std::size_t b = 0; b < kv_blocks_for(positions); ++b) {
      MF_TRY(BlockRef memory, from.pool.acquire(kv.block_bytes()));
      memory.set_filled(static_cast<std::uint32_t>(
          std::min<std::uint64_t>(kKvBlockPositions, positions - b * std::uint64_t{kKvBlockPositions})));
      float* const keys = memory.data();
      float* const values = kv.value_dim == 0 ? nullptr : keys + kv.key_words();
      contents->blocks[layer].push_back({std::move(memory), keys, values});
    }
  }
  if (shape.recurrent_size != 0) {
    MF_TRY(contents->recurrent, from.pool.acquire(shape.recurrent_bytes()));
  }
  return contents;
}

Error wrong(ErrorCode code, std::string message) { return Error(code, "snapshot: " + std::move(message)); }

Error shape_mismatch(std::string_view field, std::int64_t found, std::int64_t expected) {
  return wrong(ErrorCode::shape_mismatch,
               fmt::format("{}: expected {} (from the model), found {}", field, expected, found));
}

// Version 3.
Result<Snapshot> read_own(std::span<const std::byte> bytes, const StateShape& shape, std::uint32_t vocabulary,
                          const SnapshotIdentity& identity, const OwnedPool& pool, std::uint32_t context) {
  if (bytes.size() < kHeaderBytes + kChecksumBytes)
    return wrong(ErrorCode::buffer_too_small, fmt::format("expected at least {} bytes, found {}",
                                                          kHeaderBytes + kChecksumBytes, bytes.size()));
  const auto word = [&](std::size_t offset) { return word_at<std::uint32_t>(bytes, offset); };
  const std::uint64_t size = word_at<std::uint64_t>(bytes, 8);
  if (std::memcmp(bytes.data() + 16, identity.fingerprint.bytes.data(), 16) != 0)
    return wrong(ErrorCode::wrong_model, "it belongs to another model: the fingerprints differ");
  const SnapshotIdentity found{identity.fingerprint, word(32), word(36), word(40), word(44)};
  if (found != identity)
    return wrong(
        ErrorCode::wrong_numerics,
        fmt::format(
            "arithmetic: expected law {}, precision {}, {} experts per token, kv dtype {}; found law {}, "
            "precision {}, {} experts per token, kv dtype {}",
            identity.law, identity.precision, identity.experts_per_token, identity.kv_dtype, found.law,
            found.precision, found.experts_per_token, found.kv_dtype));
  if (word(48) != shape.kv.size())
    return shape_mismatch("the number of layers", word(48), static_cast<std::int64_t>(shape.kv.size()));
  const std::uint32_t position = word(52), tokens_begin = word(56);
  if (position > context)
    return wrong(ErrorCode::length_overflow,
                 fmt::format("position {} is beyond the context of {} positions", position, context));
  if (tokens_begin > position)
    return wrong(
        ErrorCode::shape_mismatch,
        fmt::format("first known token: expected at most position {}, found {}", position, tokens_begin));
  if (word(60) != 0)
    return wrong(ErrorCode::shape_mismatch, fmt::format("word at byte 60: expected 0, found {}", word(60)));

  std::uint64_t need = kHeaderBytes + std::uint64_t{position - tokens_begin} * sizeof(std::uint32_t);
  for (std::size_t layer = 0; layer < shape.kv.size(); ++layer) {
    need += layer_bytes(shape, layer, position);
    if (need + kChecksumBytes > bytes.size())
      return wrong(ErrorCode::truncated, fmt::format("layer {}: expected data up to byte {}, found {} bytes",
                                                     layer, need, bytes.size() - kChecksumBytes));
  }
  need += kChecksumBytes;
  if (size != need || bytes.size() != need)
    return wrong(ErrorCode::trailing_bytes,
                 fmt::format("expected {} bytes, found {}; its header says {}", need, bytes.size(), size));
  if (checksum_of(bytes.first(need - kChecksumBytes)) != word_at<std::uint64_t>(bytes, need - kChecksumBytes))
    return wrong(ErrorCode::bad_checksum, "the checksum differs: the file is damaged");

  std::size_t at = kHeaderBytes;
  std::vector<TokenId> tokens;
  tokens.reserve(position - tokens_begin);
  for (std::uint32_t i = tokens_begin; i < position; ++i, at += sizeof(std::uint32_t)) {
    if (word(at) >= vocabulary)
      return wrong(
          ErrorCode::token_out_of_range,
          fmt::format("token at position {}: expected an id below {}, found {}", i, vocabulary, word(at)));
    tokens.emplace_back(word(at));
  }
  MF_TRY(const auto contents, empty_contents(shape, pool, position));
  contents->tokens_begin = tokens_begin;
  contents->tokens = std::move(tokens);
  std::span<const std::byte> rest = bytes.subspan(at);
  for (std::size_t layer = 0; layer < shape.kv.size(); ++layer) {
    const KvShape& kv = shape.kv[layer];
    rest = take_rows(rest, contents->blocks[layer], keys_of(kv), position);
    rest = take_rows(rest, contents->blocks[layer], values_of(kv), position);
    if (contents->recurrent) rest = take_recurrent(rest, shape.recurrent[layer], contents->recurrent.data());
  }
  return Snapshot(contents);
}

// Versions 1 and 2.

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
    conv = std::max(conv, shape.recurrent[i].conv_size * kFloat);
    delta = std::max(delta, shape.recurrent[i].delta_size() * kFloat);
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
  OriginalReader(std::span<const std::byte> bytes, const ModelConfig& config, const StateShape& shape,
                 std::uint32_t version, std::uint32_t context)
      : bytes_(bytes), config_(config), shape_(shape), version_(version), context_(context) {}

  // Checks the whole file before anything is allocated.
  Status check() {
    if (version_ == 1 && has_mla())
      return wrong(ErrorCode::bad_version,
                   "version 1 does not support latent attention, which this model has");
    const OriginalHeader header = original_header(config_, shape_, version_);
    begin_ = (2 + header.expected.size()) * sizeof(std::uint32_t);
    if (bytes_.size() < begin_)
      return wrong(ErrorCode::buffer_too_small,
                   fmt::format("expected a header of {} bytes, found {} bytes", begin_, bytes_.size()));
    for (std::size_t i = 0; i < header.expected.size(); ++i) {
      const auto found = word_at<std::uint32_t>(bytes_, (2 + i) * sizeof(std::uint32_t));
      const auto& [field, expected] = header.expected[i];
      if (!field.empty() && found != expected)
        return shape_mismatch(field, found, static_cast<std::int64_t>(expected));
    }
    std::uint64_t at = begin_;
    for (std::size_t layer = 0; layer < shape_.kv.size(); ++layer) {
      if (shape_.kv[layer].heads != 0) {
        MF_TRY_STATUS(need(layer, at, sizeof(std::int32_t)));
        const auto length = word_at<std::int32_t>(bytes_, at);
        MF_TRY_STATUS(check_length(layer, length));
        at += sizeof(std::int32_t);
      }
      const std::uint64_t size = layer_bytes(shape_, layer, positions_);
      MF_TRY_STATUS(need(layer, at, size));
      at += size;
    }
    if (at != bytes_.size())
      return wrong(ErrorCode::trailing_bytes,
                   fmt::format("{} bytes follow the last layer", bytes_.size() - at));
    return {};
  }

  // Requires: check() succeeded.
  Result<Snapshot> read(const OwnedPool& pool) const {
    MF_TRY(const auto contents, empty_contents(shape_, pool, positions_));
    contents->tokens_begin = positions_;  // the original stores no tokens
    std::size_t at = begin_;
    for (std::size_t layer = 0; layer < shape_.kv.size(); ++layer) {
      const KvShape& kv = shape_.kv[layer];
      if (kv.heads != 0) at += sizeof(std::int32_t);
      if (const auto* mla = std::get_if<MlaConfig>(&config_.layers[layer].mixer))
        read_latents(*mla, at, contents->blocks[layer], positions_);
      else if (kv.heads != 0)
        read_attention(kv, at, contents->blocks[layer], positions_);
      else
        read_recurrent(layer, at, contents->recurrent.data());
      at += layer_bytes(shape_, layer, positions_);
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

  Status need(std::size_t layer, std::uint64_t at, std::uint64_t size) const {
    if (size <= bytes_.size() - at) return {};
    return wrong(ErrorCode::truncated,
                 fmt::format("layer {}: expected {} bytes, found {}", layer, size, bytes_.size() - at));
  }

  Status check_length(std::size_t layer, std::int32_t length) {
    if (length < 0)
      return wrong(ErrorCode::negative_length,
                   fmt::format("layer {}: the number of positions is {}", layer, length));
    const auto positions = static_cast<std::uint32_t>(length);
    if (positions > context_)
      return wrong(ErrorCode::length_overflow,
                   fmt::format("layer {}: expected at most {} positions (the context), found {}", layer,
                               context_, positions));
    if (has_length_ && positions != positions_)
      return wrong(ErrorCode::unequal_lengths,
                   fmt::format("layer {}: expected {} positions like the layers before it, found {}", layer,
                               positions_, positions));
    has_length_ = true;
    positions_ = positions;
    return {};
  }

  void read_attention(const KvShape& kv, std::size_t at, std::span<const KvBlock> blocks,
                      std::uint32_t positions) const {
    const auto values = take_rows(bytes_.subspan(at), blocks, keys_of(kv), positions);
    take_rows(values, blocks, values_of(kv), positions);
  }

  // The file has the latents of all positions, then the keys of all positions, which the original has
  // rotated; a block has both per position.
  void read_latents(const MlaConfig& mla, std::size_t at, std::span<const KvBlock> blocks,
                    std::uint32_t positions) const {
    const std::size_t latent = mla.latent_dim, rope = mla.rope_dim, key = latent + rope;
    const std::byte* const latents = bytes_.data() + at;
    const std::byte* const rotated = latents + positions * latent * kFloat;
    for (std::size_t p = 0; p < positions; ++p) {
      float* const row = blocks[p / kKvBlockPositions].keys + p % kKvBlockPositions * key;
      std::memcpy(row, latents + p * latent * kFloat, latent * kFloat);
      std::memcpy(row + latent, rotated + p * rope * kFloat, rope * kFloat);
    }
  }

  void read_recurrent(std::size_t layer, std::size_t at, float* recurrent) const {
    const RecurrentShape& place = shape_.recurrent[layer];
    std::memcpy(recurrent + place.conv_offset, bytes_.data() + at, place.conv_size * kFloat);
    const std::byte* from = bytes_.data() + at + place.conv_size * kFloat;
    float* to = recurrent + place.delta_offset;
    const DeltaStateShape& head = place.delta_head;
    for (std::size_t h = 0; h < place.value_heads; ++h, to += head.size())
      for (std::size_t v = 0; v < head.value_dim; ++v)
        for (std::size_t k = 0; k < head.key_dim; ++k, from += kFloat)
          std::memcpy(to + head.place(k, v), from, kFloat);
  }

  std::span<const std::byte> bytes_;
  const ModelConfig& config_;
  const StateShape& shape_;
  const std::uint32_t version_, context_;
  std::size_t begin_ = 0;
  std::uint32_t positions_ = 0;  // the same for every layer that has a length
  bool has_length_ = false;
};

}  // namespace

std::uint64_t snapshot_bytes(const StateShape& shape, std::uint64_t position, std::uint64_t tokens) {
  std::uint64_t size = kHeaderBytes + tokens * sizeof(std::uint32_t) + kChecksumBytes;
  for (std::size_t layer = 0; layer < shape.kv.size(); ++layer) size += layer_bytes(shape, layer, position);
  return size;
}

std::uint64_t largest_snapshot_bytes(const StateShape& shape, std::uint64_t context) {
  // Versions 1 and 2 have shorter headers and no tokens, but a length in every layer.
  return snapshot_bytes(shape, context, context) + shape.kv.size() * sizeof(std::uint32_t);
}

Status write_snapshot(const StateShape& shape, const SnapshotIdentity& identity, const Snapshot& snapshot,
                      SnapshotSink sink) {
  Writer writer(sink);
  const std::uint32_t position = snapshot.position();
  for (const std::uint32_t word : {kSnapshotMagic, kSnapshotVersion}) MF_TRY_STATUS(writer.put_word(word));
  MF_TRY_STATUS(writer.put_word(snapshot_bytes(shape, position, snapshot.tokens().size())));
  MF_TRY_STATUS(writer.put(std::as_bytes(std::span(identity.fingerprint.bytes))));
  for (const std::uint32_t word :
       {identity.law, identity.precision, identity.experts_per_token, identity.kv_dtype,
        static_cast<std::uint32_t>(shape.kv.size()), position, snapshot.tokens_begin(), std::uint32_t{0}})
    MF_TRY_STATUS(writer.put_word(word));
  for (const TokenId token : snapshot.tokens()) MF_TRY_STATUS(writer.put_word(token.index()));
  const Snapshot::Contents& contents = snapshot.contents();
  HugeBuffer zeros;  // nothing writes to its pages, so they take no memory
  if (!contents.recurrent) {
    MF_TRY(zeros, HugeBuffer::create(shape.recurrent_bytes()));
  }
  const float* const recurrent =
      contents.recurrent ? contents.recurrent.data() : reinterpret_cast<const float*>(zeros.data());
  for (std::size_t layer = 0; layer < shape.kv.size(); ++layer) {
    const KvShape& kv = shape.kv[layer];
    MF_TRY_STATUS(put_rows(writer, contents.blocks[layer], keys_of(kv), position));
    MF_TRY_STATUS(put_rows(writer, contents.blocks[layer], values_of(kv), position));
    MF_TRY_STATUS(put_recurrent(writer, shape.recurrent[layer], recurrent));
  }
  return writer.finish();
}

Result<Snapshot> read_snapshot(std::span<const std::byte> bytes, const ModelConfig& config,
                               const SnapshotIdentity& identity, BlockPool& pool, std::uint32_t context,
                               std::shared_ptr<const void> owner) {
  constexpr std::size_t kPrefixBytes = 2 * sizeof(std::uint32_t);
  if (bytes.size() < kPrefixBytes)
    return wrong(ErrorCode::buffer_too_small,
                 fmt::format("expected at least {} bytes, found {}", kPrefixBytes, bytes.size()));
  const auto magic = word_at<std::uint32_t>(bytes, 0), version = word_at<std::uint32_t>(bytes, 4);
  if (magic != kSnapshotMagic)
    return wrong(ErrorCode::bad_magic,
                 fmt::format("magic number: expected {:08x}, found {:08x}", kSnapshotMagic, magic));
  const StateShape shape = state_shape_of(config, static_cast<KvDtype>(identity.kv_dtype));
  if (version == kSnapshotVersion)
    return read_own(bytes, shape, config.vocabulary, identity, {pool, std::move(owner)}, context);
  if (version != 1 && version != 2)
    return wrong(ErrorCode::bad_version, fmt::format("version: expected 1, 2 or 3, found {}", version));
  if (identity.kv_dtype != static_cast<std::uint32_t>(KvDtype::f32))
    return wrong(ErrorCode::wrong_numerics,
                 "versions 1 and 2 store keys and values as f32; this engine uses a smaller kv dtype");
  OriginalReader reader(bytes, config, shape, version, context);
  MF_TRY_STATUS(reader.check());
  return reader.read({pool, std::move(owner)});
}

}  // namespace moeflux
