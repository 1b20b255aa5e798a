#pragma once
// ModelConfig ↔ JSON, as manifests keep it. Reading is strict: what comes back is a config that can run.
// Pure functions: any thread.

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "model/config.h"

namespace moeflux {

Json config_to_json(const ModelConfig& config);
Result<ModelConfig> config_from_json(const Json& value, std::string where);

}  // namespace moeflux
