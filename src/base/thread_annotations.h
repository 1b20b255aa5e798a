#pragma once
// Locks that clang can check.
//
// Mutex, Lock and CondVar are the standard ones with clang's thread-safety attributes: a member states which
// mutex guards it, a private function states which one it needs, and clang rejects an access without it
// (-Wthread-safety). Other compilers see no attributes.
//
//   Mutex mutex_;
//   std::vector<Slot> slots_ MF_GUARDED_BY(mutex_);
//   Slot& oldest() MF_REQUIRES(mutex_);
//
// The analysis does not look into lambdas, so waiting is written as a loop, not with a predicate:
//   Lock lock(mutex_);
//   while (queue_.empty()) filled_.wait(mutex_);

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define MF_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define MF_THREAD_ATTRIBUTE(x)
#endif

#define MF_CAPABILITY(name) MF_THREAD_ATTRIBUTE(capability(name))
#define MF_SCOPED_CAPABILITY MF_THREAD_ATTRIBUTE(scoped_lockable)
#define MF_GUARDED_BY(mutex) MF_THREAD_ATTRIBUTE(guarded_by(mutex))
#define MF_POINTEE_GUARDED_BY(mutex) MF_THREAD_ATTRIBUTE(pt_guarded_by(mutex))
#define MF_REQUIRES(...) MF_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))  // called with it held
#define MF_EXCLUDES(...) MF_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))       // called without it
#define MF_ACQUIRE(...) MF_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define MF_RELEASE(...) MF_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))

namespace moeflux {

class MF_CAPABILITY("mutex") Mutex {
 public:
  void lock() MF_ACQUIRE() { mutex_.lock(); }
  void unlock() MF_RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a mutex during its lifetime.
class MF_SCOPED_CAPABILITY Lock {
 public:
  explicit Lock(Mutex& mutex) MF_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~Lock() MF_RELEASE() { mutex_.unlock(); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Mutex& mutex_;
};

// A wait releases the mutex while it sleeps and holds it again when it returns. Spurious wakeups are
// possible.
class CondVar {
 public:
  void wait(Mutex& mutex) MF_REQUIRES(mutex) {
    std::unique_lock held(mutex.mutex_, std::adopt_lock);
    condition_.wait(held);
    held.release();
  }

  // False if `deadline` passed first.
  bool wait_until(Mutex& mutex, std::chrono::steady_clock::time_point deadline) MF_REQUIRES(mutex) {
    std::unique_lock held(mutex.mutex_, std::adopt_lock);
    const bool notified = condition_.wait_until(held, deadline) == std::cv_status::no_timeout;
    held.release();
    return notified;
  }

  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace moeflux
