#include <moeflux.h>

// The only function about the shared library itself.
const char* mf_version(void) { return MOEFLUX_VERSION; }
