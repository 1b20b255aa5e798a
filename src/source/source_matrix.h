#pragma once
// One logical matrix of a model, wherever its bytes are.
//
// Every kind of source is reduced to these: a shape, an encoding, and up to three byte ranges of files.
// Slices of stacked and fused tensors are ranges too, so code that copies or decodes a matrix does not depend
// on the source's layout. Plain values.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/check.h"
#include "quant/encoding.h"
#include "source/safetensors/tensor_entry.h"

namespace moeflux {

struct SourceMatrix {
  std::uint64_t rows = 0;
  std::uint64_t cols = 0;
  Encoding encoding = PlainFormat{Dtype::f32};
  ByteRange codes, scales, biases;  // sizes equal encoded_bytes(); empty if the encoding has no such part
  bool add_one = false;             // Hugging Face stores these norms as (weight - 1)

  std::uint64_t total_bytes() const { return codes.size + scales.size + biases.size; }
};

struct NamedMatrix {
  std::string name;  // "layers.3.self_attn.q_proj": the same for every source
  SourceMatrix matrix;
};

// One routed expert: down · (silu(gate · x) * (up · x)).
struct ExpertMatrices {
  SourceMatrix gate, up;  // [hidden_dim, dim]
  SourceMatrix down;      // [dim, hidden_dim]

  std::uint64_t total_bytes() const { return gate.total_bytes() + up.total_bytes() + down.total_bytes(); }
};

// Matrices of one shape at equal distances: the first one, and the distance from each part to the next.
struct StackedMatrix {
  SourceMatrix first;
  std::uint64_t codes_stride = 0, scales_stride = 0, biases_stride = 0;

  SourceMatrix at(std::uint64_t index) const {
    SourceMatrix matrix = first;
    matrix.codes.offset += index * codes_stride;
    matrix.scales.offset += index * scales_stride;
    matrix.biases.offset += index * biases_stride;
    return matrix;
  }
};

// The routed experts of one layer. Stays stacked if the source stacks them, so the memory for a layer does
// not depend on the number of experts it claims to have.
class SourceExperts {
 public:
  struct Stacked {
    StackedMatrix gate, up, down;
  };
  SourceExperts(std::uint32_t count, Stacked stacked) : count_(count), layout_(stacked) {}
  explicit SourceExperts(std::vector<ExpertMatrices> separate)
      : count_(static_cast<std::uint32_t>(separate.size())), layout_(std::move(separate)) {}

  std::uint32_t count() const { return count_; }

  // True if all experts are known to have the same encodings and sizes.
  bool is_uniform() const { return std::holds_alternative<Stacked>(layout_); }

  ExpertMatrices expert(ExpertId id) const {
    MF_REQUIRE(id.index() < count_, "the expert is one of the layer");
    if (const auto* stacked = std::get_if<Stacked>(&layout_))
      return {stacked->gate.at(id.index()), stacked->up.at(id.index()), stacked->down.at(id.index())};
    return std::get<std::vector<ExpertMatrices>>(layout_)[id.index()];
  }

 private:
  std::uint32_t count_;
  std::variant<Stacked, std::vector<ExpertMatrices>> layout_;
};

}  // namespace moeflux
