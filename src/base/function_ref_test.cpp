#include "base/function_ref.h"

#include <gtest/gtest.h>

#include <memory>
#include <type_traits>

namespace moeflux {
namespace {

int twice(FunctionRef<int(int)> f) { return f(f(1)); }
int add_ten(int x) { return x + 10; }

struct Tripler {
  int operator()(int x) const { return 3 * x; }
};

TEST(FunctionRef, CallsLambdasFunctorsAndFunctions) {
  int calls = 0;
  const Tripler tripler;
  int (*pointer)(int) = add_ten;
  EXPECT_EQ(twice([&](int x) { return ++calls + x; }), 4);
  EXPECT_EQ(twice(tripler), 9);
  EXPECT_EQ(twice(add_ten), 21);
  EXPECT_EQ(twice(&add_ten), 21);
  EXPECT_EQ(twice(pointer), 21);
  EXPECT_EQ(calls, 2);
}

TEST(FunctionRef, RefersToItsCallableInsteadOfCopyingIt) {
  int state = 0;
  auto counter = [state]() mutable { return ++state; };
  const FunctionRef<int()> ref = counter;
  const FunctionRef<int()> copy = ref;
  EXPECT_EQ(ref(), 1);
  EXPECT_EQ(copy(), 2);
  EXPECT_EQ(counter(), 3);
}

TEST(FunctionRef, ForwardsReferencesAndMoveOnlyValues) {
  auto assign = [](std::unique_ptr<int> from, int& to) { to = *from; };
  int stored = 0;
  const FunctionRef<void(std::unique_ptr<int>, int&)> store = assign;
  store(std::make_unique<int>(7), stored);
  EXPECT_EQ(stored, 7);
}

TEST(FunctionRef, AcceptsOnlyCallablesWithItsSignature) {
  static_assert(std::is_convertible_v<Tripler, FunctionRef<int(int)>>);
  static_assert(std::is_convertible_v<Tripler, FunctionRef<void(int)>>);
  static_assert(!std::is_convertible_v<Tripler, FunctionRef<int(std::unique_ptr<int>)>>);
  static_assert(!std::is_convertible_v<int, FunctionRef<int(int)>>);
  static_assert(std::is_trivially_copyable_v<FunctionRef<int(int)>>);
}

}  // namespace
}  // namespace moeflux
