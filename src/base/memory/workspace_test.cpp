#include "base/memory/workspace.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "base/testing/expect_contract.h"

namespace moeflux {
namespace {

Workspace workspace_of(std::size_t capacity) {
  auto workspace = Workspace::create(capacity);
  EXPECT_TRUE(workspace);
  return *std::move(workspace);
}

TEST(Workspace, ReturnsAlignedSpansThatDoNotOverlap) {
  Workspace workspace = workspace_of(1024);
  const std::span<float> floats = workspace.take<float>(3);
  const std::span<char> chars = workspace.take<char>(65);
  const std::span<double> doubles = workspace.take<double>(8);
  for (const void* const begin :
       {static_cast<const void*>(floats.data()), static_cast<const void*>(chars.data()),
        static_cast<const void*>(doubles.data())}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(begin) % Workspace::kAlignment, 0);
  }
  std::ranges::fill(floats, 1.5f);
  std::ranges::fill(chars, 'x');
  std::ranges::fill(doubles, 2.5);
  EXPECT_TRUE(std::ranges::all_of(floats, [](float f) { return f == 1.5f; }));
  EXPECT_TRUE(std::ranges::all_of(chars, [](char c) { return c == 'x'; }));
  EXPECT_EQ(workspace.used(), 64 + 128 + 64);
}

TEST(Workspace, ReleasesMemoryAtTheEndOfAScope) {
  Workspace workspace = workspace_of(256);
  const std::span<int> kept = workspace.take<int>(1);
  for (int pass = 0; pass < 3; ++pass) {
    Workspace::Scope outer(workspace);
    const std::span<int> first = workspace.take<int>(16);
    {
      Workspace::Scope inner(workspace);
      EXPECT_EQ(workspace.take<int>(16).data(), first.data() + 16);
    }
    EXPECT_EQ(workspace.take<int>(16).data(), first.data() + 16);
  }
  EXPECT_EQ(workspace.used(), 64);
  EXPECT_EQ(kept.size(), 1);
}

TEST(Workspace, MeasuresWhatTheSameStepsTake) {
  const auto take_some = [](Workspace& workspace) {
    Workspace::Scope outer(workspace);
    workspace.take<float>(100);
    {
      Workspace::Scope inner(workspace);
      workspace.take<char>(1);
    }
    workspace.take<double>(3);
  };
  Workspace measured = Workspace::measuring();
  take_some(measured);
  Workspace real = workspace_of(measured.high_water());
  take_some(real);
  EXPECT_EQ(real.high_water(), measured.high_water());
  EXPECT_EQ(real.capacity(), real.high_water());
  measured.take<std::byte>(std::size_t{1} << 40);  // allocates nothing
  EXPECT_GE(measured.high_water(), std::size_t{1} << 40);
}

TEST(Workspace, RemembersItsPeak) {
  Workspace workspace = workspace_of(1024);
  {
    Workspace::Scope scope(workspace);
    workspace.take<char>(512);
  }
  workspace.take<char>(64);
  EXPECT_EQ(workspace.used(), 64);
  EXPECT_EQ(workspace.high_water(), 512);
}

TEST(Workspace, ReturnsEmptySpansWithCapacityZero) {
  Workspace workspace = workspace_of(0);
  EXPECT_TRUE(workspace.take<float>(0).empty());
  EXPECT_CONTRACT(workspace.take<float>(1), "the workspace was planned");
}

TEST(Workspace, ForbidsTakingMoreThanPlanned) {
  Workspace workspace = workspace_of(128);
  workspace.take<char>(65);
  EXPECT_CONTRACT(workspace.take<char>(1), "the workspace was planned");
}

TEST(Workspace, ForbidsCountsThatWouldWrapAround) {
  Workspace workspace = workspace_of(128);
  constexpr std::size_t kMax = std::numeric_limits<std::size_t>::max();
  EXPECT_CONTRACT(workspace.take<double>(kMax / 8 + 2), "the workspace was planned");
  EXPECT_CONTRACT(workspace.take<char>(kMax), "the workspace was planned");
  EXPECT_FALSE(Workspace::bytes_for<double>(kMax / 8 + 2));
  EXPECT_FALSE(Workspace::bytes_for<char>(kMax));
}

RC_GTEST_PROP(Workspace, UsesExactlyWhatWasPlanned, ()) {
  const auto counts = *rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(0, 1000));
  std::uint64_t planned = 0;
  for (const std::size_t count : counts) planned += *Workspace::bytes_for<float>(count);
  Workspace workspace = workspace_of(planned);
  for (const std::size_t count : counts) RC_ASSERT(workspace.take<float>(count).size() == count);
  RC_ASSERT(workspace.used() == planned);
  RC_ASSERT(workspace.capacity() == planned);
}

}  // namespace
}  // namespace moeflux
