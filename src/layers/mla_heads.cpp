#include "layers/mla_heads.h"

#include <bit>
#include <cstring>
#include <vector>

#include "base/arithmetic.h"
#include "quant/matrix.h"

namespace moeflux {
namespace {

std::uint32_t padded_rows(std::uint32_t rows) {
  return divide_up(rows, static_cast<std::uint32_t>(tile16::kBlockRows)) * tile16::kBlockRows;
}

// Reserved memory for one matrix per head.
struct Room {
  HugeBuffer memory;
  HeadMatrices matrices;
};
Result<Room> room_for(std::uint32_t heads, std::uint32_t rows, std::uint64_t cols, const Encoding& encoding) {
  const std::uint64_t all_rows = std::uint64_t{heads} * padded_rows(rows);
  MF_TRY(HugeBuffer memory, HugeBuffer::create(tile16::matrix_bytes(encoding, all_rows, cols)));
  const TiledMatrix all{all_rows, cols, encoding, memory.data(), tile16::block_bytes(encoding, cols)};
  return Room{std::move(memory), {all, heads, rows}};
}

// The smallest plain format that holds every number of `encoding` exactly: BF16 for BF16, else F32.
Encoding plain_of(const Encoding& encoding) {
  const auto* plain = std::get_if<PlainFormat>(&encoding);
  return PlainFormat{plain != nullptr && plain->dtype == Dtype::bf16 ? Dtype::bf16 : Dtype::f32};
}

// Copies rows [h * stride + first, h * stride + first + shape.rows) for each head h; each head begins a new
// block.
void gather_heads(const TiledMatrix& from, std::uint64_t stride, std::uint64_t first,
                  const HeadMatrices& shape, std::byte* to) {
  for (std::uint64_t head = 0; head < shape.heads; ++head)
    for (std::uint64_t row = 0; row < shape.rows; ++row)
      tile16::copy_row(from, head * stride + first + row, to, head * padded_rows(shape.rows) + row);
}

// Writes `numbers` as the bytes of the plain format `encoding`, which holds them exactly.
void store_plain(std::span<const float> numbers, const Encoding& encoding, std::vector<std::byte>& bytes) {
  if (encoding == Encoding(PlainFormat{Dtype::f32})) {
    bytes.resize(numbers.size_bytes());
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
    return;
  }
  bytes.resize(numbers.size() * 2);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(numbers[i]) >> 16);
    std::memcpy(bytes.data() + 2 * i, &bits, 2);
  }
}

// Transposes each head's key rows of kv_b.
void transpose_heads(const TiledMatrix& kv_b, const MlaConfig& config, const HeadMatrices& shape,
                     std::byte* to) {
  const std::uint64_t head_rows = config.nope_dim + config.value_dim;
  const std::uint64_t block_bytes = shape.all.block_stride;
  std::vector<float> row(config.latent_dim);
  std::vector<float> transposed(std::size_t{config.latent_dim} * config.nope_dim);  // of one head
  std::vector<std::byte> codes;
  for (std::uint64_t head = 0; head < config.heads; ++head) {
    for (std::uint64_t i = 0; i < config.nope_dim; ++i) {
      tile16::decode_row(kv_b, head * head_rows + i, row);
      for (std::uint64_t c = 0; c < config.latent_dim; ++c) transposed[c * config.nope_dim + i] = row[c];
    }
    store_plain(transposed, shape.all.encoding, codes);
    const MatrixView view{config.latent_dim, config.nope_dim, shape.all.encoding, codes, {}, {}};
    for (std::uint64_t first = 0; first < config.latent_dim; first += tile16::kBlockRows, to += block_bytes)
      tile16::encode_block(view, first, {to, block_bytes});
  }
}

}  // namespace

Result<MlaHeads> MlaHeads::create(const MlaConfig& config, const Weights& weights) {
  MlaHeads heads(config);
  heads.is_cut_ = weights.has("self_attn.embed_q");
  heads.keys_ = weights.matrix(heads.is_cut_ ? "self_attn.embed_q" : "self_attn.kv_b_proj");
  heads.values_ = weights.matrix(heads.is_cut_ ? "self_attn.unembed_out" : "self_attn.kv_b_proj");
  const Encoding embed = heads.is_cut_ ? heads.keys_.encoding : plain_of(heads.keys_.encoding);
  MF_TRY(Room to_latent, room_for(config.heads, config.latent_dim, config.nope_dim, embed));
  MF_TRY(Room to_values, room_for(config.heads, config.value_dim, config.latent_dim, heads.values_.encoding));
  heads.embed_memory_ = std::move(to_latent.memory);
  heads.embed_ = to_latent.matrices;
  heads.unembed_memory_ = std::move(to_values.memory);
  heads.unembed_ = to_values.matrices;
  return heads;
}

void MlaHeads::derive() {
  if (is_cut_) {
    gather_heads(keys_, config_.latent_dim, 0, embed_, embed_memory_.data());
    gather_heads(values_, config_.value_dim, 0, unembed_, unembed_memory_.data());
    return;
  }
  transpose_heads(keys_, config_, embed_, embed_memory_.data());
  gather_heads(values_, std::uint64_t{config_.nope_dim} + config_.value_dim, config_.nope_dim, unembed_,
               unembed_memory_.data());
}

}  // namespace moeflux
