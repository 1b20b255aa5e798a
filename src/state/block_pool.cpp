#include "state/block_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "base/arithmetic.h"
#include "base/check.h"
#include "base/sizes.h"

namespace moeflux {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kMostSlabBytes = 8 * kMiB;  // or one block if that is larger
// A slab of several blocks takes at most this part of the budget, so that a slab of one size, nearly unused,
// does not take the room for blocks of another.
constexpr std::uint64_t kLeastSlabsPerBudget = 128;
constexpr std::size_t kReservedSizeClasses = 16;

}  // namespace

struct BlockRef::Block {
  BlockPool* pool = nullptr;
  BlockPool::Slab* slab = nullptr;
  float* data = nullptr;
  Block* next_free = nullptr;  // while the block is free
  std::atomic<std::uint32_t> owners = 0;
  std::uint32_t filled = 0;
};

// The slab and the blocks after it lie in `metadata`.
struct BlockPool::Slab {
  AlignedBuffer metadata;
  HugeBuffer memory;
  std::size_t size = 0;  // of a block
  std::size_t blocks = 0, free_blocks = 0;
  BlockRef::Block* free = nullptr;
  Slab* newer = nullptr;  // neighbors in a SlabList
  Slab* older = nullptr;
};

void BlockPool::SlabList::push(Slab* slab) {
  slab->newer = nullptr;
  slab->older = front;
  if (front != nullptr) front->newer = slab;
  front = slab;
}

void BlockPool::SlabList::remove(Slab* slab) {
  (slab->newer != nullptr ? slab->newer->older : front) = slab->older;
  if (slab->older != nullptr) slab->older->newer = slab->newer;
}

BlockRef::BlockRef(const BlockRef& other) noexcept : block_(other.block_) {
  if (block_ != nullptr) block_->owners.fetch_add(1, std::memory_order_relaxed);
}

BlockRef::~BlockRef() {
  // The thread that drops the last share sees what the other owners wrote.
  if (block_ != nullptr && block_->owners.fetch_sub(1, std::memory_order_acq_rel) == 1)
    block_->pool->release(block_);
}

float* BlockRef::data() const { return block_->data; }
std::size_t BlockRef::bytes() const { return block_ != nullptr ? block_->slab->size : 0; }
std::uint32_t BlockRef::filled() const { return block_->filled; }
void BlockRef::set_filled(std::uint32_t rows) const { block_->filled = rows; }
bool BlockRef::is_shared() const { return block_->owners.load(std::memory_order_acquire) != 1; }

BlockPool::BlockPool(std::uint64_t budget_bytes) : budget_bytes_(budget_bytes) {
  classes_.reserve(kReservedSizeClasses);
}

BlockPool::~BlockPool() {
  const Lock lock(mutex_);
  MF_REQUIRE(used_bytes_ == 0, "a pool outlives its blocks");
  return_empty_slabs();
}

std::size_t BlockPool::block_bytes(std::size_t size) { return divide_up(size, kAlignment) * kAlignment; }

std::uint64_t BlockPool::budget_for(std::uint64_t block_bytes, std::uint64_t sizes) {
  // Twice the slab of a budget without this addition, because a larger budget has larger slabs.
  return block_bytes +
         sizes * std::min<std::uint64_t>(kMostSlabBytes, 2 * block_bytes / kLeastSlabsPerBudget);
}

BlockPool::SizeClass& BlockPool::class_of(std::size_t size) {
  const auto found = std::ranges::find(classes_, size, &SizeClass::size);
  if (found != classes_.end()) return *found;
  classes_.emplace_back().size = size;
  return classes_.back();
}

std::size_t BlockPool::blocks_in_next_slab(std::size_t size) const {
  const std::uint64_t budget = budget_bytes();
  const std::uint64_t left = budget - std::min(slab_bytes_, budget);
  const std::uint64_t wanted = std::min<std::uint64_t>(kMostSlabBytes, budget / kLeastSlabsPerBudget);
  return static_cast<std::size_t>(std::min(std::max<std::uint64_t>(wanted, size), left) / size);
}

Status BlockPool::grow(SizeClass& size_class) {
  const std::size_t size = size_class.size;
  if (blocks_in_next_slab(size) == 0) return_empty_slabs();
  const std::size_t count = blocks_in_next_slab(size);
  if (count == 0)
    return Error(ErrorCode::out_of_memory,
                 fmt::format("states of sessions: no room for a block of {}; all sessions use {} of a budget "
                             "of {}; end a session or raise the budget",
                             human_bytes(size), human_bytes(slab_bytes_), human_bytes(budget_bytes())));
  MF_TRY(HugeBuffer memory, HugeBuffer::create(count * size));
  MF_TRY(AlignedBuffer metadata, AlignedBuffer::create(sizeof(Slab) + count * sizeof(BlockRef::Block)));
  Slab* const slab = new (metadata.data()) Slab;
  auto* const blocks = reinterpret_cast<BlockRef::Block*>(metadata.data() + sizeof(Slab));
  for (std::size_t i = count; i-- > 0;) {
    BlockRef::Block* const block = new (blocks + i) BlockRef::Block;
    block->pool = this;
    block->slab = slab;
    block->data = reinterpret_cast<float*>(memory.data() + i * size);
    block->next_free = std::exchange(slab->free, block);
  }
  slab->metadata = std::move(metadata);
  slab->memory = std::move(memory);
  slab->size = size;
  slab->blocks = slab->free_blocks = count;
  size_class.empty.push(slab);
  size_class.free_blocks += count;
  slab_bytes_ += count * size;
  publish();
  return {};
}

void BlockPool::return_slab(SizeClass& size_class, Slab* slab) {
  size_class.empty.remove(slab);
  size_class.free_blocks -= slab->blocks;
  slab_bytes_ -= slab->blocks * slab->size;
  publish();
  const AlignedBuffer metadata = std::move(slab->metadata);  // freed last: the slab lies in it
  std::destroy_at(slab);
}

void BlockPool::return_empty_slabs() {
  for (SizeClass& size_class : classes_)
    while (size_class.empty.front != nullptr) return_slab(size_class, size_class.empty.front);
}

Result<BlockRef> BlockPool::acquire(std::size_t size) {
  const Lock lock(mutex_);
  SizeClass& size_class = class_of(block_bytes(size));
  if (size_class.free_blocks == 0) MF_TRY_STATUS(grow(size_class));
  Slab* slab = size_class.open.front;
  if (slab == nullptr) {
    slab = size_class.empty.front;
    size_class.empty.remove(slab);
    size_class.open.push(slab);
  }
  BlockRef::Block* const block = std::exchange(slab->free, slab->free->next_free);
  if (--slab->free_blocks == 0) size_class.open.remove(slab);
  --size_class.free_blocks;
  ++size_class.used_blocks;
  used_bytes_ += size_class.size;
  publish();
  block->owners.store(1, std::memory_order_relaxed);
  block->filled = 0;
  return BlockRef(block);
}

void BlockPool::release(BlockRef::Block* block) {
  const Lock lock(mutex_);
  Slab* const slab = block->slab;
  SizeClass& size_class = class_of(slab->size);
  block->next_free = std::exchange(slab->free, block);
  if (slab->free_blocks++ == 0) size_class.open.push(slab);
  ++size_class.free_blocks;
  --size_class.used_blocks;
  used_bytes_ -= slab->size;
  publish();
  if (slab->free_blocks < slab->blocks) return;
  size_class.open.remove(slab);
  size_class.empty.push(slab);
  while (size_class.empty.front != nullptr &&
         size_class.free_blocks >
             std::max<std::uint64_t>(size_class.used_blocks, size_class.empty.front->blocks))
    return_slab(size_class, size_class.empty.front);
}

Result<const float*> BlockPool::zeros(std::size_t size) {
  const Lock lock(mutex_);
  for (const HugeBuffer& buffer : zeros_)
    if (buffer.size() >= size) return reinterpret_cast<const float*>(buffer.data());
  MF_TRY(HugeBuffer buffer, HugeBuffer::create(size));
  zeros_.push_back(std::move(buffer));
  return reinterpret_cast<const float*>(std::as_const(zeros_.back()).data());
}

void BlockPool::publish() { published_.publish({used_bytes_, slab_bytes_}); }

PoolUsage BlockPool::usage() const {
  const Taken taken = published_.read();
  return {taken.used_bytes, taken.slab_bytes, budget_bytes()};
}

}  // namespace moeflux
