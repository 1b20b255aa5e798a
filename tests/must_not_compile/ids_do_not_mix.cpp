// expect: (could not convert|no known conversion).*Expert
// The id of an expert instead of the id of a layer.
#include "base/ids.h"

void prefetch(moeflux::LayerId layer, moeflux::ExpertId expert);

void swapped(moeflux::LayerId layer, moeflux::ExpertId expert) {
#ifdef FIXED
  prefetch(layer, expert);
#else
  prefetch(expert, layer);
#endif
}
