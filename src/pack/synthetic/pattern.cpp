#include "pack/synthetic/pattern.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "pack/quantize.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kLanes16 = 0x0001'0001'0001'0001;
constexpr std::uint64_t kLanes32 = 0x0000'0001'0000'0001;
constexpr std::uint64_t kLanes8 = 0x0101'0101'0101'0101;

constexpr std::uint32_t kTwoBinades = 256;  // consecutive BF16 numbers
constexpr std::uint32_t kQuarterBinade = 32;
constexpr std::int64_t kBitsOfOne = 0x3f80;  // BF16

// The finalizer of splitmix64: every bit of the result depends on every bit of the argument.
constexpr std::uint64_t mixed(std::uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xbf58'476d'1ce4'e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d0'49bb'1331'11eb;
  return bits ^ (bits >> 31);
}

__extension__ typedef unsigned __int128 Product;

// wyrand with random access: one multiplication per word, 1.7 times as fast as mixed(key + index).
constexpr std::uint64_t random_word(std::uint64_t key, std::uint64_t index) {
  const std::uint64_t state = key + index * 0x2d35'8dcc'aa6c'78a5;
  const Product product = Product{state} * (state ^ 0x8bb8'4b93'962e'acc9);
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// The root mean squares of `count` consecutive BF16 numbers from 1, 1 + 1/128, ... up to 2.
template <std::uint32_t count>
const std::array<double, 128>& window_rms() {
  static const std::array<double, 128> table = [] {
    std::array<double, 128> rms{};
    for (std::uint32_t first = 0; first < 128; ++first) {
      for (std::uint32_t i = first; i < first + count; ++i) {
        const double value = float_from_bf16(static_cast<std::uint16_t>(kBitsOfOne + i));
        rms[first] += value * value / count;
      }
      rms[first] = std::sqrt(rms[first]);
    }
    return rms;
  }();
  return table;
}

// The first of `count` consecutive positive BF16 numbers whose root mean square is above `rms` by less than 1
// %, the largest difference of neighbors. The low bits of an F32 change it by no more than that.
template <std::uint32_t count>
std::uint64_t window(double rms) {
  MF_REQUIRE(rms > 1e-30 && rms < 1e30, "the root mean square is an ordinary number");
  const auto& table = window_rms<count>();
  int binade = 0;
  const double in_binade = 2 * std::frexp(rms / table[0], &binade) * table[0];
  const auto found = std::lower_bound(table.begin(), table.end(), in_binade);
  return static_cast<std::uint64_t>(kBitsOfOne + std::int64_t{128} * (binade - 1) + (found - table.begin()));
}

template <std::uint32_t count>
SyntheticPattern window_pattern(Dtype dtype, Sign sign, double rms) {
  MF_REQUIRE(dtype == Dtype::bf16 || dtype == Dtype::f32, "synthetic floats are BF16 or F32");
  const std::uint64_t kept = (count - 1) | (sign == Sign::random ? 0x8000u : 0u);
  const std::uint64_t first = window<count>(rms) | (sign == Sign::negative ? 0x8000u : 0u);
  if (dtype == Dtype::bf16) return {.mask = kept * kLanes16, .offset = first * kLanes16};
  return {.mask = (kept << 16 | 0xffff) * kLanes32, .offset = (first << 16) * kLanes32};
}

std::uint64_t without_nan(std::uint64_t codes) {
  const std::uint64_t is_nan = ((codes & 0x7f * kLanes8) + kLanes8) >> 7 & kLanes8;
  return codes - is_nan;
}

// The bias for every scale of a pattern, in ascending order of the scales.
using BiasTable = std::array<std::uint16_t, kQuarterBinade>;
BiasTable biases_of(const SyntheticPattern& pattern) {
  BiasTable biases{};
  for (std::uint32_t i = 0; i < kQuarterBinade; ++i) {
    const float scale = float_from_bf16(static_cast<std::uint16_t>(pattern.offset + i));
    biases[i] = bf16_from_float(-pattern.middle_code * scale);
  }
  return biases;
}

std::uint64_t look_up(const BiasTable& biases, std::uint64_t scales) {
  std::uint64_t found = 0;
  for (unsigned lane = 0; lane < 64; lane += 16)
    found |= std::uint64_t{biases[(scales >> lane) % kQuarterBinade]} << lane;
  return found;
}

// Writes bytes of a sequence of words, where `word(index)` computes any word.
template <class Word>
void fill(std::uint64_t position, std::span<std::byte> out, Word word) {
  if (out.empty()) return;  // data() may be null
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  std::uint64_t index = position / kWord;
  if (const std::size_t skipped = position % kWord; skipped != 0) {
    const std::uint64_t bits = word(index++) >> (8 * skipped);
    const std::size_t count = std::min(kWord - skipped, out.size());
    std::memcpy(out.data(), &bits, count);
    out = out.subspan(count);
  }
  std::byte* const end = out.data() + out.size() / kWord * kWord;
  for (std::byte* to = out.data(); to != end; to += kWord) {
    const std::uint64_t bits = word(index++);
    std::memcpy(to, &bits, kWord);
  }
  if (const std::size_t rest = out.size() % kWord; rest != 0) {
    const std::uint64_t bits = word(index);
    std::memcpy(end, &bits, rest);
  }
}

}  // namespace

SyntheticPattern any_bits() { return {}; }

SyntheticPattern e4m3_codes() { return {.finish = SyntheticPattern::Finish::e4m3}; }

double rms_of_e4m3_codes() {
  static const double rms = [] {
    double sum = 0;
    for (std::uint64_t code = 0; code < 256; ++code) {
      const double value = float_from_e4m3(static_cast<std::uint8_t>(without_nan(code)));
      sum += value * value;
    }
    return std::sqrt(sum / 256);
  }();
  return rms;
}

SyntheticPattern spread(Dtype dtype, Sign sign, double rms) {
  return window_pattern<kTwoBinades>(dtype, sign, rms);
}

SyntheticPattern scales(Dtype dtype, double rms) {
  return window_pattern<kQuarterBinade>(dtype, Sign::positive, rms);
}

SyntheticPattern affine_biases(double rms, float middle_code) {
  SyntheticPattern pattern = scales(Dtype::bf16, rms);
  pattern.finish = SyntheticPattern::Finish::affine_bias;
  pattern.middle_code = middle_code;
  return pattern;
}

SyntheticPattern near_one() { return {.mask = 0x000f * kLanes16, .offset = 0x3f78 * kLanes16}; }

std::uint64_t synthetic_key(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = 0xcbf2'9ce4'8422'2325;  // FNV-1a
  for (const char character : name)
    hash = (hash ^ static_cast<unsigned char>(character)) * 0x0000'0100'0000'01b3;
  return mixed(hash ^ mixed(seed + 1));  // + 1: mixed(0) is 0
}

void generate(const SyntheticPattern& pattern, std::uint64_t key, std::uint64_t position,
              std::span<std::byte> out) {
  const std::uint64_t mask = pattern.mask, offset = pattern.offset;
  const auto lanes = [=](std::uint64_t index) { return (random_word(key, index) & mask) + offset; };
  switch (pattern.finish) {
    case SyntheticPattern::Finish::none: return fill(position, out, lanes);
    case SyntheticPattern::Finish::e4m3:
      return fill(position, out, [=](std::uint64_t index) { return without_nan(lanes(index)); });
    case SyntheticPattern::Finish::affine_bias: {
      const BiasTable biases = biases_of(pattern);
      return fill(position, out,
                  [&](std::uint64_t index) { return look_up(biases, random_word(key, index)); });
    }
  }
}

}  // namespace moeflux
