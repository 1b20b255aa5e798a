// expect: unused-result
// A discarded value that could have been an error.
#include "base/result.h"

moeflux::Result<int> read_header();

moeflux::Status open_model() {
#ifdef FIXED
  MF_TRY([[maybe_unused]] const int header, read_header());
#else
  read_header();
#endif
  return {};
}
