// expect: unused-result
// An ignored failure.
#include "base/result.h"

moeflux::Status sync_to_disk();

moeflux::Status commit() {
#ifdef FIXED
  MF_TRY_STATUS(sync_to_disk());
#else
  sync_to_disk();
#endif
  return {};
}
