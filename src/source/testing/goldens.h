#pragma once
// Paths of the checkpoints in the repository, for tests. Test code only.

#include <filesystem>
#include <string_view>

namespace moeflux {

inline std::filesystem::path repository() { return MOEFLUX_REPOSITORY; }
inline std::filesystem::path golden(std::string_view name) {
  return repository() / "tests" / "goldens" / "tiny" / name;
}
inline std::filesystem::path tern() { return repository() / "models" / "tern"; }

}  // namespace moeflux
