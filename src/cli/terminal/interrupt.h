#pragma once
// Ctrl-C while something long runs: a flag that can be asked for, instead of the end of the process.
//
// From its making to its end, a guard counts SIGINT; then the handler from before is back. If SIGINT was
// ignored (a command in the background of a script), it stays so. There is one guard at a time, because there
// is one SIGINT of a process: the count is the one global variable behind it, an atomic that the handler may
// write in any thread.
//
// Threads: the kernel gives the signal to any thread that does not block it. The handler restarts interrupted
// system calls (SA_RESTART), so the others do not notice; calls that are never restarted (poll, nanosleep,
// io_uring_enter) return EINTR in the thread that was hit, so threads with such calls should block SIGINT,
// best by being started while it is blocked. requested() and count() may be called by any thread; making and
// ending a guard is for one.

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
  // The same, for those who look at a flag themselves; valid as long as the guard.
  const std::atomic<bool>& flag() const;
  int count() const;  // of all Ctrl-C since the guard was made; the second usually means "now"

 private:
  struct sigaction previous_ {};
};

}  // namespace moeflux::cli
