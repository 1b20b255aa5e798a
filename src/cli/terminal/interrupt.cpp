#include "cli/terminal/interrupt.h"

#include <algorithm>
#include <atomic>

#include "base/check.h"

namespace moeflux::cli {
namespace {

constexpr int kNoGuard = -1;
constexpr int kMaxCount = 1000;

// Global because a signal handler has no argument. Lock-free, hence allowed in handlers.
std::atomic<int> interrupts{kNoGuard};
std::atomic<bool> was_interrupted{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

extern "C" void count_interrupt(int) {
  was_interrupted.store(true, std::memory_order_relaxed);
  int count = interrupts.load(std::memory_order_relaxed);
  while (count != kNoGuard && count < kMaxCount && !interrupts.compare_exchange_weak(count, count + 1)) {
  }
}

}  // namespace

InterruptGuard::InterruptGuard() {
  MF_REQUIRE(interrupts.exchange(0) == kNoGuard, "there is one InterruptGuard at a time");
  was_interrupted.store(false);
  struct sigaction action {};
  action.sa_handler = count_interrupt;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, nullptr, &previous_);
  if (previous_.sa_handler != SIG_IGN) ::sigaction(SIGINT, &action, nullptr);
}

InterruptGuard::~InterruptGuard() {
  if (previous_.sa_handler != SIG_IGN) ::sigaction(SIGINT, &previous_, nullptr);
  interrupts.store(kNoGuard);
}

const std::atomic<bool>& InterruptGuard::flag() const { return was_interrupted; }

int InterruptGuard::count() const { return std::max(0, interrupts.load(std::memory_order_relaxed)); }

}  // namespace moeflux::cli
