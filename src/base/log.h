#pragma once
// Where the library tells what it is doing.
//
// The library never prints: whoever opens an engine passes a LogSink, and the command line's is the only
// one that writes to a terminal. Messages follow the rules of error messages: lower case, no full stop,
// one line. Sinks are thread-safe and do not fail; they outlive whatever they were passed to.

#include <string>
#include <string_view>
#include <vector>

#include "base/thread_annotations.h"

namespace moeflux {

enum class LogLevel {
  debug,    // for whoever changes moeflux
  info,     // what was decided: the memory plan, the kernels chosen
  warning,  // works, and not as the user probably wants
  error,    // a failure nobody is there to be returned to
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

// Forgets everything.
class NullLog final : public LogSink {
 public:
  void write(LogLevel, std::string_view) override {}
};

// Keeps everything, in order: for tests.
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
