#pragma once
// Latent attention, absorbed: queries are projected into the latent space, so the cache holds one latent and
// one rotated key per position for all heads; the mixed latents are projected to values at the end.
// layers/mla_heads.h has the matrices of both projections. Immutable once derived: thread-safe.

#include <optional>

#include "base/result.h"
#include "layers/mla_heads.h"
#include "layers/step.h"
#include "layers/weights.h"
#include "model/config.h"

namespace moeflux {

class Mla {
 public:
  static Result<Mla> create(const MlaConfig& config, double norm_eps, std::size_t rope,
                            const Weights& weights);
  // Call once, after the weights are loaded.
  void derive() { heads_.derive(); }
  std::uint64_t derived_bytes() const { return heads_.bytes(); }

  // y = the layer's contribution to the residual. x: [rows][dim], normalized
  void forward(const Step& step, LayerId layer, const Input& x, Rows y) const;

 private:
  Mla(const MlaConfig& config, double norm_eps, std::size_t rope, const Weights& weights, MlaHeads heads);

  void project_queries(Ops& ops, const Input& x, Rows queries) const;

  struct QueryLatent {
    TiledMatrix down;             // [query_latent_dim, dim]
    std::span<const float> norm;  // [query_latent_dim]
  };

  MlaConfig config_;
  float norm_eps_;
  std::size_t rope_;
  std::optional<QueryLatent> query_latent_;
  TiledMatrix query_;                   // [heads * (nope_dim + rope_dim), query_latent_dim or dim]
  TiledMatrix latent_;                  // [latent_dim + rope_dim, dim]
  std::span<const float> latent_norm_;  // [latent_dim]
  MlaHeads heads_;
  TiledMatrix out_;  // [dim, heads * value_dim]
};

}  // namespace moeflux
