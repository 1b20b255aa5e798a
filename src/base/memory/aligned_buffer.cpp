#include "base/memory/aligned_buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <bit>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>

#include "base/arithmetic.h"
#include "base/check.h"
#include "base/sizes.h"

namespace moeflux {
namespace {

Error no_memory_for(std::size_t size, std::string_view kind) {
  return Error(ErrorCode::out_of_memory, fmt::format("cannot allocate {} bytes ({}) of {} memory",
                                                     with_thousands(size), human_bytes(size), kind));
}

// If "never" is selected, madvise() succeeds and has no effect.
bool huge_pages_are_off() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string choices;
  return std::getline(file, choices) && choices.find("[never]") != std::string::npos;
}

}  // namespace

Result<AlignedBuffer> AlignedBuffer::create(std::size_t size, std::size_t alignment) {
  MF_REQUIRE(std::has_single_bit(alignment) && alignment >= alignof(void*),
             "alignment is a power of two, at least that of a pointer");
  if (size == 0) return AlignedBuffer();
  void* memory = nullptr;
  if (::posix_memalign(&memory, alignment, size) != 0) return no_memory_for(size, "aligned");
  return AlignedBuffer(static_cast<std::byte*>(memory), size);
}

void AlignedBuffer::Free::operator()(std::byte* memory) const { std::free(memory); }

Result<HugeBuffer> HugeBuffer::create(std::size_t size) {
  HugeBuffer buffer;
  if (size == 0) return buffer;

  // Reserve address space for whole huge pages and one more on each side, and make the aligned middle
  // accessible. The inaccessible rest also keeps the kernel from merging neighboring mappings into one area,
  // which granted_huge_bytes() relies on.
  const std::size_t pages = divide_up(size, kAlignment);
  const auto reserved = checked_multiply(pages + 2, kAlignment);
  if (!reserved) return no_memory_for(size, "anonymous");
  void* const reservation =
      ::mmap(nullptr, *reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reservation == MAP_FAILED) return no_memory_for(size, "anonymous");
  buffer.reservation_ = static_cast<std::byte*>(reservation);
  buffer.reserved_ = *reserved;

  const std::size_t past_boundary = reinterpret_cast<std::uintptr_t>(reservation) % kAlignment;
  std::byte* const data = buffer.reservation_ + (kAlignment - past_boundary);
  if (::mprotect(data, pages * kAlignment, PROT_READ | PROT_WRITE) != 0) {
    return no_memory_for(size, "anonymous");
  }
  buffer.data_ = data;
  buffer.size_ = size;
  buffer.is_advised_ = ::madvise(data, pages * kAlignment, MADV_HUGEPAGE) == 0;
  return buffer;
}

HugePages HugeBuffer::huge_pages() const {
  return is_advised_ && !huge_pages_are_off() ? HugePages::advised : HugePages::refused;
}

HugeBuffer::~HugeBuffer() {
  if (reservation_ != nullptr) ::munmap(reservation_, reserved_);
}

void HugeBuffer::swap(HugeBuffer& other) noexcept {
  std::swap(reservation_, other.reservation_);
  std::swap(reserved_, other.reserved_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(is_advised_, other.is_advised_);
}

std::uint64_t HugeBuffer::granted_huge_bytes() const {
  // Each area is a line "begin-end permissions ..." followed by lines "Name:   number kB".
  const auto first = reinterpret_cast<std::uintptr_t>(data_);
  std::ifstream areas("/proc/self/smaps");
  bool ours = false;
  std::uint64_t granted = 0;
  for (std::string line; data_ != nullptr && std::getline(areas, line);) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    std::uint64_t kib = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) {
      ours = begin >= first && begin < first + size_;
    } else if (ours && std::sscanf(line.c_str(), "AnonHugePages: %" SCNu64, &kib) == 1) {
      granted += kib * kKiB;
    }
  }
  return granted;
}

}  // namespace moeflux
