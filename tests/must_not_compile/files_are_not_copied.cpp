// expect: deleted
// An open file has one owner; other code borrows it.
#include "io/file_system.h"

void borrow(moeflux::ReadFile& mine, const moeflux::ReadFile& yours, const moeflux::ReadFile*& borrowed) {
#ifdef FIXED
  static_cast<void>(mine);
  borrowed = &yours;
#else
  mine = yours;
  borrowed = &mine;
#endif
}
