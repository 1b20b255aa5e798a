#pragma once
// Makes the kernel refuse an operation to this process and its children, as sandboxes and old kernels do.
//
// By seccomp filters, which cannot be removed again. Each function returns false if the filter could not be
// installed. Call them from the only thread, before others start.

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace moeflux {

inline bool install_filter(std::span<sock_filter> filter) {
  const sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

// The system call fails with `error_number`.
inline bool refuse_system_call(std::uint32_t number, int error_number) {
  sock_filter filter[] = {
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, number},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error_number)},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  };
  return install_filter(filter);
}

// Opening a file with O_DIRECT fails with `error_number`.
inline bool refuse_direct_reads(int error_number) {
  sock_filter filter[] = {
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 3, SYS_openat},
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, args[2])},  // the lower half: little-endian
      {BPF_JMP | BPF_JSET | BPF_K, 0, 1, O_DIRECT},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error_number)},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  };
  return install_filter(filter);
}

}  // namespace moeflux
