#pragma once
// Complete checkpoints of a few kilobytes, for tests that remove or replace parts of them.
//
// Both families, in the published layouts. The weights are arbitrary small numbers. Test code only. Plain
// values; one thread at a time.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "quant/encoding.h"
#include "source/testing/safetensors_builder.h"

namespace moeflux {

struct TestTensor {
  std::string name;
  Dtype dtype;
  Shape shape;
};

class TinyCheckpoint {
 public:
  Json config;
  std::vector<TestTensor> tensors;

  // Adds "<module>.weight" and the other tensors of its encoding. shape: [rows, cols] or [count, rows, cols].
  void module(const std::string& module, const Shape& shape, const Encoding& encoding);
  void tensor(const std::string& name, const Shape& shape, Dtype dtype = Dtype::bf16);

  TestTensor& find(std::string_view name);
  void remove(std::string_view name);
  // Every tensor whose name contains `part`.
  void remove_all(std::string_view part);

  SafetensorsBuilder safetensors() const;
  // Writes config.json and model.safetensors to the folder `name`; returns its path.
  std::filesystem::path write(const TemporaryDirectory& directory, std::string_view name = "model") const;
};

inline constexpr AffineFormat kAffine4{.bits = 4, .group = 64, .scale_dtype = Dtype::bf16};
inline constexpr AffineFormat kAffine8{.bits = 8, .group = 64, .scale_dtype = Dtype::bf16};

// Two layers, linear and full attention; hidden 64, 4 experts of 64.
TinyCheckpoint tiny_qwen_mlx();           // 4-bit, 8-bit routers, stacked experts
TinyCheckpoint tiny_qwen_hugging_face();  // BF16, fused experts

// Two layers, dense and MoE; hidden 64, 4 experts of 64 in 2 groups, q_lora.
TinyCheckpoint tiny_deepseek_mlx();  // 4-bit, stacked experts
TinyCheckpoint tiny_deepseek_fp8();  // FP8, separate experts

}  // namespace moeflux
