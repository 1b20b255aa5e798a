#include "cli/exit_code.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace moeflux::cli {
namespace {

TEST(ExitCode, FollowsFromTheErrorCode) {
  const std::vector<std::pair<ErrorCode, int>> expected{
      {ErrorCode::not_found, 3},   {ErrorCode::corrupt_data, 3},     {ErrorCode::unsupported, 3},
      {ErrorCode::no_space, 4},    {ErrorCode::out_of_memory, 4},    {ErrorCode::io_failed, 5},
      {ErrorCode::cancelled, 130}, {ErrorCode::invalid_argument, 2},
  };
  for (const auto& [code, exit] : expected)
    EXPECT_EQ(static_cast<int>(exit_code_of(Error{code, ""})), exit) << name_of(code);
  EXPECT_EQ(static_cast<int>(ExitCode::ok), 0);
}

}  // namespace
}  // namespace moeflux::cli
