#include "base/log.h"

namespace moeflux {

std::string_view name_of(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return "debug";
    case LogLevel::info: return "info";
    case LogLevel::warning: return "warning";
    case LogLevel::error: return "error";
  }
  return "unknown";
}

void CollectingLog::write(LogLevel level, std::string_view message) {
  Lock lock(mutex_);
  entries_.push_back({level, std::string(message)});
}

std::vector<CollectingLog::Entry> CollectingLog::entries() const {
  Lock lock(mutex_);
  return entries_;
}

}  // namespace moeflux
