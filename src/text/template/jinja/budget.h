#pragma once
// A Budget counts what one rendering has used of its limits.
//
// Steps and work only grow; the Charge of each value returns its memory when the value is destroyed. One
// thread at a time.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "text/template/jinja/limits.h"

namespace moeflux::jinja {

class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  const Limits& limits() const { return limits_; }

  // Counts `count` evaluated nodes.
  Status step(std::uint64_t count = 1);
  // Counts an operation that reads or writes `bytes`.
  Status work(std::uint64_t bytes);
  // Checks the size of a string or container before it is made.
  Status room(std::uint64_t bytes) const;
  // The error for a text that exceeds its builder's limit.
  Error too_long() const;

  // Takes memory for a value; a Charge returns it.
  Status take(std::size_t bytes);
  void give_back(std::size_t bytes) { memory_ -= bytes; }

 private:
  const Limits limits_;
  std::uint64_t nodes_ = 0;
  std::uint64_t work_ = 0;
  std::size_t memory_ = 0;
};

// The memory of one value, returned to the budget on destruction. Has no budget if the value belongs to a
// template instead of a rendering.
class Charge {
 public:
  Charge() = default;
  Charge(Budget& budget, std::size_t bytes) : budget_(&budget), bytes_(bytes) {}
  Charge(Charge&& other) noexcept : budget_(std::exchange(other.budget_, nullptr)), bytes_(other.bytes_) {}
  Charge& operator=(Charge&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Charge() {
    if (budget_ != nullptr) budget_->give_back(bytes_);
  }

 private:
  Budget* budget_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace moeflux::jinja
