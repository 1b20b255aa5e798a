#pragma once
// Locates a layer's routed experts in a source.
//
// There is one ExpertLocator per kind of source. Safetensors have three layouts, recognized by tensor names:
//   stacked   mlp.switch_mlp.{gate,up,down}_proj.*   [experts, ...]; MLX, quantized or not
//   fused     mlp.experts.{gate_up_proj,down_proj}   [experts, 2*hidden, dim], gate before up; Hugging Face
//   separate  mlp.experts.N.{gate,up,down}_proj.*    one tensor per matrix, any encoding; Hugging Face
// One thread at a time.

#include <string>

#include "base/ids.h"
#include "base/result.h"
#include "model/config.h"
#include "source/matrix_resolver.h"

namespace moeflux {

// The dimensions of a layer's experts, with the config keys they come from.
struct ExpertDims {
  Dim experts;
  Dim hidden;
  Dim dim;
};

class ExpertLocator {
 public:
  virtual ~ExpertLocator() = default;

  // The experts of `layer`, whose tensor names begin with `mlp` ("model.layers.3.mlp").
  virtual Result<SourceExperts> locate(LayerId layer, const std::string& mlp, const ExpertDims& dims) = 0;
};

class SafetensorsExperts final : public ExpertLocator {
 public:
  explicit SafetensorsExperts(MatrixResolver& resolver) : resolver_(resolver) {}
  Result<SourceExperts> locate(LayerId layer, const std::string& mlp, const ExpertDims& dims) override;

 private:
  Result<SourceExperts> stacked(const std::string& mlp, const ExpertDims& dims);
  Result<SourceExperts> fused(const std::string& mlp, const ExpertDims& dims);
  Result<SourceExperts> separate(const std::string& mlp, const ExpertDims& dims);

  MatrixResolver& resolver_;
};

}  // namespace moeflux
