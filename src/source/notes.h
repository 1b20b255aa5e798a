#pragma once
// Facts worth telling the user that are not errors: a tensor skipped, a key ignored.

#include <string>
#include <vector>

namespace moeflux {

using Notes = std::vector<std::string>;

}  // namespace moeflux
