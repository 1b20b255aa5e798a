#pragma once
// How the bytes of a synthetic tensor follow from a key and their position.
//
// A tensor is a row of 64-bit words. Word i is a mix of (key, i) of which some bits are kept and to which an
// offset is added, both lane by lane, so that every lane is a number that may stand in its tensor: a code, or
// a float in a window of consecutive bit patterns. Nothing depends on how a tensor is cut into reads. Plain
// values and pure functions: any thread.
//
// One core of an EPYC (Zen 4; compiled without -march) makes 14 GB/s of codes, BF16 weights and scales,
// 7 GB/s of e4m3 codes and 3.3 GB/s of affine biases: 12 GB/s of a 4-bit model.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "quant/dtype.h"

namespace moeflux {

struct SyntheticPattern {
  enum class Finish {
    none,
    e4m3,         // the two codes that are not a number become their neighbours
    affine_bias,  // a scale becomes the bias that puts the middle of its codes at zero
  };
  std::uint64_t mask = ~std::uint64_t{0};  // the random bits that are kept
  std::uint64_t offset = 0;                // added to them; no lane overflows
  Finish finish = Finish::none;
  float middle_code = 0;  // of affine_bias: 7.5 for 4 bits
};

enum class Sign { positive, negative, random };

// Codes of any width, all equally likely.
SyntheticPattern any_bits();

// e4m3 codes, all but the NaNs; rms_of_e4m3_codes() is the root mean square of what they mean.
SyntheticPattern e4m3_codes();
double rms_of_e4m3_codes();

// Floats (BF16 or F32) of this root mean square, each magnitude within a factor of 4 of every other.
SyntheticPattern spread(Dtype dtype, Sign sign, double rms);

// Positive floats of this root mean square, within 25 % of each other: scales that differ a little.
SyntheticPattern scales(Dtype dtype, double rms);

// The BF16 biases that belong to scales(Dtype::bf16, rms), generated under the key of those scales.
SyntheticPattern affine_biases(double rms, float middle_code);

// BF16 numbers from 0.969 to 1.055.
SyntheticPattern near_one();

// The key of the tensor `name` of the model with this seed.
std::uint64_t synthetic_key(std::uint64_t seed, std::string_view name);

// Bytes [position, position + out.size()) of the tensor.
void generate(const SyntheticPattern& pattern, std::uint64_t key, std::uint64_t position,
              std::span<std::byte> out);

}  // namespace moeflux
