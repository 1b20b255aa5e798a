#include "state/own_snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "state/snapshot_parts.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kLeastBytes = kSnapshotHeaderBytes + kSnapshotChecksumBytes;

struct Header {
  std::uint64_t size = 0;
  SnapshotIdentity identity;
  std::uint32_t layers = 0, position = 0, tokens_begin = 0, last_word = 0;
  std::vector<std::uint32_t> checkpoints;  // positions, most recently used first

  std::uint32_t tokens() const { return position - tokens_begin; }
};

// Takes the rest of the header without its checkpoints, and checks the model.
Result<Header> take_header(const OwnSnapshotFile& file, const Digest& fingerprint) {
  if (file.bytes < kLeastBytes)
    return snapshot_error(ErrorCode::buffer_too_small,
                          fmt::format("expected at least {} bytes, found {}", kLeastBytes, file.bytes));
  PieceReader& in = file.in;
  Header header;
  MF_TRY(header.size, in.take_word<std::uint64_t>());
  MF_TRY_STATUS(in.take(std::as_writable_bytes(std::span(header.identity.fingerprint.bytes))));
  for (std::uint32_t* const word :
       {&header.identity.law, &header.identity.precision, &header.identity.experts_per_token,
        &header.identity.kv_dtype, &header.layers, &header.position, &header.tokens_begin,
        &header.last_word}) {
    MF_TRY(*word, in.take_word<std::uint32_t>());
  }
  if (header.identity.fingerprint != fingerprint)
    return snapshot_error(ErrorCode::wrong_model, "it belongs to another model: the fingerprints differ");
  return header;
}

// What the user of a file of another arithmetic can do.
std::string advice_for(const Header& header, const SnapshotIdentity& expected) {
  std::string options = header.identity.law == expected.law ? "open the model with the file's options" : "";
  if (header.tokens_begin != 0)
    return options.empty() ? fmt::format(
                                 "its tokens before position {} are unknown, so only the version of "
                                 "moeflux that wrote it can use it",
                                 header.tokens_begin)
                           : options;
  return fmt::format("{}{}run its {} tokens again, as /load of 'moeflux chat' does", options,
                     options.empty() ? "" : ", or ", header.position);
}

Status check_numerics(const Header& header, const SnapshotIdentity& expected) {
  const SnapshotIdentity& found = header.identity;
  if (found == expected) return {};
  return snapshot_error(
      ErrorCode::wrong_numerics,
      fmt::format(
          "arithmetic: expected law {}, precision {}, {} experts per token, kv dtype {}; found law {}, "
          "precision {}, {} experts per token, kv dtype {}; {}",
          expected.law, expected.precision, expected.experts_per_token, expected.kv_dtype, found.law,
          found.precision, found.experts_per_token, found.kv_dtype, advice_for(header, expected)));
}

// Whether the part of the file that ends at `end` is there.
Status check_end(std::string_view part, std::uint64_t end, std::uint64_t file_bytes) {
  const std::uint64_t found = file_bytes - kSnapshotChecksumBytes;
  if (end <= found) return {};
  return snapshot_error(ErrorCode::truncated,
                        fmt::format("{}: expected data up to byte {}, found {} bytes", part, end, found));
}

Status check_positions(const Header& header, std::size_t layers, std::uint32_t context) {
  if (header.layers != layers)
    return shape_mismatch("the number of layers", header.layers, static_cast<std::int64_t>(layers));
  if (header.position > context)
    return snapshot_error(
        ErrorCode::length_overflow,
        fmt::format("position {} is beyond the context of {} positions", header.position, context));
  if (header.tokens_begin > header.position)
    return snapshot_error(ErrorCode::shape_mismatch,
                          fmt::format("first known token: expected at most position {}, found {}",
                                      header.position, header.tokens_begin));
  return {};
}

// Takes the positions of the checkpoints and checks them. Requires: the positions of `header` are checked.
Status take_checkpoints(const OwnSnapshotFile& file, Header& header) {
  const std::uint32_t count = header.last_word;
  if (file.version == 3 && count != 0)
    return snapshot_error(ErrorCode::shape_mismatch,
                          fmt::format("word at byte 60: expected 0, found {}", count));
  if (count > kMostSavedCheckpoints)
    return snapshot_error(ErrorCode::shape_mismatch,
                          fmt::format("the number of checkpoints: expected at most {}, found {}",
                                      kMostSavedCheckpoints, count));
  const std::uint64_t end = kSnapshotHeaderBytes + std::uint64_t{count} * sizeof(std::uint32_t);
  MF_TRY_STATUS(check_end("the positions of checkpoints", end, file.bytes));
  for (std::uint32_t i = 0; i < count; ++i) {
    MF_TRY(const auto position, file.in.take_word<std::uint32_t>());
    if (position < header.tokens_begin || position > header.position)
      return snapshot_error(ErrorCode::shape_mismatch,
                            fmt::format("checkpoint {}: expected a position from {} to {}, found {}", i,
                                        header.tokens_begin, header.position, position));
    if (std::ranges::find(header.checkpoints, position) != header.checkpoints.end())
      return snapshot_error(ErrorCode::shape_mismatch,
                            fmt::format("checkpoint {}: another one has its position, {}", i, position));
    header.checkpoints.push_back(position);
  }
  return {};
}

std::uint64_t end_of_tokens(const Header& header) {
  return kSnapshotHeaderBytes +
         (std::uint64_t{header.tokens()} + header.checkpoints.size()) * sizeof(std::uint32_t);
}

Status check_size(const Header& header, const StateShape& shape, std::uint64_t file_bytes) {
  std::uint64_t need = end_of_tokens(header);
  for (std::size_t layer = 0; layer < shape.kv.size(); ++layer) {
    need += layer_bytes(shape, layer, header.position);
    MF_TRY_STATUS(check_end(fmt::format("layer {}", layer), need, file_bytes));
  }
  for (const std::uint32_t checkpoint : header.checkpoints) {
    if (has_own_states(checkpoint, header.position)) need += shape.recurrent_bytes();
    MF_TRY_STATUS(check_end(fmt::format("checkpoint at position {}", checkpoint), need, file_bytes));
  }
  need += kSnapshotChecksumBytes;
  if (header.size != need || file_bytes != need)
    return snapshot_error(
        ErrorCode::trailing_bytes,
        fmt::format("expected {} bytes, found {}; its header says {}", need, file_bytes, header.size));
  return {};
}

// Takes what is left up to the checksum, and the checksum.
Status check_checksum(PieceReader& in) {
  MF_TRY_STATUS(in.skip(in.left() - kSnapshotChecksumBytes));
  const std::uint64_t expected = in.checksum();
  MF_TRY(const auto found, in.take_word<std::uint64_t>());
  if (found == expected) return {};
  return snapshot_error(
      ErrorCode::bad_checksum,
      fmt::format("checksum: expected {:016x}, found {:016x}: the file is damaged", expected, found));
}

// Takes the tokens. The error for a wrong one in a damaged file is bad_checksum.
Result<std::vector<TokenId>> take_tokens(PieceReader& in, const Header& header, std::uint32_t vocabulary) {
  std::vector<TokenId> tokens;
  tokens.reserve(header.tokens());
  for (std::uint32_t i = header.tokens_begin; i < header.position; ++i) {
    MF_TRY(const auto token, in.take_word<std::uint32_t>());
    if (token >= vocabulary) {
      MF_TRY_STATUS(check_checksum(in));
      return snapshot_error(
          ErrorCode::token_out_of_range,
          fmt::format("token at position {}: expected an id below {}, found {}", i, vocabulary, token));
    }
    tokens.emplace_back(token);
  }
  return tokens;
}

// Reads a recurrent state, [value_heads][key][value] in the file. In memory the values of a key are split
// into strips.
Status take_recurrent(PieceReader& in, const RecurrentShape& shape, float* recurrent) {
  if (shape.value_heads == 0) return {};
  MF_TRY_STATUS(take_floats(in, {recurrent + shape.conv_offset, shape.conv_size}));
  const DeltaStateShape& head = shape.delta_head;
  float* state = recurrent + shape.delta_offset;
  for (std::size_t h = 0; h < shape.value_heads; ++h, state += head.size())
    for (std::size_t key = 0; key < head.key_dim; ++key)
      for (std::size_t value = 0; value < head.value_dim; value += kDeltaStrip)
        MF_TRY_STATUS(
            take_floats(in, {state + head.place(key, value), delta_strip_size(head.value_dim, value)}));
  return {};
}

// Takes the tokens and the layers.
Result<Snapshot> take_snapshot(PieceReader& in, const Header& header, const StateShape& shape,
                               const SnapshotDestination& to) {
  MF_TRY(std::vector<TokenId> tokens, take_tokens(in, header, to.config.vocabulary));
  MF_TRY(const auto contents, empty_contents(shape, {to.pool, to.owner}, header.position));
  contents->tokens_begin = header.tokens_begin;
  contents->tokens = std::move(tokens);
  for (std::size_t layer = 0; layer < shape.kv.size(); ++layer) {
    const KvShape& kv = shape.kv[layer];
    MF_TRY_STATUS(take_rows(in, contents->blocks[layer], keys_of(kv), header.position));
    MF_TRY_STATUS(take_rows(in, contents->blocks[layer], values_of(kv), header.position));
    if (contents->recurrent)
      MF_TRY_STATUS(take_recurrent(in, shape.recurrent[layer], contents->recurrent.data()));
  }
  return Snapshot(contents);
}

// Takes the recurrent states of a checkpoint into a new block. Returns nullopt, and has taken them, if the
// pool has no room for it.
Result<std::optional<BlockRef>> take_states(PieceReader& in, const StateShape& shape, BlockPool& pool) {
  if (shape.recurrent_size == 0) return std::optional(BlockRef());
  Result<BlockRef> block = pool.acquire(shape.recurrent_bytes());
  if (!block) {
    if (block.error().code() != ErrorCode::out_of_memory) return std::move(block).error();
    MF_TRY_STATUS(in.skip(shape.recurrent_bytes()));
    return std::optional<BlockRef>();
  }
  for (const RecurrentShape& layer : shape.recurrent) MF_TRY_STATUS(take_recurrent(in, layer, block->data()));
  return std::optional(*std::move(block));
}

// Takes the recurrent states of all checkpoints, of which it returns the first to.most_checkpoints.
Result<std::vector<Snapshot>> take_checkpoint_states(PieceReader& in, const Header& header,
                                                     const Snapshot& snapshot, const StateShape& shape,
                                                     const SnapshotDestination& to) {
  std::vector<Snapshot> checkpoints;
  std::size_t with_states = 0;
  for (const std::uint32_t position : header.checkpoints) {
    if (position == header.position) {
      checkpoints.push_back(snapshot);
    } else if (position == 0) {
      checkpoints.push_back(earlier_snapshot(snapshot, 0, {}));
    } else if (with_states == to.most_checkpoints) {
      MF_TRY_STATUS(in.skip(shape.recurrent_bytes()));
    } else {
      MF_TRY(std::optional<BlockRef> states, take_states(in, shape, to.pool));
      if (!states) continue;
      checkpoints.push_back(earlier_snapshot(snapshot, position, *std::move(states)));
      ++with_states;
    }
  }
  return checkpoints;
}

}  // namespace

Result<SavedSession> read_own_snapshot(const OwnSnapshotFile& file, const StateShape& shape,
                                       const SnapshotDestination& to) {
  MF_TRY(Header header, take_header(file, to.identity.fingerprint));
  MF_TRY_STATUS(check_numerics(header, to.identity));
  MF_TRY_STATUS(check_positions(header, shape.kv.size(), to.context));
  MF_TRY_STATUS(take_checkpoints(file, header));
  MF_TRY_STATUS(check_size(header, shape, file.bytes));
  MF_TRY(Snapshot snapshot, take_snapshot(file.in, header, shape, to));
  MF_TRY(std::vector<Snapshot> checkpoints, take_checkpoint_states(file.in, header, snapshot, shape, to));
  MF_TRY_STATUS(check_checksum(file.in));
  return SavedSession{std::move(snapshot), std::move(checkpoints)};
}

Result<SnapshotTokens> read_own_tokens(const OwnSnapshotFile& file, const ModelConfig& config,
                                       const Digest& fingerprint, std::uint32_t context) {
  MF_TRY(Header header, take_header(file, fingerprint));
  MF_TRY_STATUS(check_positions(header, config.layers.size(), context));
  if (header.tokens_begin != 0)
    return snapshot_error(ErrorCode::tokens_unknown,
                          fmt::format("its tokens before position {} are unknown", header.tokens_begin));
  MF_TRY_STATUS(take_checkpoints(file, header));
  MF_TRY_STATUS(check_end("the tokens", end_of_tokens(header), file.bytes));
  // The size of the state depends on the KV dtype of the file.
  if (header.size != file.bytes)
    return snapshot_error(
        header.size > file.bytes ? ErrorCode::truncated : ErrorCode::trailing_bytes,
        fmt::format("expected {} bytes, as its header says, found {}", header.size, file.bytes));
  MF_TRY(std::vector<TokenId> tokens, take_tokens(file.in, header, config.vocabulary));
  MF_TRY_STATUS(check_checksum(file.in));
  return SnapshotTokens{header.identity, std::move(tokens), std::move(header.checkpoints)};
}

}  // namespace moeflux
