#include "model/config.h"

#include "base/overloaded.h"

namespace moeflux {

std::string_view name_of(Family family) {
  switch (family) {
    case Family::qwen3_5_moe: return "qwen3_5_moe";
    case Family::deepseek_v3: return "deepseek_v3";
  }
  return "unknown";
}

std::string_view name_of(const MixerConfig& mixer) {
  return std::visit(overloaded{
                        [](const GatedDeltaNetConfig&) -> std::string_view { return "gated_delta_net"; },
                        [](const GatedAttentionConfig&) -> std::string_view { return "gated_attention"; },
                        [](const MlaConfig&) -> std::string_view { return "mla"; },
                    },
                    mixer);
}

}  // namespace moeflux
