#pragma once
// What packing a source will write, decided before a byte of it is written.
//
// Numbers that are quantized already keep their codes. Plain sources are quantized to 4 bits unless the caller says
// 8 or 16 (16 keeps them); fp8 keeps its bytes unless bits are asked for. In the qwen family routers and
// shared-expert gates get 8 bits; the deepseek router, vectors, and matrices whose columns are no multiple of the
// group stay plain. The plan is a pure function of source and options. Refers to the source, which outlives it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/packed_format.h"
#include "source/source_model.h"

namespace moeflux {

inline constexpr std::uint32_t kPackGroup = 64;

struct PackOptions {
  std::optional<std::uint32_t> bits;  // 4, 8 or 16; absent: as above
  unsigned jobs = 1;
  std::string source_note = {};  // tells apart sources whose files have the same names and lengths
};

struct TensorPlan {
  const NamedMatrix* source;
  MatrixFormat format;  // as stored
  TensorLayout layout;
  std::uint64_t offset, bytes;
};

struct ExpertFilePlan {
  LayerId layer{0};
  std::vector<std::uint32_t> formats;  // by expert: index into PackPlan::expert_formats
  std::vector<std::uint64_t> offsets;
  std::uint64_t bytes = 0;
};

struct PackPlan {
  std::vector<TensorPlan> tensors;  // in the order of resident.bin
  std::uint64_t resident_bytes = 0;
  std::vector<ExpertFormat> expert_formats;
  std::vector<ExpertFilePlan> expert_files;
  std::uint64_t total_bytes() const;
};

Result<PackPlan> plan_pack(const SourceModel& source, const PackOptions& options);

}  // namespace moeflux
