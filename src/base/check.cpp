#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace moeflux {

void contract_violated(const char* promise, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: contract violated: %s\n", file, line, promise);
  std::abort();
}

}  // namespace moeflux
