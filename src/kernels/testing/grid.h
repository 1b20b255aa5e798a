#pragma once
// Shared by the tests of the kernels: rows of numbers in memory that detects writes beside them, and a
// comparison of bits. Test code only.

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernel_table.h"

namespace moeflux::test {

using Random = std::mt19937;

inline constexpr std::array kBits = {2u, 3u, 4u, 5u, 6u, 8u};  // of affine codes

// The specification.
inline const KernelTable& scalar() { return *compiled_kernels().back(); }

enum class Numbers {
  plain,       // between -2 and 2
  extreme,     // any exponent, subnormals, zeros of both signs, the largest; half of them plain
  non_finite,  // extreme and infinities
};

inline float number(Random& random, Numbers kind) {
  constexpr std::array kSpecial = {0.0f,   -0.0f,   1e-45f,        -1e-45f,        1.17e-38f, 1e-30f,
                                   104.0f, -104.0f, 3.4028235e38f, -3.4028235e38f, 1e30f,     -1e30f,
                                   88.7f,  -87.3f,  HUGE_VALF,     -HUGE_VALF};
  const auto choice = kind == Numbers::plain ? 0 : random() % 8;
  if (choice < 4) return static_cast<float>(random()) * 0x1p-30f - 2.0f;
  if (choice < 6) return kSpecial[random() % (kSpecial.size() - (kind == Numbers::non_finite ? 0 : 2))];
  const auto bits = static_cast<std::uint32_t>(random());
  const bool finite = (bits >> 23 & 0xff) != 0xff;
  return std::bit_cast<float>(finite ? bits : bits & 0x807fffff);
}

// [rows][cols] with a stride, at an address that is not a multiple of 64. Around and between the rows lies a
// NaN that no computation produces: it spoils any sum that includes it, and intact() detects when it was
// overwritten.
class Grid {
 public:
  Grid(std::size_t rows, std::size_t cols, std::size_t gap = 0)
      : rows_(rows), cols_(cols), stride_(cols + gap), memory_(kBefore + rows * stride_ + kAfter, kCanary) {}
  static Grid random(Random& random, std::size_t rows, std::size_t cols, std::size_t gap = 0,
                     Numbers kind = Numbers::plain) {
    Grid grid(rows, cols, gap);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t c = 0; c < cols; ++c) grid.row(r)[c] = number(random, kind);
    return grid;
  }

  float* data() { return memory_.data() + kBefore; }
  const float* data() const { return memory_.data() + kBefore; }
  float* row(std::size_t r) { return data() + r * stride_; }
  const float* row(std::size_t r) const { return data() + r * stride_; }
  std::size_t rows() const { return rows_; }
  std::size_t cols() const { return cols_; }
  std::size_t stride() const { return stride_; }

  bool intact() const {
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      const bool inside = i >= kBefore && i < kBefore + rows_ * stride_ && (i - kBefore) % stride_ < cols_;
      if (!inside && std::bit_cast<std::uint32_t>(memory_[i]) != std::bit_cast<std::uint32_t>(kCanary))
        return false;
    }
    return true;
  }

 private:
  static constexpr float kCanary = std::bit_cast<float>(0x7fc0dead);
  static constexpr std::size_t kBefore = 19, kAfter = 37;  // more than a group of lanes; odd

  std::size_t rows_, cols_, stride_;
  std::vector<float> memory_;
};

// All NaNs compare equal.
inline testing::AssertionResult same_bits(const Grid& a, const Grid& b) {
  if (!a.intact() || !b.intact()) return testing::AssertionFailure() << "memory beside the rows was written";
  for (std::size_t r = 0; r < a.rows(); ++r)
    for (std::size_t c = 0; c < a.cols(); ++c) {
      const float x = a.row(r)[c], y = b.row(r)[c];
      if (std::bit_cast<std::uint32_t>(x) != std::bit_cast<std::uint32_t>(y) && (x == x || y == y))
        return testing::AssertionFailure() << x << " is not " << y << " at row " << r << ", column " << c;
    }
  return testing::AssertionSuccess();
}

// The results of attention to a block.
struct Attended {
  Grid max, sum, out;
  Attended(std::size_t queries, std::size_t value_dim)
      : max(1, queries), sum(1, queries), out(queries, value_dim, 2) {}
};

inline testing::AssertionResult same_bits(const Attended& a, const Attended& b) {
  if (auto same = same_bits(a.max, b.max); !same) return same << " (max)";
  if (auto same = same_bits(a.sum, b.sum); !same) return same << " (sum)";
  return same_bits(a.out, b.out);
}

// A suite for every kernel table of this build; skips those that the processor does not support.
class OnEveryIsa : public testing::TestWithParam<const KernelTable*> {
 protected:
  void SetUp() override {
    if (!GetParam()->runs_here()) GTEST_SKIP() << "this processor does not support " << GetParam()->name;
  }
};

inline std::string isa_name(const testing::TestParamInfo<const KernelTable*>& info) {
  return std::string(info.param->name);
}

}  // namespace moeflux::test
