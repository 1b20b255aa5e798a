#pragma once
// The two matrices per head of latent attention:
//
//   embed    query without position -> latent space
//   unembed  mixed latent -> the head's values   [value_dim, latent_dim]
//
// Both are parts of kv_b_proj as it is stored. Its key rows are embed transposed, [nope_dim, latent_dim], so
// embed multiplies by their columns. A source that stores the two parts itself (embed_q, unembed_out) has
// embed as [latent_dim, nope_dim].
//
// Heads that begin at a block of 16 rows are views of the resident weights. Otherwise their codes are copied,
// so that each head begins a block: create() reserves the memory, derive() fills it after the weights are
// loaded. Immutable once derived.

#include <cstdint>
#include <optional>

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

  // y[i][h] = embed_h x[i][h] and y[i][h] = unembed_h x[i][h].
  void embed(Ops& ops, const Heads& x, const Heads& y) const;
  void unembed(Ops& ops, const Heads& x, const Heads& y) const;
  std::uint64_t bytes() const { return embed_.memory.size() + unembed_.memory.size(); }

 private:
  // Rows [h * stride + first, h * stride + first + rows) of a matrix, for each head h.
  struct Part {
    TiledMatrix from;
    std::uint64_t stride = 0, first = 0;
    HeadMatrices matrices;
    HugeBuffer memory;  // empty if `matrices` are views of `from`

    static Result<Part> create(const TiledMatrix& from, std::uint32_t heads, std::uint64_t stride,
                               std::uint64_t first, std::uint32_t rows);
    void derive();
  };

  Part embed_, unembed_;
  bool is_transposed_ = false;  // embed
};

}  // namespace moeflux
