#include "layers/mla.h"

#include <bit>
#include <cstring>
#include <vector>

#include "base/arithmetic.h"
#include "layers/rope.h"
#include "quant/matrix.h"

namespace moeflux {
namespace {

std::uint32_t padded_rows(std::uint32_t rows) {
  return divide_up(rows, static_cast<std::uint32_t>(tile16::kBlockRows)) * tile16::kBlockRows;
}

HeadMatrices head_matrices(const HugeBuffer& memory, std::uint32_t heads, std::uint32_t rows,
                           std::uint64_t cols, const Encoding& encoding) {
  const TiledMatrix all{std::uint64_t{heads} * padded_rows(rows), cols, encoding, memory.data(),
                        tile16::block_bytes(encoding, cols)};
  return {all, heads, rows};
}

// The plain format that holds every number of such a matrix.
Encoding plain_of(const Encoding& encoding) {
  const auto* plain = std::get_if<PlainFormat>(&encoding);
  return PlainFormat{plain != nullptr && plain->dtype == Dtype::bf16 ? Dtype::bf16 : Dtype::f32};
}

// The rows [h * stride + first, + count) of each head h, each head at a block of its own.
Result<HugeBuffer> gather_heads(const TiledMatrix& from, std::uint32_t heads, std::uint64_t stride,
                                std::uint64_t first, std::uint32_t count) {
  const std::uint64_t padded = padded_rows(count);
  MF_TRY(HugeBuffer memory,
         HugeBuffer::create(tile16::matrix_bytes(from.encoding, heads * padded, from.cols)));
  for (std::uint64_t head = 0; head < heads; ++head)
    for (std::uint64_t row = 0; row < count; ++row)
      tile16::copy_row(from, head * stride + first + row, memory.data(), head * padded + row);
  return memory;
}

// kv_b's key rows of each head, transposed.
Result<HugeBuffer> transpose_heads(const TiledMatrix& kv_b, const MlaConfig& config) {
  const std::uint64_t head_rows = config.nope_dim + config.value_dim;
  const Encoding encoding = plain_of(kv_b.encoding);
  const std::uint64_t block_bytes = tile16::block_bytes(encoding, config.nope_dim);
  const std::uint64_t head_blocks = padded_rows(config.latent_dim) / tile16::kBlockRows;
  MF_TRY(HugeBuffer memory, HugeBuffer::create(config.heads * head_blocks * block_bytes));
  std::vector<float> row(config.latent_dim);
  std::vector<float> transposed(std::size_t{config.latent_dim} * config.nope_dim);  // of one head
  for (std::uint64_t head = 0; head < config.heads; ++head) {
    for (std::uint64_t i = 0; i < config.nope_dim; ++i) {
      tile16::decode_row(kv_b, head * head_rows + i, row);
      for (std::uint64_t c = 0; c < config.latent_dim; ++c) transposed[c * config.nope_dim + i] = row[c];
    }
    std::vector<std::byte> codes(transposed.size() * sizeof(float));
    if (encoding == Encoding(PlainFormat{Dtype::f32})) {
      std::memcpy(codes.data(), transposed.data(), codes.size());
    } else {
      codes.resize(transposed.size() * 2);
      for (std::size_t i = 0; i < transposed.size(); ++i) {
        const auto bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(transposed[i]) >> 16);
        std::memcpy(codes.data() + 2 * i, &bits, 2);
      }
    }
    const MatrixView view{config.latent_dim, config.nope_dim, encoding, codes, {}, {}};
    for (std::uint64_t block = 0; block < head_blocks; ++block)
      tile16::encode_block(view, block * tile16::kBlockRows,
                           {memory.data() + (head * head_blocks + block) * block_bytes, block_bytes});
  }
  return memory;
}

}  // namespace

Mla::Mla(const MlaConfig& config, double norm_eps, std::size_t rope, const Weights& weights)
    : config_(config),
      norm_eps_(static_cast<float>(norm_eps)),
      rope_(rope),
      latent_(weights.matrix("self_attn.kv_a_proj_with_mqa")),
      latent_norm_(weights.vector("self_attn.kv_a_layernorm")),
      out_(weights.matrix("self_attn.o_proj")) {
  if (config.query_latent_dim) {
    query_latent_ = {weights.matrix("self_attn.q_a_proj"), weights.vector("self_attn.q_a_layernorm")};
    query_ = weights.matrix("self_attn.q_b_proj");
  } else {
    query_ = weights.matrix("self_attn.q_proj");
  }
}

Result<Mla> Mla::create(const MlaConfig& config, double norm_eps, std::size_t rope, const Weights& weights) {
  Mla mla(config, norm_eps, rope, weights);
  MF_TRY_STATUS(mla.cut_kv_b(weights));
  return mla;
}

Status Mla::cut_kv_b(const Weights& weights) {
  const std::uint32_t heads = config_.heads;
  if (weights.has("self_attn.embed_q")) {  // cut already: only the padding of each head is missing
    const TiledMatrix embed = weights.matrix("self_attn.embed_q");
    const TiledMatrix unembed = weights.matrix("self_attn.unembed_out");
    MF_TRY(embed_memory_, gather_heads(embed, heads, config_.latent_dim, 0, config_.latent_dim));
    MF_TRY(unembed_memory_, gather_heads(unembed, heads, config_.value_dim, 0, config_.value_dim));
    embed_ = head_matrices(embed_memory_, heads, config_.latent_dim, config_.nope_dim, embed.encoding);
    unembed_ = head_matrices(unembed_memory_, heads, config_.value_dim, config_.latent_dim, unembed.encoding);
    return {};
  }
  const TiledMatrix kv_b = weights.matrix("self_attn.kv_b_proj");
  const std::uint64_t head_rows = config_.nope_dim + config_.value_dim;
  MF_TRY(embed_memory_, transpose_heads(kv_b, config_));
  MF_TRY(unembed_memory_, gather_heads(kv_b, heads, head_rows, config_.nope_dim, config_.value_dim));
  embed_ = head_matrices(embed_memory_, heads, config_.latent_dim, config_.nope_dim, plain_of(kv_b.encoding));
  unembed_ = head_matrices(unembed_memory_, heads, config_.value_dim, config_.latent_dim, kv_b.encoding);
  return {};
}

std::uint64_t Mla::owned_bytes(const MlaConfig& config, const Weights& weights) {
  const bool is_cut = weights.has("self_attn.embed_q");
  const Encoding embed = is_cut ? weights.matrix("self_attn.embed_q").encoding
                                : plain_of(weights.matrix("self_attn.kv_b_proj").encoding);
  const Encoding unembed = weights.matrix(is_cut ? "self_attn.unembed_out" : "self_attn.kv_b_proj").encoding;
  const std::uint64_t heads = config.heads;
  return tile16::matrix_bytes(embed, heads * padded_rows(config.latent_dim), config.nope_dim) +
         tile16::matrix_bytes(unembed, heads * padded_rows(config.value_dim), config.latent_dim);
}

void Mla::project_queries(Ops& ops, const Input& x, Rows queries) const {
  if (!query_latent_) return ops.matmul(query_, x, queries);
  const Ops::Scope scope(ops);
  const Rows latent = ops.take(x.x.count, *config_.query_latent_dim);
  ops.matmul(query_latent_->down, x, latent);
  ops.rms_norm(latent, query_latent_->norm, norm_eps_, latent);
  ops.matmul(query_, ops.prepare(latent), queries);
}

void Mla::forward(const Step& step, LayerId layer, const Input& x, Rows y) const {
  Ops& ops = step.ops;
  const Ops::Scope scope(ops);
  const std::uint32_t rows = step.rows, heads = config_.heads;
  const std::uint32_t latent_dim = config_.latent_dim, nope_dim = config_.nope_dim,
                      rope_dim = config_.rope_dim;
  const std::uint32_t key_dim = latent_dim + rope_dim;
  const RopePairs pairs =
      config_.rope.pairing == RopePairing::half_split ? RopePairs::half_split : RopePairs::interleaved;

  const Rows projected = ops.take(rows, config_.query_dim());
  project_queries(ops, x, projected);
  const Heads plain_queries = as_heads(projected, heads, nope_dim + rope_dim);
  const Rows key = ops.take(rows, key_dim);
  ops.matmul(latent_, x, key);
  ops.rms_norm(key.columns(0, latent_dim), latent_norm_, norm_eps_, key.columns(0, latent_dim));
  const Heads keys = as_heads(key, 1, key_dim);
  ops.rope(keys.part(latent_dim, rope_dim), step.rope[rope_], pairs);

  const Heads queries = as_heads(ops.take(rows, heads * key_dim), heads, key_dim);
  ops.head_matmul(embed_, plain_queries.part(0, nope_dim), queries.part(0, latent_dim));
  ops.copy(plain_queries.part(nope_dim, rope_dim), queries.part(latent_dim, rope_dim));
  ops.rope(queries.part(latent_dim, rope_dim), step.rope[rope_], pairs);

  const std::span<const KvSegment> segments = kv_segments(step, layer);
  ops.append(segments, keys, {});
  const Heads mixed = as_heads(ops.take(rows, heads * latent_dim), heads, latent_dim);
  const AttentionShape shape{heads, 1, key_dim, latent_dim, static_cast<float>(mla_score_scale(config_))};
  ops.attend(segments, shape, queries, mixed);
  const Rows values = ops.take(rows, heads * config_.value_dim);
  ops.head_matmul(unembed_, mixed, as_heads(values, heads, config_.value_dim));
  ops.matmul(out_, ops.prepare(values), y);
}

}  // namespace moeflux
