#include "pack/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/testing/states.h"
#include "pack/testing/packing.h"

namespace moeflux {
namespace {

using test::States;

constexpr Encoding kBf16 = PlainFormat{Dtype::bf16};
constexpr Encoding kF32 = PlainFormat{Dtype::f32};

struct Plans : testing::Test {
  TemporaryDirectory temporary;

  PackPlan plan_of(const SourceModel& source, const PackOptions& options = {}) {
    auto plan = plan_pack(source, options);
    EXPECT_TRUE(plan) << plan.error().message();
    return *std::move(plan);
  }
  SourceModel tiny(const std::string& name) { return open_source(write_tiny(temporary, name)); }
};

const TensorPlan& find(const PackPlan& plan, std::string_view name) {
  const auto found = std::find_if(plan.tensors.begin(), plan.tensors.end(),
                                  [&](const TensorPlan& tensor) { return tensor.source->name == name; });
  EXPECT_NE(found, plan.tensors.end()) << name;
  return *found;
}

Encoding encoding_of(const PackPlan& plan, std::string_view name) { return find(plan, name).format.encoding; }

using Plan = Plans;

TEST_F(Plan, OfAQuantizedSourceKeepsEveryEncoding) {
  for (const char* name : {"qwen_mlx", "deepseek_mlx", "original"}) {
    const SourceModel source = tiny(name);
    const PackPlan plan = plan_of(source);
    for (const TensorPlan& tensor : plan.tensors) {
      const bool vector = tensor.layout == TensorLayout::rows;
      EXPECT_EQ(tensor.format.encoding, vector ? kF32 : tensor.source->matrix.encoding)
          << tensor.source->name;
    }
    ASSERT_EQ(plan.expert_formats.size(), 1u);
    EXPECT_EQ(plan.expert_formats[0].down.encoding, Encoding(kAffine4));
  }
}

TEST_F(Plan, RejectsBitsForAQuantizedSource) {
  const SourceModel source = tiny("qwen_mlx");
  for (const std::uint32_t bits : {4u, 8u, 16u}) {
    const auto plan = plan_pack(source, {.bits = bits});
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.error().code(), ErrorCode::invalid_argument);
    EXPECT_THAT(plan.error().message(), States(source.path().string(), "--bits"));
  }
}

TEST_F(Plan, RejectsUnsupportedBits) {
  const SourceModel source = tiny("qwen_hugging_face");
  for (const std::uint32_t bits : {0u, 3u, 6u, 32u}) {
    const auto plan = plan_pack(source, {.bits = bits});
    ASSERT_FALSE(plan);
    EXPECT_THAT(plan.error().message(), States("--bits", 4, 8, 16, bits));
  }
}

TEST_F(Plan, OfAPlainSourceQuantizesToFourBitsAndRoutersToEight) {
  const SourceModel source = tiny("qwen_hugging_face");
  const PackPlan plan = plan_of(source);
  EXPECT_EQ(encoding_of(plan, "embed_tokens"), Encoding(kAffine4));
  EXPECT_EQ(encoding_of(plan, "lm_head"), Encoding(kAffine4));
  EXPECT_EQ(encoding_of(plan, "layers.1.self_attn.q_proj"), Encoding(kAffine4));
  EXPECT_EQ(encoding_of(plan, "layers.0.mlp.shared_expert.gate_proj"), Encoding(kAffine4));
  EXPECT_EQ(encoding_of(plan, "layers.0.mlp.gate"), Encoding(kAffine8));
  EXPECT_EQ(encoding_of(plan, "layers.1.mlp.shared_expert_gate"), Encoding(kAffine8));
  EXPECT_EQ(encoding_of(plan, "layers.0.linear_attn.conv1d"), kF32);
  EXPECT_EQ(encoding_of(plan, "norm"), kF32);
  ASSERT_EQ(plan.expert_formats.size(), 1u);
  for (const MatrixFormat& part :
       {plan.expert_formats[0].gate, plan.expert_formats[0].up, plan.expert_formats[0].down})
    EXPECT_EQ(part.encoding, Encoding(kAffine4));
}

TEST_F(Plan, FollowsTheBitsThatWereAskedFor) {
  const SourceModel source = tiny("qwen_hugging_face");
  const PackPlan eight = plan_of(source, {.bits = 8});
  EXPECT_EQ(encoding_of(eight, "embed_tokens"), Encoding(kAffine8));
  EXPECT_EQ(encoding_of(eight, "layers.0.mlp.gate"), Encoding(kAffine8));
  EXPECT_EQ(eight.expert_formats[0].gate.encoding, Encoding(kAffine8));
  const PackPlan sixteen = plan_of(source, {.bits = 16});
  EXPECT_EQ(encoding_of(sixteen, "embed_tokens"), kBf16);
  EXPECT_EQ(encoding_of(sixteen, "layers.0.mlp.gate"), kBf16);
  EXPECT_EQ(sixteen.expert_formats[0].gate.encoding, kBf16);
}

TEST_F(Plan, LeavesMatricesPlainWhoseColumnsAreNoWholeGroups) {
  TinyCheckpoint model = tiny_qwen_hugging_face();
  model.config["shared_expert_intermediate_size"] = 48u;
  for (const char* layer : {"0", "1"}) {
    const std::string base = std::string("model.language_model.layers.") + layer + ".mlp.shared_expert.";
    model.find(base + "gate_proj.weight").shape = {48, 64};
    model.find(base + "up_proj.weight").shape = {48, 64};
    model.find(base + "down_proj.weight").shape = {64, 48};
  }
  const SourceModel source = open_source(model.write(temporary));
  const PackPlan plan = plan_of(source);
  EXPECT_EQ(encoding_of(plan, "layers.0.mlp.shared_expert.gate_proj"), Encoding(kAffine4));
  EXPECT_EQ(encoding_of(plan, "layers.0.mlp.shared_expert.down_proj"), kBf16);
}

TEST_F(Plan, OfFp8KeepsItsBytesUnlessBitsAreAskedFor) {
  const SourceModel source = tiny("deepseek_fp8");
  const Encoding fp8 = Fp8BlockFormat{Dtype::f32};
  const PackPlan kept = plan_of(source);
  EXPECT_EQ(encoding_of(kept, "layers.0.self_attn.o_proj"), fp8);
  EXPECT_EQ(encoding_of(kept, "embed_tokens"), kBf16);
  EXPECT_EQ(encoding_of(kept, "layers.1.mlp.gate"), kBf16);
  EXPECT_EQ(kept.expert_formats[0].gate.encoding, fp8);
  const PackPlan four = plan_of(source, {.bits = 4});
  EXPECT_EQ(encoding_of(four, "layers.0.self_attn.o_proj"), Encoding(kAffine4));
  EXPECT_EQ(encoding_of(four, "embed_tokens"), Encoding(kAffine4));
  EXPECT_EQ(encoding_of(four, "layers.1.mlp.gate"), kBf16);  // the deepseek router stays unquantized
  EXPECT_EQ(four.expert_formats[0].gate.encoding, Encoding(kAffine4));
  const PackPlan sixteen = plan_of(source, {.bits = 16});
  EXPECT_EQ(encoding_of(sixteen, "layers.0.self_attn.o_proj"), kBf16);
  EXPECT_EQ(sixteen.expert_formats[0].gate.encoding, kBf16);
}

TEST_F(Plan, LaysTensorsOutAlignedAndApartWithTheEmbeddingLast) {
  const SourceModel source = tiny("qwen_mlx");
  const PackPlan plan = plan_of(source);
  std::uint64_t end = 0;
  for (const TensorPlan& tensor : plan.tensors) {
    EXPECT_EQ(tensor.offset % 256, 0u) << tensor.source->name;
    EXPECT_GE(tensor.offset, end) << tensor.source->name;
    EXPECT_LT(tensor.offset - end, 256u) << tensor.source->name;
    EXPECT_EQ(tensor.bytes, packed_bytes(tensor.format, tensor.layout));
    end = tensor.offset + tensor.bytes;
  }
  EXPECT_EQ(plan.resident_bytes, end);
  EXPECT_EQ(plan.tensors.back().source->name, "embed_tokens");
  EXPECT_EQ(plan.tensors.size(), source.resident().size());
}

TEST_F(Plan, PutsRecordsOneAfterAnotherAtMultiplesOf4096) {
  const SourceModel source = tiny("deepseek_fp8");
  const PackPlan plan = plan_of(source);
  ASSERT_EQ(plan.expert_files.size(), 1u);
  const ExpertFilePlan& file = plan.expert_files[0];
  EXPECT_EQ(file.layer, LayerId(1));
  ASSERT_EQ(file.offsets.size(), 4u);
  const std::uint64_t record = record_layout(plan.expert_formats[0]).record_bytes;
  EXPECT_EQ(record % 4096, 0u);
  for (std::uint64_t e = 0; e < 4; ++e) EXPECT_EQ(file.offsets[e], e * record);
  EXPECT_EQ(file.bytes, 4 * record);
  EXPECT_EQ(plan.total_bytes(), plan.resident_bytes + file.bytes);
}

}  // namespace
}  // namespace moeflux
