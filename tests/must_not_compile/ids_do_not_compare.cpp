// expect: (no match for 'operator==|invalid operands to binary expression)
// Ids of different kinds are never equal, not even by accident.
#include "base/ids.h"

bool same(moeflux::LayerId layer, moeflux::ExpertId expert) {
#ifdef FIXED
  return layer.index() == expert.index();
#else
  return layer == expert;
#endif
}
