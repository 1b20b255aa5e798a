// Whether this processor and its operating system run an instruction set. compiled_kernels.cpp declares these
// functions.

#include <cpuid.h>

namespace moeflux {

// __builtin_cpu_supports also checks that the operating system saves the registers.
bool runs_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

bool runs_avxvnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx);  // not every compiler has a name for this bit
  return (eax >> 4 & 1) != 0 && runs_avx2();
}

bool runs_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && runs_avx2();
}

bool runs_avx512vnni() { return __builtin_cpu_supports("avx512vnni") && runs_avx512(); }

}  // namespace moeflux
