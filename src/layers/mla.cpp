#include "layers/mla.h"

#include <utility>

#include "model/rope.h"

namespace moeflux {

Mla::Mla(const MlaConfig& config, double norm_eps, std::size_t rope, const Weights& weights, MlaHeads heads)
    : config_(config),
      norm_eps_(static_cast<float>(norm_eps)),
      rope_(rope),
      latent_(weights.matrix("self_attn.kv_a_proj_with_mqa")),
      latent_norm_(weights.vector("self_attn.kv_a_layernorm")),
      heads_(std::move(heads)),
      out_(weights.matrix("self_attn.o_proj")) {
  if (config.query_latent_dim) {
    query_latent_ = {weights.matrix("self_attn.q_a_proj"), weights.vector("self_attn.q_a_layernorm")};
    query_ = weights.matrix("self_attn.q_b_proj");
  } else {
    query_ = weights.matrix("self_attn.q_proj");
  }
}

Result<Mla> Mla::create(const MlaConfig& config, double norm_eps, std::size_t rope, const Weights& weights) {
  MF_TRY(MlaHeads heads, MlaHeads::create(config, weights));
  return Mla(config, norm_eps, rope, weights, std::move(heads));
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

  const Rows projected = ops.take(rows, config_.query_dim());
  project_queries(ops, x, projected);
  const Heads plain_queries = as_heads(projected, heads, nope_dim + rope_dim);
  const Rows key = ops.take(rows, key_dim);
  ops.matmul(latent_, x, key);
  ops.rms_norm(key.columns(0, latent_dim), latent_norm_, norm_eps_, key.columns(0, latent_dim));
  const Heads keys = as_heads(key, 1, key_dim);
  ops.rope(keys.part(latent_dim, rope_dim), step.rope[rope_], config_.rope.pairing);

  const Heads queries = as_heads(ops.take(rows, heads * key_dim), heads, key_dim);
  heads_.embed(ops, plain_queries.part(0, nope_dim), queries.part(0, latent_dim));
  ops.copy(plain_queries.part(nope_dim, rope_dim), queries.part(latent_dim, rope_dim));
  ops.rope(queries.part(latent_dim, rope_dim), step.rope[rope_], config_.rope.pairing);

  const std::span<const KvSegment> segments = kv_segments(step, layer);
  ops.append(segments, keys, {});
  const Heads mixed = as_heads(ops.take(rows, heads * latent_dim), heads, latent_dim);
  const AttentionShape shape{heads, 1, key_dim, latent_dim, static_cast<float>(mla_score_scale(config_))};
  ops.attend(segments, shape, queries, mixed);
  const Rows values = ops.take(rows, heads * config_.value_dim);
  heads_.unembed(ops, mixed, as_heads(values, heads, config_.value_dim));
  ops.matmul(out_, ops.prepare(values), y);
}

}  // namespace moeflux
