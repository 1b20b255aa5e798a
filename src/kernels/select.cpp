#include <fmt/format.h>

#include <string>

#include "kernels/kernel_table.h"

namespace moeflux {

bool wants_prefetch() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel");
#else
  return false;
#endif
}

Result<const KernelTable*> select_kernels(std::string_view name) {
  std::string names;
  for (const KernelTable* table : compiled_kernels()) {
    if (name.empty() && table->runs_here()) return table;
    if (name == table->name) {
      if (table->runs_here()) return table;
      return Error(ErrorCode::invalid_argument,
                   fmt::format("this processor does not support the kernels '{}'", name));
    }
    names.append(names.empty() ? "" : ", ").append(table->name);
  }
  return Error(ErrorCode::invalid_argument,
               fmt::format("unknown kernels '{}': expected one of {}", name, names));
}

}  // namespace moeflux
