#include <moeflux.h>

// The one function that is about the shared library and not about models.
const char* mf_version(void) { return MOEFLUX_VERSION; }
