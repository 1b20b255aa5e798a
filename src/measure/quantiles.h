#pragma once
// What a handful of measurements say: their middle, and how far apart they are.
//
// Few samples of a machine that does other things too have outliers, so the middle is the median and the
// spread is the distance of the quartiles: neither moves when the worst sample gets worse. Pure functions:
// any thread.

#include <span>

namespace moeflux {

// The number below which `fraction` of the samples lie: 0 is the least, 1 the largest, and between two
// neighbours in order it is interpolated (type 7 of Hyndman and Fan, what numpy does by default). At least
// one sample, all of them finite; 0 <= fraction <= 1.
double quantile(std::span<const double> samples, double fraction);

double median(std::span<const double> samples);

struct Quartiles {
  double least = 0, lower = 0, median = 0, upper = 0, largest = 0;

  double spread() const { return upper - lower; }
  // As a part of the median: 0.02 is "within 2 %". 0 where the median is.
  double relative_spread() const;
};

Quartiles quartiles_of(std::span<const double> samples);

}  // namespace moeflux
