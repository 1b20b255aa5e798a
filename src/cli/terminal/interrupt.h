#pragma once
// Turns Ctrl-C during long work into a flag to poll, instead of ending the process.
//
// A guard counts SIGINT during its lifetime and then restores the previous handler. If SIGINT was ignored (a
// command in the background of a script), it stays ignored. Only one guard may exist at a time, because a
// process has one SIGINT. The count is global: an atomic that the handler may write on any thread.
//
// Threads: the kernel delivers the signal to any thread that does not block it. The handler restarts
// interrupted system calls (SA_RESTART), so other threads do not notice. Calls that are never restarted
// (poll, nanosleep, io_uring_enter) return EINTR in the thread that received the signal, so threads that make
// such calls should block SIGINT; start them while it is blocked. requested() and count() are thread-safe;
// construct and destroy guards on one thread.

#include <signal.h>

#include <atomic>

namespace moeflux::cli {

class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  bool requested() const { return count() > 0; }
  // The same as a flag for polling; valid as long as the guard.
  const std::atomic<bool>& flag() const;
  int count() const;  // Ctrl-C presses since construction

 private:
  struct sigaction previous_ {};
};

}  // namespace moeflux::cli
