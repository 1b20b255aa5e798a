#include "cli/saved_how.h"

#include <gtest/gtest.h>

namespace moeflux::cli {
namespace {

constexpr SnapshotIdentity kHere{{}, 5, 1, 4, 0};

TEST(SavedHow, NamesAnotherLaw) {
  EXPECT_EQ(saved_how({{}, 4, 1, 4, 0}, kHere), "saved by an older version (law 4)");
  EXPECT_EQ(saved_how({{}, 6, 1, 4, 0}, kHere), "saved by a newer version (law 6)");
}

TEST(SavedHow, NamesTheFlagsOfTheSave) {
  EXPECT_EQ(saved_how({{}, 5, 0, 4, 0}, kHere), "saved with --precision exact");
  EXPECT_EQ(saved_how({{}, 5, 1, 4, 0}, {{}, 5, 0, 4, 0}), "saved with --precision fast");
  EXPECT_EQ(saved_how({{}, 5, 1, 3, 0}, kHere), "saved with --top-experts 3");
  EXPECT_EQ(saved_how({{}, 5, 1, 4, 1}, kHere), "saved with --kv bf16");
  EXPECT_EQ(saved_how({{}, 5, 1, 4, 2}, kHere), "saved with --kv int8");
  EXPECT_EQ(saved_how({{}, 5, 1, 4, 0}, {{}, 5, 1, 4, 1}), "saved with --kv f32");
}

TEST(SavedHow, NamesAllDifferencesAndUnknownNumbers) {
  EXPECT_EQ(saved_how({{}, 4, 7, 3, 9}, kHere),
            "saved by an older version (law 4) with --precision 7, --top-experts 3, --kv 9");
}

}  // namespace
}  // namespace moeflux::cli
