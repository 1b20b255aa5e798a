#include "text/template/jinja/budget.h"

#include <fmt/format.h>

namespace moeflux::jinja {
namespace {

Error beyond(std::string_view what, std::uint64_t limit) {
  return Error(ErrorCode::unsupported,
               fmt::format("the template takes more than {} {}", with_thousands(limit), what));
}

}  // namespace

Status Budget::step(std::uint64_t count) {
  nodes_ += count;
  if (nodes_ > limits_.nodes) return beyond("steps", limits_.nodes);
  return {};
}

Status Budget::work(std::uint64_t bytes) {
  work_ += bytes;
  if (work_ > limits_.work_bytes) return beyond("bytes of work", limits_.work_bytes);
  return {};
}

Status Budget::room(std::uint64_t bytes) const {
  if (bytes > limits_.string_bytes) return too_long();
  return {};
}

Error Budget::too_long() const {
  return Error(ErrorCode::unsupported,
               fmt::format("the template makes a value or an output of more than {} bytes",
                           with_thousands(limits_.string_bytes)));
}

Status Budget::take(std::size_t bytes) {
  if (bytes > limits_.memory_bytes || memory_ > limits_.memory_bytes - bytes)
    return beyond("bytes of memory", limits_.memory_bytes);
  memory_ += bytes;
  return {};
}

}  // namespace moeflux::jinja
