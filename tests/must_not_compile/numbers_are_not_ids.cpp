// expect: (could not convert|no viable conversion)
// A number does not convert to an id implicitly.
#include "base/ids.h"

moeflux::TokenId first_token() {
#ifdef FIXED
  return moeflux::TokenId{0};
#else
  return 0u;
#endif
}
