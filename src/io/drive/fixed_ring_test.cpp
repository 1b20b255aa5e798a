#include "io/drive/fixed_ring.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <deque>

#include "base/testing/expect_contract.h"

namespace moeflux {
namespace {

RC_GTEST_PROP(FixedRing, IsAQueue, (std::vector<bool> pushes)) {
  FixedRing<int> ring(5);
  std::deque<int> queue;
  int next = 0;
  for (const bool push : pushes) {
    if (push && queue.size() < ring.capacity()) {
      ring.push(next);
      queue.push_back(next++);
    } else if (!push && !queue.empty()) {
      RC_ASSERT(ring.front() == queue.front());
      RC_ASSERT(ring.pop() == queue.front());
      queue.pop_front();
    }
    RC_ASSERT(ring.size() == queue.size());
    RC_ASSERT(ring.empty() == queue.empty());
  }
}

TEST(FixedRing, ChecksThatItIsNeitherEmptyNorFull) {
  FixedRing<int> ring(1);
  EXPECT_CONTRACT(ring.pop(), "the ring is not empty");
  ring.push(1);
  EXPECT_CONTRACT(ring.push(2), "the ring is not full");
}

}  // namespace
}  // namespace moeflux
