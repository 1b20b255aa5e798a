#include "measure/doctor.h"

#include <cstring>

#include "base/aligned_buffer.h"
#include "kernels/kernel_table.h"

namespace moeflux {
namespace {

std::vector<KernelsFound> find_kernels() {
  std::vector<KernelsFound> found;
  const auto chosen = select_kernels();
  for (const KernelTable* table : compiled_kernels())
    found.push_back({table->name, table->runs_here(), chosen && *chosen == table});
  return found;
}

// Pages are granted as they are first written, so all of them are.
HugePageProbe probe_huge_pages() {
  auto buffer = HugeBuffer::create(kHugePageProbeBytes);
  if (!buffer) return {};
  std::memset(buffer->data(), 1, buffer->size());
  return {buffer->size(), buffer->granted_huge_bytes()};
}

}  // namespace

Diagnosis diagnose(FileSystem& files) { return {read_machine(files), find_kernels(), probe_huge_pages()}; }

}  // namespace moeflux
