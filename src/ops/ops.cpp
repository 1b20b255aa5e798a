#include "ops/ops.h"

#include <algorithm>
#include <new>

#include "base/arithmetic.h"

namespace moeflux {

std::string_view name_of(Precision precision) {
  switch (precision) {
    case Precision::exact: return "exact";
    case Precision::fast: return "fast";
  }
  return "unknown";
}

// Rows begin at cache lines. A stride that is a multiple of 4096 bytes would map the same column of all rows
// to the same few cache sets (half the speed in the int8 prototype of docs/decisions/0004), so such rows get
// one more line.
Rows Ops::take(std::uint32_t count, std::uint32_t cols) {
  constexpr std::uint64_t kLineFloats = 16;
  std::uint64_t stride = divide_up<std::uint64_t>(cols, kLineFloats) * kLineFloats;
  if (count > 1 && stride % 1024 == 0) stride += kLineFloats;
  return {workspace_.take<float>(count * stride).data(), count, cols, stride};
}

std::byte* Ops::measured_host(std::size_t size) {
  Result<AlignedBuffer> buffer = AlignedBuffer::create(std::max<std::size_t>(size, 1), Workspace::kAlignment);
  if (!buffer) throw std::bad_alloc();
  return measured_host_.emplace_back(*std::move(buffer)).data();
}

}  // namespace moeflux
