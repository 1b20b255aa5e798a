#include "io/file_lock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "io/temporary_directory.h"

namespace moeflux {
namespace {

TEST(FileLock, LetsOneIntoTheRoomAtATime) {
  const TemporaryDirectory temporary;
  std::atomic<int> in_the_room = 0,
                   visits = 0;  // atomic, because the language knows nothing of locks on files
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int visit = 0; visit < 50; ++visit) {
        const Result<FileLock> lock = FileLock::acquire(temporary / "lock");
        ASSERT_TRUE(lock) << lock.error().message();
        EXPECT_EQ(++in_the_room, 1);
        ++visits;
        --in_the_room;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(visits, 200);
}

TEST(FileLock, WithoutADirectoryNamesThePath) {
  const TemporaryDirectory temporary;
  const Result<FileLock> lock = FileLock::acquire(temporary / "nowhere" / "lock");
  ASSERT_FALSE(lock);
  EXPECT_EQ(lock.error().code(), ErrorCode::not_found);
  EXPECT_NE(lock.error().message().find("nowhere/lock"), std::string::npos);
}

}  // namespace
}  // namespace moeflux
