#pragma once
// The two matrices that latent attention has for each head, made of kv_b_proj:
//
//   embed    [latent_dim, nope_dim]   a query without position -> latent space; kv_b's key rows, transposed
//   unembed  [value_dim, latent_dim]  a mixed latent -> the head's values; kv_b's value rows as they are
//
// Transposing needs other groups than the stored ones, so embed holds the float32 numbers that kv_b's codes stand for
// (BF16 where they are BF16): the same numbers, larger. A source that has cut kv_b itself (embed_q, unembed_out) keeps
// its encodings; only each head's rows are filled up to whole tiles.
//
// create() reserves the memory, derive() fills it, once the weights are there. Owns it. Immutable after that.

#include <cstdint>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "kernels/ops.h"
#include "layers/weights.h"
#include "model/config.h"

namespace moeflux {

class MlaHeads {
 public:
  static Result<MlaHeads> create(const MlaConfig& config, const Weights& weights);

  void derive();

  const HeadMatrices& embed() const { return embed_; }
  const HeadMatrices& unembed() const { return unembed_; }
  std::uint64_t bytes() const { return embed_memory_.size() + unembed_memory_.size(); }

 private:
  explicit MlaHeads(const MlaConfig& config) : config_(config) {}

  MlaConfig config_;
  bool is_cut_ = false;
  TiledMatrix keys_, values_;  // where the numbers come from: kv_b twice, or the source's own two
  HugeBuffer embed_memory_, unembed_memory_;
  HeadMatrices embed_, unembed_;
};

}  // namespace moeflux
