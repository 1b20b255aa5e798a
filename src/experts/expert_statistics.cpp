#include "experts/expert_statistics.h"

namespace moeflux {

ExpertStatistics& ExpertStatistics::operator+=(const ExpertStatistics& other) {
#define MF_ADD(name) name += other.name;
  MF_EXPERT_COUNTERS(MF_ADD)
  MF_EXPERT_TIMES(MF_ADD)
#undef MF_ADD
  return *this;
}

ExpertStatistics& ExpertStatistics::operator-=(const ExpertStatistics& other) {
#define MF_SUBTRACT(name) name -= other.name;
  MF_EXPERT_COUNTERS(MF_SUBTRACT)
  MF_EXPERT_TIMES(MF_SUBTRACT)
#undef MF_SUBTRACT
  return *this;
}

}  // namespace moeflux
