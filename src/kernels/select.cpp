#include <fmt/format.h>

#include <array>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "kernels/isa_tables.h"
#include "kernels/kernel_table.h"

namespace moeflux {
namespace {

bool runs_always() { return true; }

constexpr KernelTable kScalar{"scalar",     runs_always,       &kScalarMatmul,        &kScalarInt8,
                              &kScalarRows, &kScalarAttention, &kScalarByteAttention, &kScalarDeltaNet};

#if defined(__x86_64__)
// __builtin_cpu_supports asks the operating system too: registers that it does not save are not supported.
bool runs_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
bool runs_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && runs_avx2();
}
bool runs_avx512vnni() { return __builtin_cpu_supports("avx512vnni") && runs_avx512(); }

// Bits that __builtin_cpu_supports has no names for in every compiler.
struct Cpuid {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  Cpuid(unsigned leaf, unsigned subleaf) { __get_cpuid_count(leaf, subleaf, &eax, &ebx, &ecx, &edx); }
};
bool runs_avxvnni() { return (Cpuid(7, 1).eax >> 4 & 1) != 0 && runs_avx2(); }

// Tiles are 8 KB that the operating system saves for those who ask for it, once a process.
bool runs_amx() {
  const unsigned features = Cpuid(7, 0).edx;
  if ((features >> 24 & 1) == 0 || (features >> 25 & 1) == 0 || !runs_avx512vnni()) return false;
#if defined(__linux__)
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

constexpr KernelTable kAmx{"amx",
                           runs_amx,
                           &kAvx512Matmul,
                           &kAmxInt8,
                           &kAvx512Rows,
                           &kAvx512Attention,
                           &kAvx512VnniByteAttention,
                           &kAvx512DeltaNet};
constexpr KernelTable kAvx512Vnni{
    "avx512vnni",      runs_avx512vnni,           &kAvx512Matmul,  &kAvx512VnniInt8, &kAvx512Rows,
    &kAvx512Attention, &kAvx512VnniByteAttention, &kAvx512DeltaNet};
constexpr KernelTable kAvx512{"avx512",     runs_avx512,       &kAvx512Matmul,        &kAvx512Int8,
                              &kAvx512Rows, &kAvx512Attention, &kAvx512ByteAttention, &kAvx512DeltaNet};
constexpr KernelTable kAvxVnni{"avxvnni",  runs_avxvnni,    &kAvx2Matmul,           &kAvxVnniInt8,
                               &kAvx2Rows, &kAvx2Attention, &kAvxVnniByteAttention, &kAvx2DeltaNet};
constexpr KernelTable kAvx2{"avx2",     runs_avx2,       &kAvx2Matmul,        &kAvx2Int8,
                            &kAvx2Rows, &kAvx2Attention, &kAvx2ByteAttention, &kAvx2DeltaNet};
constexpr std::array kTables = {&kAvx512Vnni, &kAmx, &kAvx512, &kAvxVnni, &kAvx2, &kScalar};
#else
constexpr std::array kTables = {&kScalar};
#endif

}  // namespace

bool needs_asking() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel");
#else
  return false;
#endif
}

std::span<const KernelTable* const> compiled_kernels() { return kTables; }

Result<const KernelTable*> select_kernels(std::string_view name) {
  std::string names;
  for (const KernelTable* table : compiled_kernels()) {
    if (name.empty() && table->runs_here()) return table;
    if (name == table->name) {
      if (table->runs_here()) return table;
      return Error(ErrorCode::invalid_argument,
                   fmt::format("this processor does not run the kernels '{}'", name));
    }
    names.append(names.empty() ? "" : ", ").append(table->name);
  }
  return Error(ErrorCode::invalid_argument,
               fmt::format("there are no kernels '{}'; this build has {}", name, names));
}

}  // namespace moeflux
