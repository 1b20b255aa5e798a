#include "ops/router.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "base/check.h"

namespace moeflux {
namespace {

bool all_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
}

// Calls take(index) for the `count` largest values in ascending order of their indices; among equal values
// the first ones are taken. Linear time: it finds the smallest value to take first, and the values above it
// need no order.
template <class Take>
void take_largest(std::span<const float> values, std::size_t count, std::span<float> scratch, Take take) {
  const std::span<float> sorted = scratch.first(values.size());
  std::copy(values.begin(), values.end(), sorted.begin());
  const auto last = sorted.begin() + static_cast<std::ptrdiff_t>(count) - 1;
  std::nth_element(sorted.begin(), last, sorted.end(), std::greater<>());
  const float threshold = *last;
  const auto above = [threshold](float value) { return value > threshold; };
  auto equals = static_cast<std::ptrdiff_t>(count) - std::count_if(sorted.begin(), last, above);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (above(values[i])) {
      take(i);
    } else if (values[i] == threshold && equals > 0) {
      --equals;
      take(i);
    }
  }
}

void choose_largest(std::span<const float> values, std::span<float> scratch, std::span<std::uint32_t> ids) {
  auto id = ids.begin();
  take_largest(values, ids.size(), scratch, [&id](std::size_t i) { *id++ = static_cast<std::uint32_t>(i); });
}

void pick(std::span<const float> values, std::span<const std::uint32_t> ids, std::span<float> picked) {
  for (std::size_t i = 0; i < ids.size(); ++i) picked[i] = values[ids[i]];
}

float sum_in_order(std::span<const float> values) {
  float sum = 0.0f;
  for (const float value : values) sum = sum + value;
  return sum;
}

float sum_of_two_largest(std::span<const float> group) {
  float first = group[0];
  float second = -std::numeric_limits<float>::infinity();
  for (const float value : group.subspan(1)) {
    second = std::max(second, std::min(first, value));
    first = std::max(first, value);
  }
  return group.size() == 1 ? first : first + second;
}

// Makes the experts of dropped groups ineligible.
void drop_groups(const GroupedChoice& choice, std::span<float> scores, std::span<float> scratch) {
  const std::size_t size = scores.size() / choice.groups;
  const std::span<float> groups = scratch.first(choice.groups);
  for (std::size_t g = 0; g < groups.size(); ++g)
    groups[g] = sum_of_two_largest(scores.subspan(g * size, size));
  const auto drop = [&](std::size_t from, std::size_t to) {
    std::fill(scores.begin() + static_cast<std::ptrdiff_t>(from * size),
              scores.begin() + static_cast<std::ptrdiff_t>(to * size),
              -std::numeric_limits<float>::infinity());
  };
  std::size_t next = 0;
  take_largest(groups, choice.groups_kept, scratch.subspan(groups.size()), [&](std::size_t kept) {
    drop(next, kept);
    next = kept + 1;
  });
  drop(next, groups.size());
}

}  // namespace

bool choose_softmax(const RowKernels& kernels, std::span<const float> logits, std::span<float> scratch,
                    std::span<std::uint32_t> ids, std::span<float> weights) {
  MF_REQUIRE(!ids.empty() && ids.size() <= logits.size(), "a router chooses 1 to all of its experts");
  MF_REQUIRE(weights.size() == ids.size(), "an expert that is chosen has one weight");
  MF_REQUIRE(scratch.size() >= logits.size(), "scratch has one number per expert");
  if (!all_finite(logits)) return false;

  choose_largest(logits, scratch, ids);
  pick(logits, ids, weights);
  const float largest = *std::max_element(weights.begin(), weights.end());
  kernels.exp_minus(weights.data(), largest, static_cast<std::uint32_t>(weights.size()), weights.data());
  const float sum = sum_in_order(weights);
  for (float& weight : weights) weight = weight / sum;
  return true;
}

bool choose_grouped_sigmoid(const RowKernels& kernels, const GroupedChoice& choice,
                            std::span<const float> logits, std::span<const float> bias,
                            std::span<float> scratch, std::span<std::uint32_t> ids,
                            std::span<float> weights) {
  const std::size_t experts = logits.size();
  MF_REQUIRE(choice.groups >= 1 && experts % choice.groups == 0, "groups are equally large");
  MF_REQUIRE(choice.groups_kept >= 1 && choice.groups_kept <= choice.groups, "1 to all groups are kept");
  MF_REQUIRE(!ids.empty() && ids.size() <= experts / choice.groups * choice.groups_kept,
             "a router chooses 1 to all of the experts of the groups that it keeps");
  MF_REQUIRE(weights.size() == ids.size(), "an expert that is chosen has one weight");
  MF_REQUIRE(bias.size() == experts, "every expert has a bias");
  MF_REQUIRE(scratch.size() >= grouped_scratch(experts), "scratch has three numbers per expert");

  const std::span<float> scores = scratch.first(experts);
  const std::span<float> rest = scratch.subspan(experts);
  const auto count = static_cast<std::uint32_t>(experts);
  kernels.sigmoid(logits.data(), count, scores.data());
  kernels.add(scores.data(), bias.data(), count, scores.data());
  if (!all_finite(logits) || !all_finite(scores)) return false;

  drop_groups(choice, scores, rest);
  choose_largest(scores, rest, ids);
  pick(logits, ids, weights);
  kernels.sigmoid(weights.data(), static_cast<std::uint32_t>(weights.size()), weights.data());
  const float divisor = sum_in_order(weights) + 1e-20f;
  for (float& weight : weights) {
    if (choice.normalise) weight = weight / divisor;
    weight = weight * choice.scale;
  }
  return true;
}

}  // namespace moeflux
