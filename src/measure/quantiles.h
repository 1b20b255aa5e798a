#pragma once
// Median and spread of a few measurements.
//
// Samples from a machine that also does other work have outliers, so the center is the median and the spread
// is the interquartile range: neither moves when the worst sample gets worse. Pure functions; any thread.

#include <span>

namespace moeflux {

// The quantile `fraction` of the samples: 0 is the smallest, 1 the largest; between two neighbors it is
// interpolated (type 7 of Hyndman and Fan, numpy's default). Requires: at least one sample, all finite; 0 <=
// fraction <= 1.
double quantile(std::span<const double> samples, double fraction);

double median(std::span<const double> samples);

struct Quartiles {
  double least = 0, lower = 0, median = 0, upper = 0, largest = 0;

  double spread() const { return upper - lower; }
  // Relative to the median: 0.02 is "within 2 %". 0 if the median is 0.
  double relative_spread() const;
};

Quartiles quartiles_of(std::span<const double> samples);

}  // namespace moeflux
