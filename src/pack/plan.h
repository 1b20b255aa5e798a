#pragma once
// The layout of a packed model, decided before the first byte is written.
//
// Affine sources keep their codes. Plain sources are quantized to 4 bits by default; `bits` = 8 overrides
// that, and `bits` = 16 keeps them plain. FP8 sources keep their bytes unless `bits` is set; `bits` = 16 then
// decodes them to BF16. Where pack quantizes, routers and shared-expert gates of qwen3_5_moe get 8 bits; the
// router of deepseek_v3, vectors, and matrices whose column count is not a multiple of kPackGroup stay plain.
// A pure function of source and options; the plan refers to the source, which must outlive it.

#include <atomic>
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
  std::optional<std::uint32_t> bits;  // 4, 8 or 16; absent: the defaults above
  unsigned jobs = 1;
  // Part of the identity of an unfinished pack, for sources whose files have equal names and lengths.
  std::string source_note = {};
  // pack() ends with `cancelled` soon after this becomes true. Null: not cancellable.
  const std::atomic<bool>* cancel = nullptr;
};

struct TensorPlan {
  const NamedMatrix* source;
  MatrixFormat format;  // as stored
  TensorLayout layout;
  std::uint64_t offset, bytes;
};

struct ExpertFilePlan {
  LayerId layer{0};
  std::vector<std::uint32_t> formats;  // per expert: index into PackPlan::expert_formats
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

// Errors: `invalid_argument` for bits that are not supported or that an affine source cannot change.
Result<PackPlan> plan_pack(const SourceModel& source, const PackOptions& options);

}  // namespace moeflux
