#pragma once
// What a checkpoint's config says about its quantization.
//
// MLX writes `quantization` (and a copy named `quantization_config`): default bits and group, and overrides
// by module path, each an object or false. Hugging Face writes `quantization_config` with a `quant_method`,
// of which fp8 is read here. Whether a module IS quantized is decided by its tensors; what this says is
// cross-checked with their shapes. Immutable after parsing: any thread.

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/object_reader.h"
#include "base/result.h"
#include "source/notes.h"

namespace moeflux {

struct AffineParameters {
  std::uint32_t bits;
  std::uint32_t group;
  friend bool operator==(const AffineParameters&, const AffineParameters&) = default;
};

class Quantization {
 public:
  enum class Method { none, affine, fp8 };

  Quantization() = default;  // none

  // For sources that are not configured by a config.json.
  static Quantization affine(AffineParameters defaults);
  void override_module(std::string module, std::optional<AffineParameters> parameters);

  Method method() const { return method_; }

  // What the config says of a module of an affine checkpoint; nothing: it says "not quantized".
  std::optional<AffineParameters> of_module(std::string_view module) const;

  // Whether the config has an override for just this module that says "quantized".
  bool insists_on(std::string_view module) const;

 private:
  friend Result<Quantization> parse_quantization(const ObjectReader& config, Notes& notes);
  Method method_ = Method::none;
  AffineParameters defaults_{};
  std::map<std::string, std::optional<AffineParameters>, std::less<>> overrides_;
};

// Reads `quantization` or `quantization_config` of a top-level config. GPTQ, AWQ, MXFP4 and other methods are
// `unsupported`, by name.
Result<Quantization> parse_quantization(const ObjectReader& config, Notes& notes);

}  // namespace moeflux
