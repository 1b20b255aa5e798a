#pragma once
// The two matrices per head of latent attention, derived from kv_b_proj:
//
//   embed    [latent_dim, nope_dim]   query without position -> latent space; kv_b's key rows, transposed
//   unembed  [value_dim, latent_dim]  mixed latent -> the head's values; kv_b's value rows as stored
//
// Affine groups do not survive a transposition, so embed holds kv_b's decoded numbers as float32 (BF16 where
// they are stored as BF16): the same numbers in more bytes. A source that stores the two parts itself
// (embed_q, unembed_out) keeps its encodings; only each head's rows are padded to whole tiles.
//
// create() reserves the memory; derive() fills it after the weights are loaded. Owns its memory. Immutable
// once derived.

#include <cstdint>

#include "base/memory/aligned_buffer.h"
#include "base/result.h"
#include "layers/weights.h"
#include "model/config.h"
#include "ops/ops.h"

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
  TiledMatrix keys_, values_;  // what derive() reads: kv_b twice, or the source's own two
  HugeBuffer embed_memory_, unembed_memory_;
  HeadMatrices embed_, unembed_;
};

}  // namespace moeflux
