#pragma once
// The tensors of a synthetic checkpoint: names, shapes and dtypes as published (docs/formats/checkpoints.md),
// and the patterns that generate their numbers.
//
// Weights are independent and random, with a root mean square of gain / sqrt(inputs). Matrices that write to
// the residual stream have a gain that decreases with the number of layers, so the stream starts as the
// token's embedding and is not much larger after the last layer, at any depth. It keeps enough of the
// embedding to send different tokens to different experts, so random routers use all of them. Plain values
// and pure functions: any thread.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/config.h"
#include "pack/synthetic/pattern.h"
#include "quant/dtype.h"

namespace moeflux {

enum class SyntheticFormat {
  mlx,   // affine 4-bit in groups of 64, experts stacked; routers and gates of qwen3_5_moe in 8 bits
  bf16,  // Hugging Face; experts fused (qwen3_5_moe) or separate (deepseek_v3)
  fp8,   // Hugging Face, e4m3 in blocks of 128 x 128, experts separate
};
std::string_view name_of(SyntheticFormat format);
std::optional<SyntheticFormat> synthetic_format_from_name(std::string_view name);

inline constexpr std::uint32_t kSyntheticBits = 4;  // for MLX modules without an override
inline constexpr std::uint32_t kSyntheticGroup = 64;

struct SyntheticTensor {
  std::string name;
  Dtype dtype;
  std::vector<std::uint64_t> shape;
  std::uint64_t bytes;
  std::uint64_t key;
  SyntheticPattern pattern;
};

struct SyntheticPlan {
  std::vector<SyntheticTensor> tensors;        // in model order
  std::vector<std::string> eight_bit_modules;  // of an MLX checkpoint
};

// `unsupported` if there are more tensors than a source may have, or more than 2^60 bytes.
Result<SyntheticPlan> plan_synthetic_tensors(const ModelConfig& model, SyntheticFormat format,
                                             std::uint64_t seed);

}  // namespace moeflux
