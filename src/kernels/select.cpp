#include <fmt/format.h>

#include <array>
#include <string>

#include "kernels/isa_tables.h"
#include "kernels/kernel_table.h"

namespace moeflux {
namespace {

bool runs_always() { return true; }

constexpr KernelTable kScalar{"scalar",     runs_always,       &kScalarMatmul,  &kScalarInt8,
                              &kScalarRows, &kScalarAttention, &kScalarDeltaNet};

#if defined(__x86_64__)
// __builtin_cpu_supports asks the operating system too: registers that it does not save are not supported.
bool runs_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
bool runs_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && runs_avx2();
}
bool runs_avx512vnni() { return __builtin_cpu_supports("avx512vnni") && runs_avx512(); }
constexpr KernelTable kAvx512Vnni{"avx512vnni", runs_avx512vnni,   &kAvx512Matmul,  &kAvx512VnniInt8,
                                  &kAvx512Rows, &kAvx512Attention, &kAvx512DeltaNet};
constexpr KernelTable kAvx512{"avx512",     runs_avx512,       &kAvx512Matmul,  &kAvx512Int8,
                              &kAvx512Rows, &kAvx512Attention, &kAvx512DeltaNet};
constexpr KernelTable kAvx2{"avx2",     runs_avx2,       &kAvx2Matmul,  &kAvx2Int8,
                            &kAvx2Rows, &kAvx2Attention, &kAvx2DeltaNet};
constexpr std::array kTables = {&kAvx512Vnni, &kAvx512, &kAvx2, &kScalar};
#else
constexpr std::array kTables = {&kScalar};
#endif

}  // namespace

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
