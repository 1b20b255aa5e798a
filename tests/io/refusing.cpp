// refusing ERRNO WHAT COMMAND...: runs COMMAND on a system that refuses it an operation.
//
//   uring      io_uring_setup fails with ERRNO
//   enter      io_uring_enter fails: a ring can be created, but not used
//   register   io_uring_register fails: no fixed files or buffers
//   direct     opening a file with O_DIRECT fails with ERRNO
//   sync       fsync and fdatasync fail with ERRNO
//   threads    starting a thread fails with ERRNO
//   memlock    at most 512 KiB of memory may be locked; ERRNO is ignored
//
// Exits with 77 if it cannot install the refusal.

#include <linux/capability.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "refuse.h"

namespace {

constexpr int kCannotRefuse = 77;
constexpr int kUsageError = 2;

int errno_from_name(std::string_view name) {
  for (const int known : {ENOSYS, EPERM, EACCES, ENOMEM, EINVAL, EAGAIN, EIO}) {
    if (name == ::strerrorname_np(known)) return known;
  }
  return 0;
}

// A process with CAP_IPC_LOCK may lock any amount. Dropped from the bounding set, it does not survive exec.
bool limit_memlock() {
  const rlimit limit = {512 * 1024, 512 * 1024};
  ::prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK);
  if (::geteuid() == 0 && ::prctl(PR_CAPBSET_READ, CAP_IPC_LOCK) == 1) return false;
  return ::setrlimit(RLIMIT_MEMLOCK, &limit) == 0;
}

bool refuse(std::string_view what, int error_number) {
  if (what == "uring") return moeflux::refuse_system_call(SYS_io_uring_setup, error_number);
  if (what == "enter") return moeflux::refuse_system_call(SYS_io_uring_enter, error_number);
  if (what == "register") return moeflux::refuse_system_call(SYS_io_uring_register, error_number);
  if (what == "threads") return moeflux::refuse_system_call(SYS_clone3, error_number);
  if (what == "sync") {
    return moeflux::refuse_system_call(SYS_fsync, error_number) &&
           moeflux::refuse_system_call(SYS_fdatasync, error_number);
  }
  if (what == "direct") return moeflux::refuse_direct_reads(error_number);
  return what == "memlock" && limit_memlock();
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4 || errno_from_name(arguments[1]) == 0) {
    std::fputs("usage: refusing ERRNO uring|enter|register|direct|sync|threads|memlock COMMAND...\n", stderr);
    return kUsageError;
  }
  if (!refuse(arguments[2], errno_from_name(arguments[1]))) {
    std::perror("cannot install the seccomp filter or limit");
    return kCannotRefuse;
  }
  ::execvp(arguments[3], arguments + 3);
  std::perror(arguments[3]);
  return kUsageError;
}
