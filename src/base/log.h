#pragma once
// The log interface.
//
// The library never prints: the caller that opens an engine passes a LogSink, and only the sink of the
// command line writes to a terminal. Messages follow the rules of error messages: lower case, no full stop,
// one line. Sinks are thread-safe and do not fail. They must outlive the objects that they are passed to.

#include <string>
#include <string_view>
#include <vector>

#include "base/thread_annotations.h"

namespace moeflux {

enum class LogLevel {
  debug,    // for developers of moeflux
  info,     // decisions: the memory plan, the chosen kernels
  warning,  // it works, but probably not as the user wants
  error,    // a failure that cannot be returned to a caller
};

// "debug", "info", "warning", "error".
std::string_view name_of(LogLevel level);

class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual void write(LogLevel level, std::string_view message) = 0;

 protected:
  LogSink() = default;
  LogSink(const LogSink&) = default;
  LogSink& operator=(const LogSink&) = default;
};

// Discards everything.
class NullLog final : public LogSink {
 public:
  void write(LogLevel, std::string_view) override {}
};

// Keeps everything in order, for tests.
class CollectingLog final : public LogSink {
 public:
  struct Entry {
    LogLevel level;
    std::string message;
    friend bool operator==(const Entry&, const Entry&) = default;
  };

  void write(LogLevel level, std::string_view message) override;
  std::vector<Entry> entries() const;

 private:
  mutable Mutex mutex_;
  std::vector<Entry> entries_ MF_GUARDED_BY(mutex_);
};

}  // namespace moeflux
