#include "state/snapshot_file.h"

#include <fmt/format.h>

#include <optional>
#include <vector>

#include "base/memory/aligned_buffer.h"
#include "io/memory_file.h"
#include "state/original_snapshot.h"
#include "state/own_snapshot.h"
#include "state/piece_reader.h"
#include "state/snapshot_parts.h"

namespace moeflux {
namespace {

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

}  // namespace

std::uint64_t snapshot_bytes(const StateShape& shape, std::uint64_t position, std::uint64_t tokens) {
  std::uint64_t size = kSnapshotHeaderBytes + tokens * sizeof(std::uint32_t) + kSnapshotChecksumBytes;
  for (std::size_t layer = 0; layer < shape.kv.size(); ++layer) size += layer_bytes(shape, layer, position);
  return size;
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

Result<Snapshot> read_snapshot(const ReadFile& file, const SnapshotDestination& to) {
  constexpr std::uint64_t kPrefixBytes = 2 * sizeof(std::uint32_t);
  MF_TRY(const std::uint64_t file_bytes, file.size());
  if (file_bytes < kPrefixBytes)
    return snapshot_error(ErrorCode::buffer_too_small,
                          fmt::format("expected at least {} bytes, found {}", kPrefixBytes, file_bytes));
  std::optional<PieceReader> in(std::in_place, file, 0, file_bytes);
  MF_TRY(const auto magic, in->take_word<std::uint32_t>());
  MF_TRY(const auto version, in->take_word<std::uint32_t>());
  if (magic != kSnapshotMagic)
    return snapshot_error(ErrorCode::bad_magic,
                          fmt::format("magic number: expected {:08x}, found {:08x}", kSnapshotMagic, magic));
  const StateShape shape = state_shape_of(to.config, static_cast<KvDtype>(to.identity.kv_dtype));
  if (version == kSnapshotVersion) return read_own_snapshot(*in, file_bytes, shape, to);
  if (version != 1 && version != 2)
    return snapshot_error(ErrorCode::bad_version,
                          fmt::format("version: expected 1, 2 or 3, found {}", version));
  if (to.identity.kv_dtype != static_cast<std::uint32_t>(KvDtype::f32))
    return snapshot_error(
        ErrorCode::wrong_numerics,
        "versions 1 and 2 store keys and values as f32; this engine uses a smaller kv dtype");
  in.reset();  // the other reader has its own piece
  return read_original_snapshot(file, file_bytes, version, to.config, shape, {to.pool, to.owner}, to.context);
}

Result<Snapshot> read_snapshot(std::span<const std::byte> bytes, const SnapshotDestination& to) {
  return read_snapshot(MemoryFile(bytes), to);
}

}  // namespace moeflux
