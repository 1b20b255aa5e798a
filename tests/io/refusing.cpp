// refusing ERRNO WHAT COMMAND...: runs a command on a system that refuses it something.
//
//   uring      io_uring_setup fails with ERRNO
//   enter      a ring can be made and not be used
//   register   nothing can be registered with a ring
//   direct     opening files for direct reads fails with ERRNO
//   threads    no thread can be started
//   memlock    512 KiB of memory may be locked; ERRNO is of no account
//
// Exits with 77 where it cannot arrange that.

#include <linux/capability.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "refuse.h"

namespace {

constexpr int kCannot = 77;
constexpr int kMisused = 2;

int number_of(std::string_view name) {
  for (const int known : {ENOSYS, EPERM, EACCES, ENOMEM, EINVAL, EAGAIN}) {
    if (name == ::strerrorname_np(known)) return known;
  }
  return 0;
}

// Who has CAP_IPC_LOCK may lock any amount; what is not in the bounding set does not survive exec.
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
  if (what == "direct") return moeflux::refuse_direct_reads(error_number);
  return what == "memlock" && limit_memlock();
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4 || number_of(arguments[1]) == 0) {
    std::fputs("usage: refusing ERRNO uring|enter|register|direct|threads|memlock COMMAND...\n", stderr);
    return kMisused;
  }
  if (!refuse(arguments[2], number_of(arguments[1]))) {
    std::perror("this system does not let itself be told what to refuse");
    return kCannot;
  }
  ::execvp(arguments[3], arguments + 3);
  std::perror(arguments[3]);
  return kMisused;
}
