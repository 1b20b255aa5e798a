#pragma once
// What the opener of a source wants its user to know although nothing is wrong: a tensor skipped, a key ignored.

#include <string>
#include <vector>

namespace moeflux {

using Notes = std::vector<std::string>;

}  // namespace moeflux
