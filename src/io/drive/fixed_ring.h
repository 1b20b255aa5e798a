#pragma once
// A FIFO queue of fixed capacity, which allocates only in its constructor. One thread at a time.

#include <cstddef>
#include <vector>

#include "base/check.h"

namespace moeflux {

template <class T>
class FixedRing {
 public:
  explicit FixedRing(std::size_t capacity) : items_(capacity) {}

  std::size_t capacity() const { return items_.size(); }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  void push(const T& item) {
    MF_REQUIRE(size_ < items_.size(), "the ring is not full");
    items_[(first_ + size_) % items_.size()] = item;
    ++size_;
  }
  const T& front() const {
    MF_REQUIRE(size_ > 0, "the ring is not empty");
    return items_[first_];
  }
  T pop() {
    T item = front();
    first_ = (first_ + 1) % items_.size();
    --size_;
    return item;
  }

 private:
  std::vector<T> items_;
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

}  // namespace moeflux
