// expect: (no match for 'operator\+|invalid operands to binary expression)
// "The next layer" is said with the index, where a reader can see that it may be one too far.
#include "base/ids.h"

moeflux::LayerId next(moeflux::LayerId layer) {
#ifdef FIXED
  return moeflux::LayerId{layer.index() + 1};
#else
  return layer + 1;
#endif
}
