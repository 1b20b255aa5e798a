#pragma once
// What one rendering has spent of its limits.
//
// Steps and work only grow; memory is given back by the Charge of each value when it dies. One thread at a
// time.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "text/jinja/limits.h"

namespace moeflux::jinja {

class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  const Limits& limits() const { return limits_; }

  // `count` more nodes are evaluated.
  Status step(std::uint64_t count = 1);
  // An operation reads or writes `bytes`.
  Status work(std::uint64_t bytes);
  // A string or a container of `bytes` is about to be made.
  Status room(std::uint64_t bytes) const;
  // The error for a text that did not fit its builder.
  Error too_long() const;

  // Takes memory for a value; a Charge gives it back.
  Status take(std::size_t bytes);
  void give_back(std::size_t bytes) { memory_ -= bytes; }

 private:
  const Limits limits_;
  std::uint64_t nodes_ = 0;
  std::uint64_t work_ = 0;
  std::size_t memory_ = 0;
};

// Memory that is given back when the value that took it dies. Without a budget: of a template, not of a
// rendering.
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
