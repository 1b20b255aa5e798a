#include "io/file_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/testing/states.h"
#include "io/testing/temporary_directory.h"

namespace moeflux {
namespace {

TEST(FileLock, IsHeldByOneThreadAtATime) {
  const TemporaryDirectory temporary;
  std::atomic<int> holders = 0, acquisitions = 0;  // atomic: the memory model does not know file locks
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        const Result<FileLock> lock = FileLock::acquire(temporary / "lock");
        ASSERT_TRUE(lock) << lock.error().message();
        EXPECT_EQ(++holders, 1);
        ++acquisitions;
        --holders;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(acquisitions, 200);
}

TEST(FileLock, NamesThePathIfItsDirectoryIsMissing) {
  const TemporaryDirectory temporary;
  const Result<FileLock> lock = FileLock::acquire(temporary / "nowhere" / "lock");
  ASSERT_FALSE(lock);
  EXPECT_EQ(lock.error().code(), ErrorCode::not_found);
  EXPECT_THAT(lock, test::States("nowhere/lock", "No such file or directory"));
}

}  // namespace
}  // namespace moeflux
