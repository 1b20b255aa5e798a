#pragma once
// Scratch memory for one forward pass: a bump allocator with scopes.
//
// Its size is computed once, with bytes_for(), and never grows; taking more than that is a contract
// violation, not a runtime error. It lies in huge pages where the system grants them: the rows of a prompt
// take tens of megabytes, and 4 KiB pages made a prompt of 512 tokens 2 to 4 % slower. The end of a Scope
// releases everything taken since its start; scopes nest like blocks. Memory taken outside of any scope is
// never released.
//
//   Workspace::Scope scratch(workspace);
//   const std::span<float> normed = workspace.take<float>(dim);   // 64-byte aligned, indeterminate contents
//
// Owns its memory. One thread at a time. Must not be moved while a Scope is open.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "base/arithmetic.h"
#include "base/check.h"
#include "base/memory/aligned_buffer.h"
#include "base/result.h"

namespace moeflux {

class Workspace {
 public:
  static constexpr std::size_t kAlignment = 64;

  static Result<Workspace> create(std::size_t capacity) {
    MF_TRY(HugeBuffer memory, HugeBuffer::create(capacity));
    return Workspace(std::move(memory));
  }

  // A workspace without memory, to measure how much a computation takes: see high_water(). The spans that it
  // returns must not be accessed.
  static Workspace measuring() {
    Workspace workspace{HugeBuffer()};
    workspace.is_measuring_ = true;
    return workspace;
  }

  // The bytes that take<T>(count) uses, including padding, or nullopt if they do not fit 64 bits. The
  // capacity of a workspace is the checked sum of these.
  template <class T>
  static std::optional<std::uint64_t> bytes_for(std::uint64_t count) {
    // NOLINTNEXTLINE(bugprone-sizeof-expression): T may be a pointer
    const auto bytes = checked_multiply(count, sizeof(T));
    const auto padded = bytes ? checked_add(*bytes, kAlignment - 1) : std::nullopt;
    if (!padded) return std::nullopt;
    return *padded / kAlignment * kAlignment;
  }

  // `count` elements, reserved until the innermost open scope ends.
  template <class T>
  std::span<T> take(std::size_t count) {
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>,
                  "a workspace holds plain data: it runs no constructors or destructors");
    static_assert(alignof(T) <= kAlignment);
    const auto bytes = bytes_for<T>(count);
    MF_REQUIRE(bytes && *bytes <= capacity() - used_, "the workspace was planned for what is taken from it");
    std::byte* const begin = base() + used_;
    used_ += *bytes;
    high_water_ = std::max(high_water_, used_);
    return {reinterpret_cast<T*>(begin), count};
  }

  bool is_measuring() const { return is_measuring_; }
  std::size_t capacity() const {
    return is_measuring_ ? kMeasurable : memory_.size() / kAlignment * kAlignment;
  }
  std::size_t used() const { return used_; }

  // The peak of used(). Capacity above this is never needed.
  std::size_t high_water() const { return high_water_; }

  class Scope {
   public:
    explicit Scope(Workspace& workspace) : workspace_(workspace), used_before_(workspace.used_) {}
    ~Scope() {
      MF_REQUIRE(workspace_.used_ >= used_before_, "workspace scopes end in the opposite order they began");
      workspace_.used_ = used_before_;
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Workspace& workspace_;
    std::size_t used_before_;
  };

 private:
  static constexpr std::size_t kMeasurable = std::size_t{1} << 62;

  explicit Workspace(HugeBuffer memory) : memory_(std::move(memory)) {}

  // When measuring, an address without memory, so that spans taken at the same time still do not overlap.
  std::byte* base() { return is_measuring_ ? reinterpret_cast<std::byte*>(kAlignment) : memory_.data(); }

  HugeBuffer memory_;
  bool is_measuring_ = false;
  std::size_t used_ = 0;
  std::size_t high_water_ = 0;
};

}  // namespace moeflux
