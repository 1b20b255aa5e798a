#include "measure/quantiles.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "base/check.h"

namespace moeflux {
namespace {

std::vector<double> in_order(std::span<const double> samples) {
  MF_REQUIRE(!samples.empty(), "there is at least one sample");
  MF_REQUIRE(std::ranges::all_of(samples, [](double sample) { return std::isfinite(sample); }),
             "every sample is finite");
  std::vector<double> sorted(samples.begin(), samples.end());
  std::ranges::sort(sorted);
  return sorted;
}

double quantile_of_sorted(std::span<const double> sorted, double fraction) {
  const double place = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], place - static_cast<double>(below));
}

}  // namespace

double quantile(std::span<const double> samples, double fraction) {
  MF_REQUIRE(fraction >= 0 && fraction <= 1, "a fraction is from 0 to 1");
  return quantile_of_sorted(in_order(samples), fraction);
}

double median(std::span<const double> samples) { return quantile(samples, 0.5); }

double Quartiles::relative_spread() const { return median == 0 ? 0 : spread() / std::abs(median); }

Quartiles quartiles_of(std::span<const double> samples) {
  const std::vector<double> sorted = in_order(samples);
  return {.least = sorted.front(),
          .lower = quantile_of_sorted(sorted, 0.25),
          .median = quantile_of_sorted(sorted, 0.5),
          .upper = quantile_of_sorted(sorted, 0.75),
          .largest = sorted.back()};
}

}  // namespace moeflux
