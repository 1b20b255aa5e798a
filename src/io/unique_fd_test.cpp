#include "io/unique_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <utility>

namespace moeflux {
namespace {

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) != -1; }

int open_null() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }

TEST(UniqueFd, ClosesInItsDestructor) {
  const int fd = open_null();
  {
    const UniqueFd owner(fd);
    EXPECT_TRUE(owner);
    EXPECT_TRUE(is_open(fd));
  }
  EXPECT_FALSE(is_open(fd));
}

TEST(UniqueFd, IsEmptyOnlyForMinusOne) {
  EXPECT_FALSE(UniqueFd());
  EXPECT_FALSE(UniqueFd(-1));
  const int saved_stdin = ::dup(0);
  {
    const UniqueFd zero(0);
    EXPECT_TRUE(zero);
  }
  if (saved_stdin != -1) {
    ::dup2(saved_stdin, 0);
    ::close(saved_stdin);
  }
}

TEST(UniqueFd, MovesTheDescriptor) {
  UniqueFd from(open_null());
  const int fd = from.get();
  const UniqueFd to(std::move(from));
  EXPECT_EQ(to.get(), fd);
  EXPECT_FALSE(from);  // NOLINT(bugprone-use-after-move): moved-from is empty
  EXPECT_TRUE(is_open(fd));
}

TEST(UniqueFd, ClosesItsOldDescriptorOnAssignment) {
  UniqueFd owner(open_null());
  const int first = owner.get();
  UniqueFd other(open_null());
  const int second = other.get();
  owner = std::move(other);
  EXPECT_FALSE(is_open(first));
  EXPECT_EQ(owner.get(), second);

  UniqueFd& same = owner;
  owner = std::move(same);
  EXPECT_EQ(owner.get(), second);
  EXPECT_TRUE(is_open(second));
}

}  // namespace
}  // namespace moeflux
