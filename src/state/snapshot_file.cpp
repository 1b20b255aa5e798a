#include "state/snapshot_file.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/check.h"
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

std::vector<std::uint32_t> positions_of(std::span<const Snapshot> snapshots) {
  std::vector<std::uint32_t> positions;
  for (const Snapshot& snapshot : snapshots) positions.push_back(snapshot.position());
  return positions;
}

Status put_header(Writer& writer, const StateShape& shape, const SnapshotIdentity& identity,
                  const SavedSession& session) {
  const Snapshot& snapshot = session.snapshot;
  for (const std::uint32_t word : {kSnapshotMagic, kSnapshotVersion}) MF_TRY_STATUS(writer.put_word(word));
  MF_TRY_STATUS(writer.put_word(snapshot_bytes(shape, session)));
  MF_TRY_STATUS(writer.put(std::as_bytes(std::span(identity.fingerprint.bytes))));
  for (const std::uint32_t word :
       {identity.law, identity.precision, identity.experts_per_token, identity.kv_dtype,
        static_cast<std::uint32_t>(shape.kv.size()), snapshot.position(), snapshot.tokens_begin(),
        static_cast<std::uint32_t>(session.checkpoints.size())})
    MF_TRY_STATUS(writer.put_word(word));
  for (const Snapshot& checkpoint : session.checkpoints)
    MF_TRY_STATUS(writer.put_word(checkpoint.position()));
  for (const TokenId token : snapshot.tokens()) MF_TRY_STATUS(writer.put_word(token.index()));
  return {};
}

// A file whose magic number and version have been taken.
struct BegunFile {
  std::uint64_t bytes;
  PieceReader in;
  std::uint32_t version;  // 1 to 4

  OwnSnapshotFile own() { return {in, bytes, version}; }
};
Result<BegunFile> begin_file(const ReadFile& file) {
  constexpr std::uint64_t kPrefixBytes = 2 * sizeof(std::uint32_t);
  MF_TRY(const std::uint64_t bytes, file.size());
  if (bytes < kPrefixBytes)
    return snapshot_error(ErrorCode::buffer_too_small,
                          fmt::format("expected at least {} bytes, found {}", kPrefixBytes, bytes));
  PieceReader in(file, 0, bytes);
  MF_TRY(const auto magic, in.take_word<std::uint32_t>());
  MF_TRY(const auto version, in.take_word<std::uint32_t>());
  if (magic != kSnapshotMagic)
    return snapshot_error(ErrorCode::bad_magic,
                          fmt::format("magic number: expected {:08x}, found {:08x}", kSnapshotMagic, magic));
  if (version < 1 || version > 4)
    return snapshot_error(ErrorCode::bad_version, fmt::format("version: expected 1 to 4, found {}", version));
  return BegunFile{bytes, std::move(in), version};
}
bool is_own(std::uint32_t version) { return version >= 3; }

}  // namespace

SavedSession session_to_save(const StateShape& shape, Snapshot snapshot, std::vector<Snapshot> checkpoints) {
  std::erase_if(checkpoints,
                [&](const Snapshot& checkpoint) { return !is_on_timeline(shape, checkpoint, snapshot); });
  if (checkpoints.size() > kMostSavedCheckpoints)
    checkpoints.erase(checkpoints.begin() + kMostSavedCheckpoints, checkpoints.end());
  return {std::move(snapshot), std::move(checkpoints)};
}

std::uint64_t snapshot_bytes(const StateShape& shape, std::uint32_t position, std::uint32_t tokens,
                             std::span<const std::uint32_t> checkpoints) {
  std::uint64_t size = kSnapshotHeaderBytes + kSnapshotChecksumBytes +
                       (std::uint64_t{tokens} + checkpoints.size()) * sizeof(std::uint32_t);
  for (std::size_t layer = 0; layer < shape.kv.size(); ++layer) size += layer_bytes(shape, layer, position);
  for (const std::uint32_t checkpoint : checkpoints)
    if (has_own_states(checkpoint, position)) size += shape.recurrent_bytes();
  return size;
}

std::uint64_t snapshot_bytes(const StateShape& shape, const SavedSession& session) {
  return snapshot_bytes(shape, session.snapshot.position(),
                        static_cast<std::uint32_t>(session.snapshot.tokens().size()),
                        positions_of(session.checkpoints));
}

Status write_snapshot(const StateShape& shape, const SnapshotIdentity& identity, const SavedSession& session,
                      SnapshotSink sink) {
  MF_REQUIRE(session.checkpoints.size() <= kMostSavedCheckpoints, "a file can hold the checkpoints");
  Writer writer(sink);
  const std::uint32_t position = session.snapshot.position();
  MF_TRY_STATUS(put_header(writer, shape, identity, session));
  // Nothing writes to its pages, so they take no memory.
  MF_TRY(const HugeBuffer zeros, HugeBuffer::create(shape.recurrent_bytes()));
  const auto states_of = [&](const Snapshot::Contents& contents) {
    return contents.recurrent ? contents.recurrent.data() : reinterpret_cast<const float*>(zeros.data());
  };
  const Snapshot::Contents& contents = session.snapshot.contents();
  for (std::size_t layer = 0; layer < shape.kv.size(); ++layer) {
    const KvShape& kv = shape.kv[layer];
    MF_TRY_STATUS(put_rows(writer, contents.blocks[layer], keys_of(kv), position));
    MF_TRY_STATUS(put_rows(writer, contents.blocks[layer], values_of(kv), position));
    MF_TRY_STATUS(put_recurrent(writer, shape.recurrent[layer], states_of(contents)));
  }
  for (const Snapshot& checkpoint : session.checkpoints) {
    if (!has_own_states(checkpoint.position(), position)) continue;
    for (const RecurrentShape& layer : shape.recurrent)
      MF_TRY_STATUS(put_recurrent(writer, layer, states_of(checkpoint.contents())));
  }
  return writer.finish();
}

Result<SavedSession> read_snapshot(const ReadFile& file, const SnapshotDestination& to) {
  const StateShape shape = state_shape_of(to.config, static_cast<KvDtype>(to.identity.kv_dtype));
  std::uint64_t bytes = 0;
  std::uint32_t version = 0;
  {  // the reader of the original's files has its own piece
    MF_TRY(BegunFile begun, begin_file(file));
    if (is_own(begun.version)) return read_own_snapshot(begun.own(), shape, to);
    bytes = begun.bytes;
    version = begun.version;
  }
  if (to.identity.kv_dtype != static_cast<std::uint32_t>(KvDtype::f32))
    return snapshot_error(
        ErrorCode::wrong_numerics,
        "versions 1 and 2 store keys and values as f32; this engine uses a smaller kv dtype");
  MF_TRY(Snapshot snapshot,
         read_original_snapshot(file, bytes, version, to.config, shape, {to.pool, to.owner}, to.context));
  return SavedSession{std::move(snapshot)};
}

Result<SavedSession> read_snapshot(std::span<const std::byte> bytes, const SnapshotDestination& to) {
  return read_snapshot(MemoryFile(bytes), to);
}

Result<SnapshotTokens> read_snapshot_tokens(const ReadFile& file, const ModelConfig& config,
                                            const Digest& fingerprint, std::uint32_t context) {
  MF_TRY(BegunFile begun, begin_file(file));
  if (is_own(begun.version)) return read_own_tokens(begun.own(), config, fingerprint, context);
  return snapshot_error(ErrorCode::tokens_unknown,
                        fmt::format("a file of version {} has no tokens", begun.version));
}

}  // namespace moeflux
