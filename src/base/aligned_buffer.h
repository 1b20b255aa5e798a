#pragma once
// Owned memory for bytes that devices and kernels touch.
//
// AlignedBuffer: ordinary memory at a stated alignment, 4096 unless asked otherwise because direct reads
// demand it. Its contents are indeterminate until written.
// HugeBuffer: zero-filled anonymous pages at 2 MiB alignment, with huge pages asked for: resident weights
// are read from end to end for every token, and 4 KiB pages would spend that on the TLB. Where the system
// refuses huge pages the buffer is the same memory, slower. It lies between inaccessible pages, so
// running off either end is a fault.
//
// Both are empty (size 0, no memory) by default and after being moved from. Failing to allocate is
// out_of_memory, never an exception. One thread at a time; the bytes themselves are the caller's to share.

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

  // `alignment` is a power of two, at least that of a pointer.
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

  // Whether the system took the advice. Pages are granted one by one as they are first written, as far
  // as free memory is not fragmented. Reads a file: for reports, not for loops.
  HugePages huge_pages() const;

  // How much of the memory lies in huge pages at this moment, as /proc/self/smaps tells it; 0 where it
  // does not. Reads a file: for reports, not for loops.
  std::uint64_t granted_huge_bytes() const;

 private:
  void swap(HugeBuffer& other) noexcept;

  std::byte* reservation_ = nullptr;  // what munmap takes: the data and the inaccessible pages around it
  std::size_t reserved_ = 0;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  bool is_advised_ = false;
};

}  // namespace moeflux
