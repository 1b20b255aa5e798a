#pragma once
// The quantization that a checkpoint's config declares.
//
// MLX writes `quantization` (and a copy named `quantization_config`): default bits and group, and overrides
// by module path, each an object or false. Hugging Face writes `quantization_config` with a `quant_method`;
// only fp8 is supported. Whether a module is quantized is decided by its tensors; the declaration is checked
// against their shapes. Immutable after parsing: any thread.

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/json/json.h"
#include "base/json/object_reader.h"
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

  // For sources without a config.json.
  static Quantization affine(AffineParameters defaults);
  void override_module(std::string module, std::optional<AffineParameters> parameters);

  Method method() const { return method_; }

  // The declared parameters of a module of an affine checkpoint; nullopt: declared as not quantized.
  std::optional<AffineParameters> of_module(std::string_view module) const;

  // True if the config has an override for exactly this module that declares it quantized.
  bool insists_on(std::string_view module) const;

 private:
  friend Result<Quantization> parse_quantization(const ObjectReader& config, Notes& notes);
  Method method_ = Method::none;
  AffineParameters defaults_{};
  std::map<std::string, std::optional<AffineParameters>, std::less<>> overrides_;
};

// Reads `quantization` or `quantization_config` of a top-level config. GPTQ, AWQ, MXFP4 and other methods are
// `unsupported`; the message names them.
Result<Quantization> parse_quantization(const ObjectReader& config, Notes& notes);

}  // namespace moeflux
