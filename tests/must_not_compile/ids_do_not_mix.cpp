// expect: (could not convert|no known conversion).*Expert
// An expert's number where a layer's is wanted.
#include "base/ids.h"

void prefetch(moeflux::LayerId layer, moeflux::ExpertId expert);

void swapped(moeflux::LayerId layer, moeflux::ExpertId expert) {
#ifdef FIXED
  prefetch(layer, expert);
#else
  prefetch(expert, layer);
#endif
}
