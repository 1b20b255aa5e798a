#include "state/snapshot_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace moeflux {
namespace {

// Words per position of a layer's keys and values.
std::uint64_t row_words(const KvShape& shape) {
  return std::uint64_t{shape.heads} * (shape.key_row_words() + shape.value_row_words());
}

}  // namespace

KvPart keys_of(const KvShape& shape) { return {&KvBlock::keys, shape.heads, shape.key_row_words()}; }
KvPart values_of(const KvShape& shape) { return {&KvBlock::values, shape.heads, shape.value_row_words()}; }

std::uint64_t layer_bytes(const StateShape& shape, std::size_t layer, std::uint64_t positions) {
  const RecurrentShape& recurrent = shape.recurrent[layer];
  return (positions * row_words(shape.kv[layer]) + recurrent.conv_size + recurrent.delta_size()) *
         sizeof(float);
}

Status take_floats(PieceReader& in, std::span<float> out) { return in.take(std::as_writable_bytes(out)); }

Status take_rows(PieceReader& in, std::span<const KvBlock> blocks, const KvPart& part,
                 std::uint32_t positions) {
  if (part.bytes(1) == 0) return {};
  for (std::uint32_t position = 0; position < positions; ++position)
    for (std::size_t head = 0; head < part.heads; ++head)
      MF_TRY_STATUS(take_floats(in, {part.row(blocks, position, head), part.words}));
  return {};
}

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

Error snapshot_error(ErrorCode code, std::string message) {
  return Error(code, "snapshot: " + std::move(message));
}

Error shape_mismatch(std::string_view field, std::int64_t found, std::int64_t expected) {
  return snapshot_error(ErrorCode::shape_mismatch,
                        fmt::format("{}: expected {} (from the model), found {}", field, expected, found));
}

}  // namespace moeflux
