#include "layers/mla_heads.h"

#include <utility>

#include "base/arithmetic.h"

namespace moeflux {
namespace {

constexpr std::uint64_t blocks_of_head(std::uint64_t rows) { return divide_up(rows, tile16::kBlockRows); }

}  // namespace

Result<MlaHeads::Part> MlaHeads::Part::create(const TiledMatrix& from, std::uint32_t heads,
                                              std::uint64_t stride, std::uint64_t first, std::uint32_t rows) {
  Part part;
  part.from = from;
  part.stride = stride;
  part.first = first;
  TiledMatrix head = from;
  head.rows = rows;
  if (stride % tile16::kBlockRows == 0 && first % tile16::kBlockRows == 0 && rows % tile16::kBlockRows == 0) {
    head.first_block += first / tile16::kBlockRows * from.block_stride;
    part.matrices = {head, heads, stride / tile16::kBlockRows * from.block_stride};
    return part;
  }
  head.block_stride = tile16::block_bytes(from.encoding, from.cols);
  const std::uint64_t head_bytes = blocks_of_head(rows) * head.block_stride;
  MF_TRY(part.memory, HugeBuffer::create(heads * head_bytes));
  head.first_block = part.memory.data();
  part.matrices = {head, heads, head_bytes};
  return part;
}

void MlaHeads::Part::derive() {
  if (memory.size() == 0) return;
  const std::uint64_t rows = matrices.first.rows;
  for (std::uint64_t head = 0; head < matrices.heads; ++head)
    for (std::uint64_t row = 0; row < rows; ++row)
      tile16::copy_row(from, head * stride + first + row, memory.data(),
                       head * blocks_of_head(rows) * tile16::kBlockRows + row);
}

Result<MlaHeads> MlaHeads::create(const MlaConfig& config, const Weights& weights) {
  MlaHeads heads;
  if (weights.has("self_attn.embed_q")) {
    MF_TRY(heads.embed_, Part::create(weights.matrix("self_attn.embed_q"), config.heads, config.latent_dim, 0,
                                      config.latent_dim));
    MF_TRY(heads.unembed_, Part::create(weights.matrix("self_attn.unembed_out"), config.heads,
                                        config.value_dim, 0, config.value_dim));
    return heads;
  }
  const TiledMatrix kv_b = weights.matrix("self_attn.kv_b_proj");
  const std::uint64_t stride = std::uint64_t{config.nope_dim} + config.value_dim;
  heads.is_transposed_ = true;
  MF_TRY(heads.embed_, Part::create(kv_b, config.heads, stride, 0, config.nope_dim));
  MF_TRY(heads.unembed_, Part::create(kv_b, config.heads, stride, config.nope_dim, config.value_dim));
  return heads;
}

void MlaHeads::derive() {
  embed_.derive();
  unembed_.derive();
}

void MlaHeads::embed(Ops& ops, const Heads& x, const Heads& y) const {
  if (is_transposed_)
    ops.head_matmul_transposed(embed_.matrices, x, y);
  else
    ops.head_matmul(embed_.matrices, x, y);
}

void MlaHeads::unembed(Ops& ops, const Heads& x, const Heads& y) const {
  ops.head_matmul(unembed_.matrices, x, y);
}

}  // namespace moeflux
