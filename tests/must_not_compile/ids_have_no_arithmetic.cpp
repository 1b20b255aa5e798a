// expect: (no match for 'operator\+|invalid operands to binary expression)
// "The next layer" is written with the index, so that a reader sees that it may be out of range.
#include "base/ids.h"

moeflux::LayerId next(moeflux::LayerId layer) {
#ifdef FIXED
  return moeflux::LayerId{layer.index() + 1};
#else
  return layer + 1;
#endif
}
