#pragma once
// The shapes of synthetic models: the shapes of published models, or of any config.json.
//
// A shape is the text of a config.json. Its quantization is ignored: a synthetic checkpoint has its own
// (pack/synthetic/checkpoint.h). Pure functions: any thread.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "io/file_system.h"

namespace moeflux {

// The names of the built-in shapes ("qwen3.5-35b-a3b", ...), for help texts.
std::span<const std::string_view> builtin_shapes();
bool is_builtin_shape(std::string_view name);

// Changes to a shape. Fewer experts also reduce experts per token and groups where necessary. Fewer layers
// also reduce the leading dense layers, so that a layer with experts remains. More layers repeat the pattern
// of layer types.
struct ShapeOverrides {
  std::optional<std::uint32_t> layers = {};
  std::optional<std::uint32_t> experts = {};
};

// The text of the config.json of a built-in shape, or of a config.json (or its directory) at a path in
// `files`. The result parses as a ModelConfig.
Result<std::string> shape_config(FileSystem& files, std::string_view name_or_path,
                                 const ShapeOverrides& overrides = {});

}  // namespace moeflux
