#include "state/kv_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/arithmetic.h"
#include "base/check.h"
#include "base/sizes.h"

namespace moeflux {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kSlabBytes = 8 * kMiB;  // or one block if that is larger
constexpr std::size_t kReservedSlabs = 1024;  // up to here, growing allocates nothing on the heap
constexpr std::size_t kReservedSizeClasses = 16;

}  // namespace

// Precedes the bytes of every block.
struct alignas(kAlignment) KvBlockRef::Header {
  KvPool* pool;
  std::size_t size;   // including the header
  Header* next_free;  // while the block is free
  std::atomic<std::uint32_t> owners;
  std::uint32_t filled;
};

KvBlockRef::KvBlockRef(const KvBlockRef& other) noexcept : header_(other.header_) {
  if (header_ != nullptr) header_->owners.fetch_add(1, std::memory_order_relaxed);
}

KvBlockRef::~KvBlockRef() {
  // The thread that drops the last share sees what the other owners wrote.
  if (header_ != nullptr && header_->owners.fetch_sub(1, std::memory_order_acq_rel) == 1)
    header_->pool->release(header_);
}

float* KvBlockRef::data() const { return reinterpret_cast<float*>(header_ + 1); }
std::uint32_t KvBlockRef::filled() const { return header_->filled; }
void KvBlockRef::set_filled(std::uint32_t rows) const { header_->filled = rows; }
bool KvBlockRef::is_shared() const { return header_->owners.load(std::memory_order_acquire) != 1; }

KvPool::KvPool(std::uint64_t budget_bytes) : budget_bytes_(budget_bytes) {
  slabs_.reserve(kReservedSlabs);
  classes_.reserve(kReservedSizeClasses);
}

KvPool::~KvPool() {
  const Lock lock(mutex_);
  MF_REQUIRE(used_bytes_ == 0, "a pool outlives its blocks");
}

std::size_t KvPool::block_bytes(std::size_t size) {
  return sizeof(KvBlockRef::Header) + divide_up(size, kAlignment) * kAlignment;
}

KvPool::SizeClass& KvPool::class_of(std::size_t size) {
  const auto found = std::ranges::find(classes_, size, &SizeClass::size);
  if (found != classes_.end()) return *found;
  return classes_.emplace_back(SizeClass{size, nullptr});
}

Status KvPool::grow(SizeClass& size_class) {
  const std::size_t count = std::max<std::size_t>(1, kSlabBytes / size_class.size);
  MF_TRY(HugeBuffer slab, HugeBuffer::create(count * size_class.size));
  for (std::size_t i = count; i-- > 0;)
    size_class.free = new (slab.data() + i * size_class.size)
        KvBlockRef::Header{this, size_class.size, size_class.free, 0, 0};
  slabs_.push_back(std::move(slab));
  return {};
}

Result<KvBlockRef> KvPool::acquire(std::size_t size) {
  const Lock lock(mutex_);
  SizeClass& size_class = class_of(block_bytes(size));
  if (size_class.size > budget_bytes_ - std::min(used_bytes_, budget_bytes_)) {
    return Error(
        ErrorCode::out_of_memory,
        fmt::format(
            "keys and values: no room for a block of {}; all sessions use {} of a budget of {}; end a "
            "session or raise the budget",
            human_bytes(size_class.size), human_bytes(used_bytes_), human_bytes(budget_bytes_)));
  }
  if (size_class.free == nullptr) MF_TRY_STATUS(grow(size_class));
  KvBlockRef::Header* const header = std::exchange(size_class.free, size_class.free->next_free);
  header->owners.store(1, std::memory_order_relaxed);
  header->filled = 0;
  used_bytes_ += size_class.size;
  return KvBlockRef(header);
}

void KvPool::release(KvBlockRef::Header* header) {
  const Lock lock(mutex_);
  SizeClass& size_class = class_of(header->size);
  header->next_free = std::exchange(size_class.free, header);
  used_bytes_ -= header->size;
}

std::uint64_t KvPool::used_bytes() const {
  const Lock lock(mutex_);
  return used_bytes_;
}

}  // namespace moeflux
