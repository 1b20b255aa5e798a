#pragma once
// Latent attention, absorbed: queries are carried into the latent space, so that the cache holds one latent and one
// rotated key a position for all heads, and values are carried out of it at the end.
//
// kv_b_proj is cut into two sets of matrices, one a head, when the layer is made:
//   embed    [latent_dim, nope_dim]   a query without position -> latent space; kv_b's key rows, transposed
//   unembed  [value_dim, latent_dim]  a mixed latent -> the head's values; kv_b's value rows as they are
// Transposing needs other groups than the stored ones, so embed is kept as the float32 numbers that kv_b's codes
// stand for (BF16 where they are BF16): the same numbers, larger. Owns these two. Immutable: any thread.

#include <optional>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "layers/step.h"
#include "layers/weights.h"
#include "model/config.h"

namespace moeflux {

class Mla {
 public:
  static Result<Mla> create(const MlaConfig& config, double norm_eps, std::size_t rope,
                            const Weights& weights);
  // Bytes of what create() makes.
  static std::uint64_t owned_bytes(const MlaConfig& config, const Weights& weights);

  // y = the layer's contribution to the residual. x: [rows][dim], normalised
  void forward(const Step& step, LayerId layer, const Input& x, Rows y) const;

 private:
  Mla(const MlaConfig& config, double norm_eps, std::size_t rope, const Weights& weights);
  Status cut_kv_b(const Weights& weights);

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
  HugeBuffer embed_memory_, unembed_memory_;
  HeadMatrices embed_, unembed_;
  TiledMatrix out_;  // [dim, heads * value_dim]
};

}  // namespace moeflux
