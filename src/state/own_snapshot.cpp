#include "state/own_snapshot.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "state/snapshot_parts.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kLeastBytes = kSnapshotHeaderBytes + kSnapshotChecksumBytes;

// What the header says, unchecked.
struct Header {
  std::uint64_t size = 0;
  SnapshotIdentity identity;
  std::uint32_t layers = 0, position = 0, tokens_begin = 0, last_word = 0;

  std::uint32_t tokens() const { return position - tokens_begin; }
};

// Takes the rest of the header. Requires: the file has kLeastBytes.
Result<Header> take_header(PieceReader& in) {
  Header header;
  MF_TRY(header.size, in.take_word<std::uint64_t>());
  MF_TRY_STATUS(in.take(std::as_writable_bytes(std::span(header.identity.fingerprint.bytes))));
  for (std::uint32_t* const word :
       {&header.identity.law, &header.identity.precision, &header.identity.experts_per_token,
        &header.identity.kv_dtype, &header.layers, &header.position, &header.tokens_begin,
        &header.last_word}) {
    MF_TRY(*word, in.take_word<std::uint32_t>());
  }
  return header;
}

Status check_identity(const SnapshotIdentity& found, const SnapshotIdentity& expected) {
  if (found.fingerprint != expected.fingerprint)
    return snapshot_error(ErrorCode::wrong_model, "it belongs to another model: the fingerprints differ");
  if (found == expected) return {};
  return snapshot_error(
      ErrorCode::wrong_numerics,
      fmt::format(
          "arithmetic: expected law {}, precision {}, {} experts per token, kv dtype {}; found law {}, "
          "precision {}, {} experts per token, kv dtype {}",
          expected.law, expected.precision, expected.experts_per_token, expected.kv_dtype, found.law,
          found.precision, found.experts_per_token, found.kv_dtype));
}

Status check_positions(const Header& header, std::uint32_t context) {
  if (header.position > context)
    return snapshot_error(
        ErrorCode::length_overflow,
        fmt::format("position {} is beyond the context of {} positions", header.position, context));
  if (header.tokens_begin > header.position)
    return snapshot_error(ErrorCode::shape_mismatch,
                          fmt::format("first known token: expected at most position {}, found {}",
                                      header.position, header.tokens_begin));
  if (header.last_word != 0)
    return snapshot_error(ErrorCode::shape_mismatch,
                          fmt::format("word at byte 60: expected 0, found {}", header.last_word));
  return {};
}

Status check_size(const Header& header, const StateShape& shape, std::uint64_t file_bytes) {
  std::uint64_t need = kSnapshotHeaderBytes + std::uint64_t{header.tokens()} * sizeof(std::uint32_t);
  for (std::size_t layer = 0; layer < shape.kv.size(); ++layer) {
    need += layer_bytes(shape, layer, header.position);
    if (need > file_bytes - kSnapshotChecksumBytes)
      return snapshot_error(ErrorCode::truncated,
                            fmt::format("layer {}: expected data up to byte {}, found {} bytes", layer, need,
                                        file_bytes - kSnapshotChecksumBytes));
  }
  need += kSnapshotChecksumBytes;
  if (header.size != need || file_bytes != need)
    return snapshot_error(
        ErrorCode::trailing_bytes,
        fmt::format("expected {} bytes, found {}; its header says {}", need, file_bytes, header.size));
  return {};
}

Result<std::vector<TokenId>> take_tokens(PieceReader& in, const Header& header, std::uint32_t vocabulary) {
  std::vector<TokenId> tokens;
  tokens.reserve(header.tokens());
  for (std::uint32_t i = header.tokens_begin; i < header.position; ++i) {
    MF_TRY(const auto token, in.take_word<std::uint32_t>());
    if (token >= vocabulary)
      return snapshot_error(
          ErrorCode::token_out_of_range,
          fmt::format("token at position {}: expected an id below {}, found {}", i, vocabulary, token));
    tokens.emplace_back(token);
  }
  return tokens;
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

}  // namespace

Result<Snapshot> read_own_snapshot(PieceReader& in, std::uint64_t file_bytes, const StateShape& shape,
                                   const SnapshotDestination& to) {
  if (file_bytes < kLeastBytes)
    return snapshot_error(ErrorCode::buffer_too_small,
                          fmt::format("expected at least {} bytes, found {}", kLeastBytes, file_bytes));
  MF_TRY(const Header header, take_header(in));
  MF_TRY_STATUS(check_identity(header.identity, to.identity));
  if (header.layers != shape.kv.size())
    return shape_mismatch("the number of layers", header.layers, static_cast<std::int64_t>(shape.kv.size()));
  MF_TRY_STATUS(check_positions(header, to.context));
  MF_TRY_STATUS(check_size(header, shape, file_bytes));

  Result<std::vector<TokenId>> tokens = take_tokens(in, header, to.config.vocabulary);
  if (!tokens) {
    if (tokens.error().code() == ErrorCode::token_out_of_range) MF_TRY_STATUS(check_checksum(in));
    return std::move(tokens).error();
  }
  MF_TRY(const auto contents, empty_contents(shape, {to.pool, to.owner}, header.position));
  contents->tokens_begin = header.tokens_begin;
  contents->tokens = *std::move(tokens);
  for (std::size_t layer = 0; layer < shape.kv.size(); ++layer) {
    const KvShape& kv = shape.kv[layer];
    MF_TRY_STATUS(take_rows(in, contents->blocks[layer], keys_of(kv), header.position));
    MF_TRY_STATUS(take_rows(in, contents->blocks[layer], values_of(kv), header.position));
    if (contents->recurrent)
      MF_TRY_STATUS(take_recurrent(in, shape.recurrent[layer], contents->recurrent.data()));
  }
  MF_TRY_STATUS(check_checksum(in));
  return Snapshot(contents);
}

}  // namespace moeflux
