#include "base/thread_annotations.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace moeflux {
namespace {

class Counter {
 public:
  void add() MF_EXCLUDES(mutex_) {
    Lock lock(mutex_);
    ++count_;
    changed_.notify_all();
  }

  void wait_for(int count) MF_EXCLUDES(mutex_) {
    Lock lock(mutex_);
    while (count_ < count) changed_.wait(mutex_);
  }

  // False if nothing changes before `deadline`.
  bool wait_until(std::chrono::steady_clock::time_point deadline) MF_EXCLUDES(mutex_) {
    Lock lock(mutex_);
    return changed_.wait_until(mutex_, deadline);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int count_ MF_GUARDED_BY(mutex_) = 0;
};

TEST(Mutex, ExcludesThreadsAndCondVarNotifiesThem) {
  Counter counter;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) counter.add();
    });
  }
  counter.wait_for(400);
  for (std::thread& thread : threads) thread.join();
}

TEST(CondVar, StopsWaitingAtTheDeadline) {
  Counter counter;
  EXPECT_FALSE(counter.wait_until(std::chrono::steady_clock::time_point::min()));
  counter.add();  // the mutex was released
}

}  // namespace
}  // namespace moeflux
