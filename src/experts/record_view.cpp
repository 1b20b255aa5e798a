#include "experts/record_view.h"

#include "base/check.h"

namespace moeflux {

ExpertView view_of(const ExpertFormat& format, std::span<const std::byte> record) {
  const RecordLayout layout = record_layout(format);
  MF_REQUIRE(record.size() == layout.record_bytes, "the record is whole");
  const std::uint64_t pair = layout.gate_block_bytes + layout.up_block_bytes;
  const std::byte* const first = record.data();
  const auto tiled = [](const MatrixFormat& matrix, const std::byte* at, std::uint64_t stride) {
    return tile16::TiledMatrix{matrix.rows, matrix.cols, matrix.encoding, at, stride};
  };
  return {tiled(format.gate, first, pair), tiled(format.up, first + layout.gate_block_bytes, pair),
          tiled(format.down, first + layout.down_offset,
                tile16::block_bytes(format.down.encoding, format.down.cols))};
}

}  // namespace moeflux
