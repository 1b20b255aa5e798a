#pragma once
// ModelConfig ↔ JSON, as stored in manifests. Reading is strict: the result is a config that can run.
// Pure functions: any thread.

#include <string>

#include "base/json/json.h"
#include "base/result.h"
#include "model/config.h"

namespace moeflux {

Json config_to_json(const ModelConfig& config);
// `where` names the object in errors.
Result<ModelConfig> config_from_json(const Json& value, std::string where);

}  // namespace moeflux
