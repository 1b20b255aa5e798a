#pragma once
// Owning buffers for bytes that devices and kernels access.
//
// AlignedBuffer: heap memory with the given alignment, by default 4096, which direct reads need. The contents
// are indeterminate until written.
// HugeBuffer: zero-filled anonymous pages with 2 MiB alignment, advised to be huge pages, because every token
// reads all resident weights and 4 KiB pages would cost TLB misses. If the system refuses huge pages, the
// buffer works the same, but slower. It lies between inaccessible pages, so an access past either end is a
// fault.
//
// Both are empty (size 0, no memory) by default and after a move. A failed allocation is out_of_memory, never
// an exception. One thread at a time; the caller synchronizes accesses to the bytes.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/result.h"

namespace moeflux {

class AlignedBuffer {
 public:
  static constexpr std::size_t kAlignment = 4096;

  // Requires: `alignment` is a power of two and at least that of a pointer.
  static Result<AlignedBuffer> create(std::size_t size, std::size_t alignment = kAlignment);

  AlignedBuffer() = default;
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::move(other.data_)), size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    data_ = std::move(other.data_);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  std::size_t size() const { return size_; }
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  std::span<std::byte> bytes() { return {data(), size_}; }
  std::span<const std::byte> bytes() const { return {data(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };

  AlignedBuffer(std::byte* data, std::size_t size) : data_(data), size_(size) {}

  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;
};

enum class HugePages { refused, advised };

class HugeBuffer {
 public:
  static constexpr std::size_t kAlignment = std::size_t{2} << 20;

  static Result<HugeBuffer> create(std::size_t size);

  HugeBuffer() = default;
  HugeBuffer(HugeBuffer&& other) noexcept { swap(other); }
  HugeBuffer& operator=(HugeBuffer&& other) noexcept {
    HugeBuffer(std::move(other)).swap(*this);
    return *this;
  }
  ~HugeBuffer();

  std::size_t size() const { return size_; }
  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::span<std::byte> bytes() { return {data_, size_}; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // Whether the system accepted the advice. It grants huge pages one by one as they are first written, unless
  // free memory is fragmented. Reads a file: for reports, not for loops.
  HugePages huge_pages() const;

  // How many bytes of the buffer are in huge pages now, according to /proc/self/smaps; 0 if that is not
  // available. Reads a file: for reports, not for loops.
  std::uint64_t granted_huge_bytes() const;

 private:
  void swap(HugeBuffer& other) noexcept;

  std::byte* reservation_ = nullptr;  // the whole mapping: the data and the inaccessible pages around it
  std::size_t reserved_ = 0;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  bool is_advised_ = false;
};

}  // namespace moeflux
