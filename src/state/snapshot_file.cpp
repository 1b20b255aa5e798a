#include "state/snapshot_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/memory/aligned_buffer.h"
#include "state/original_snapshot.h"
#include "state/snapshot_parts.h"

namespace moeflux {
namespace {

constexpr std::size_t kHeaderBytes = 64;
constexpr std::size_t kChecksumBytes = 8;
constexpr std::size_t kFloat = sizeof(float);

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
Status put_rows(Writer& writer, std::span<const KvBlock> blocks, const KvPart& part,
                std::uint32_t positions) {
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

// The tokens of the positions [begin, end), which `bytes` begin with.
Result<std::vector<TokenId>> tokens_at(std::span<const std::byte> bytes, std::uint32_t begin,
                                       std::uint32_t end, std::uint32_t vocabulary) {
  std::vector<TokenId> tokens;
  tokens.reserve(end - begin);
  for (std::uint32_t i = begin; i < end; ++i) {
    const auto token = word_at<std::uint32_t>(bytes, (i - begin) * sizeof(std::uint32_t));
    if (token >= vocabulary)
      return snapshot_error(
          ErrorCode::token_out_of_range,
          fmt::format("token at position {}: expected an id below {}, found {}", i, vocabulary, token));
    tokens.emplace_back(token);
  }
  return tokens;
}

// Version 3.
Result<Snapshot> read_own(std::span<const std::byte> bytes, const StateShape& shape, std::uint32_t vocabulary,
                          const SnapshotIdentity& identity, const OwnedPool& pool, std::uint32_t context) {
  if (bytes.size() < kHeaderBytes + kChecksumBytes)
    return snapshot_error(
        ErrorCode::buffer_too_small,
        fmt::format("expected at least {} bytes, found {}", kHeaderBytes + kChecksumBytes, bytes.size()));
  const auto word = [&](std::size_t offset) { return word_at<std::uint32_t>(bytes, offset); };
  const std::uint64_t size = word_at<std::uint64_t>(bytes, 8);
  if (std::memcmp(bytes.data() + 16, identity.fingerprint.bytes.data(), 16) != 0)
    return snapshot_error(ErrorCode::wrong_model, "it belongs to another model: the fingerprints differ");
  const SnapshotIdentity found{identity.fingerprint, word(32), word(36), word(40), word(44)};
  if (found != identity)
    return snapshot_error(
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
    return snapshot_error(
        ErrorCode::length_overflow,
        fmt::format("position {} is beyond the context of {} positions", position, context));
  if (tokens_begin > position)
    return snapshot_error(
        ErrorCode::shape_mismatch,
        fmt::format("first known token: expected at most position {}, found {}", position, tokens_begin));
  if (word(60) != 0)
    return snapshot_error(ErrorCode::shape_mismatch,
                          fmt::format("word at byte 60: expected 0, found {}", word(60)));

  std::uint64_t need = kHeaderBytes + std::uint64_t{position - tokens_begin} * sizeof(std::uint32_t);
  for (std::size_t layer = 0; layer < shape.kv.size(); ++layer) {
    need += layer_bytes(shape, layer, position);
    if (need + kChecksumBytes > bytes.size())
      return snapshot_error(ErrorCode::truncated,
                            fmt::format("layer {}: expected data up to byte {}, found {} bytes", layer, need,
                                        bytes.size() - kChecksumBytes));
  }
  need += kChecksumBytes;
  if (size != need || bytes.size() != need)
    return snapshot_error(
        ErrorCode::trailing_bytes,
        fmt::format("expected {} bytes, found {}; its header says {}", need, bytes.size(), size));
  if (checksum_of(bytes.first(need - kChecksumBytes)) != word_at<std::uint64_t>(bytes, need - kChecksumBytes))
    return snapshot_error(ErrorCode::bad_checksum, "the checksum differs: the file is damaged");

  MF_TRY(std::vector<TokenId> tokens,
         tokens_at(bytes.subspan(kHeaderBytes), tokens_begin, position, vocabulary));
  MF_TRY(const auto contents, empty_contents(shape, pool, position));
  contents->tokens_begin = tokens_begin;
  contents->tokens = std::move(tokens);
  std::span<const std::byte> rest =
      bytes.subspan(kHeaderBytes + contents->tokens.size() * sizeof(std::uint32_t));
  for (std::size_t layer = 0; layer < shape.kv.size(); ++layer) {
    const KvShape& kv = shape.kv[layer];
    rest = take_rows(rest, contents->blocks[layer], keys_of(kv), position);
    rest = take_rows(rest, contents->blocks[layer], values_of(kv), position);
    if (contents->recurrent) rest = take_recurrent(rest, shape.recurrent[layer], contents->recurrent.data());
  }
  return Snapshot(contents);
}

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
    return snapshot_error(ErrorCode::buffer_too_small,
                          fmt::format("expected at least {} bytes, found {}", kPrefixBytes, bytes.size()));
  const auto magic = word_at<std::uint32_t>(bytes, 0), version = word_at<std::uint32_t>(bytes, 4);
  if (magic != kSnapshotMagic)
    return snapshot_error(ErrorCode::bad_magic,
                          fmt::format("magic number: expected {:08x}, found {:08x}", kSnapshotMagic, magic));
  const StateShape shape = state_shape_of(config, static_cast<KvDtype>(identity.kv_dtype));
  if (version == kSnapshotVersion)
    return read_own(bytes, shape, config.vocabulary, identity, {pool, std::move(owner)}, context);
  if (version != 1 && version != 2)
    return snapshot_error(ErrorCode::bad_version,
                          fmt::format("version: expected 1, 2 or 3, found {}", version));
  if (identity.kv_dtype != static_cast<std::uint32_t>(KvDtype::f32))
    return snapshot_error(
        ErrorCode::wrong_numerics,
        "versions 1 and 2 store keys and values as f32; this engine uses a smaller kv dtype");
  return read_original_snapshot(bytes, version, config, shape, {pool, std::move(owner)}, context);
}

}  // namespace moeflux
