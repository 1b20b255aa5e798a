#pragma once
// The shapes of models that can be made up: those of three published ones, or of any config.json.
//
// A shape is the text of a config.json, of which what it says about quantization does not matter: a synthetic
// checkpoint has its own (pack/synthetic_checkpoint.h). Pure functions: any thread.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "io/file_system.h"

namespace moeflux {

// "qwen3.5-35b-a3b" and its siblings, for help texts.
std::span<const std::string_view> builtin_shapes();
bool is_builtin_shape(std::string_view name);

// What to change in a shape. Fewer experts also lower, where they must, how many a token visits and into how
// many groups they fall; fewer layers, how many of the first are dense, so that experts remain. More layers
// repeat the pattern of layer types.
struct ShapeOverrides {
  std::optional<std::uint32_t> layers = {};
  std::optional<std::uint32_t> experts = {};
};

// The config.json of a built-in shape, or of one at a path in `files`: a config.json, or the directory of
// one. What is returned is a config that parses.
Result<std::string> shape_config(FileSystem& files, std::string_view name_or_path,
                                 const ShapeOverrides& overrides = {});

}  // namespace moeflux
