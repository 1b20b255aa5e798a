// expect: (could not convert|no viable conversion)
// A bare number does not become an id by itself.
#include "base/ids.h"

moeflux::TokenId first_token() {
#ifdef FIXED
  return moeflux::TokenId{0};
#else
  return 0u;
#endif
}
