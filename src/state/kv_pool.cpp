#include "state/kv_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/arithmetic.h"
#include "base/sizes.h"

namespace moeflux {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kSlabBytes = 8 * kMiB;  // at least, and at least one block
constexpr std::size_t kReservedSlabs = 1024;  // until then growing allocates nothing on the heap
constexpr std::size_t kReservedSizeClasses = 16;

std::size_t padded(std::size_t size) { return divide_up(size, kAlignment) * kAlignment; }

}  // namespace

KvPool::KvPool(std::uint64_t budget_bytes) : budget_bytes_(budget_bytes) {
  slabs_.reserve(kReservedSlabs);
  classes_.reserve(kReservedSizeClasses);
}

KvPool::SizeClass& KvPool::class_of(std::size_t size) {
  const auto found = std::ranges::find(classes_, size, &SizeClass::size);
  if (found != classes_.end()) return *found;
  return classes_.emplace_back(SizeClass{size, nullptr});
}

Status KvPool::grow(SizeClass& size_class) {
  const std::size_t count = std::max<std::size_t>(1, kSlabBytes / size_class.size);
  MF_TRY(HugeBuffer slab, HugeBuffer::create(count * size_class.size));
  for (std::size_t i = count; i-- > 0;) {
    auto* const block = reinterpret_cast<FreeBlock*>(slab.data() + i * size_class.size);
    block->next = size_class.free;
    size_class.free = block;
  }
  slabs_.push_back(std::move(slab));
  return {};
}

Result<std::byte*> KvPool::acquire(std::size_t size) {
  const Lock lock(mutex_);
  SizeClass& size_class = class_of(padded(size));
  if (size_class.size > budget_bytes_ - std::min(used_bytes_, budget_bytes_)) {
    return Error(
        ErrorCode::out_of_memory,
        fmt::format("the keys and values of all sessions take {} of their {}; a block of {} more does not "
                    "fit; end a session or give them more",
                    human_bytes(used_bytes_), human_bytes(budget_bytes_), human_bytes(size_class.size)));
  }
  if (size_class.free == nullptr) MF_TRY_STATUS(grow(size_class));
  FreeBlock* const block = size_class.free;
  size_class.free = block->next;
  used_bytes_ += size_class.size;
  return reinterpret_cast<std::byte*>(block);
}

void KvPool::release(std::byte* block, std::size_t size) {
  const Lock lock(mutex_);
  SizeClass& size_class = class_of(padded(size));
  auto* const free = reinterpret_cast<FreeBlock*>(block);
  free->next = size_class.free;
  size_class.free = free;
  used_bytes_ -= size_class.size;
}

std::uint64_t KvPool::used_bytes() const {
  const Lock lock(mutex_);
  return used_bytes_;
}

}  // namespace moeflux
