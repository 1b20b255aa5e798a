#include "experts/expert_statistics.h"

#include <functional>

namespace moeflux {
namespace {

template <class Combine>
void combine(ExpertStatistics& a, const ExpertStatistics& b, Combine with) {
  const auto each = [&](auto member) { a.*member = with(a.*member, b.*member); };
  using S = ExpertStatistics;
  for (auto member : {&S::hits, &S::misses, &S::late, &S::reads, &S::demanded_bytes, &S::speculated_bytes,
                      &S::filled_bytes, &S::useful_bytes, &S::late_bytes, &S::wasted_bytes,
                      &S::useful_guesses, &S::late_guesses, &S::wrong_guesses})
    each(member);
  for (auto member : {&S::waiting, &S::reading}) each(member);
}

}  // namespace

ExpertStatistics& ExpertStatistics::operator+=(const ExpertStatistics& other) {
  combine(*this, other, std::plus<>());
  return *this;
}

ExpertStatistics& ExpertStatistics::operator-=(const ExpertStatistics& other) {
  combine(*this, other, std::minus<>());
  return *this;
}

}  // namespace moeflux
