#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string_view>
#include <vector>

#include "base/testing/states.h"
#include "kernels/kernel_table.h"

namespace moeflux {
namespace {

using test::States;

TEST(CompiledKernels, EndWithTheScalarTable) {
  ASSERT_FALSE(compiled_kernels().empty());
  const KernelTable& last = *compiled_kernels().back();
  EXPECT_EQ(last.name, "scalar");
  EXPECT_TRUE(last.runs_here());
}

TEST(CompiledKernels, AreListedFastestFirst) {
#if defined(__x86_64__)
  std::vector<std::string_view> listed;
  for (const KernelTable* table : compiled_kernels()) listed.push_back(table->name);
  EXPECT_EQ(listed, (std::vector<std::string_view>{"avx512vnni", "avx512", "avxvnni", "avx2", "scalar"}));
#endif
  std::set<std::string_view> names;
  for (const KernelTable* table : compiled_kernels()) names.insert(table->name);
  EXPECT_EQ(names.size(), compiled_kernels().size());
}

TEST(CompiledKernels, HaveEveryFamily) {
  for (const KernelTable* table : compiled_kernels()) {
    EXPECT_NE(table->matmul, nullptr) << table->name;
    EXPECT_NE(table->int8, nullptr) << table->name;
    EXPECT_NE(table->rows, nullptr) << table->name;
    EXPECT_NE(table->attention, nullptr) << table->name;
    EXPECT_NE(table->byte_attention, nullptr) << table->name;
    EXPECT_NE(table->delta_net, nullptr) << table->name;
  }
}

TEST(SelectKernels, ReturnsTheFastestThatRunsHere) {
  const auto chosen = select_kernels();
  ASSERT_TRUE(chosen);
  for (const KernelTable* table : compiled_kernels()) {
    if (!table->runs_here()) continue;
    EXPECT_EQ(*chosen, table);
    break;
  }
}

TEST(SelectKernels, ReturnsTheTableOfAName) {
  for (const KernelTable* table : compiled_kernels()) {
    const auto chosen = select_kernels(table->name);
    if (table->runs_here()) {
      ASSERT_TRUE(chosen) << table->name;
      EXPECT_EQ(*chosen, table);
    } else {
      ASSERT_FALSE(chosen) << table->name;
      EXPECT_EQ(chosen.error().code(), ErrorCode::invalid_argument);
      EXPECT_THAT(chosen, States(table->name));
    }
  }
}

TEST(SelectKernels, RejectsAnUnknownNameAndListsTheTables) {
  for (const std::string_view name : {"avx1024", "Scalar", "scalar "}) {
    const auto chosen = select_kernels(name);
    ASSERT_FALSE(chosen) << name;
    EXPECT_EQ(chosen.error().code(), ErrorCode::invalid_argument);
    EXPECT_THAT(chosen, States(name));
    for (const KernelTable* table : compiled_kernels()) EXPECT_THAT(chosen, States(table->name));
  }
}

}  // namespace
}  // namespace moeflux
