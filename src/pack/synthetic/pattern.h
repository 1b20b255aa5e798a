#pragma once
// Generates the bytes of a synthetic tensor from a key and their position.
//
// A tensor is a sequence of 64-bit words. Word i is a hash of (key, i), masked and added to an offset lane by
// lane, so that every lane is a valid element of its tensor: a code, or a float in a window of consecutive
// bit patterns. The bytes do not depend on the sizes of reads. Plain values and pure functions: any thread.
//
// One core of an EPYC (Zen 4; compiled without -march) generates 14 GB/s of codes, BF16 weights and scales, 7
// GB/s of e4m3 codes and 3.3 GB/s of affine biases: 12 GB/s of a 4-bit model.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "quant/dtype.h"

namespace moeflux {

struct SyntheticPattern {
  enum class Finish {
    none,
    e4m3,         // the two NaN codes become their neighbors
    affine_bias,  // turns a scale into the bias that puts the middle code at zero
  };
  std::uint64_t mask = ~std::uint64_t{0};  // random bits to keep
  std::uint64_t offset = 0;                // added after masking; no lane overflows
  Finish finish = Finish::none;
  float middle_code = 0;  // for affine_bias; 7.5 for 4 bits
};

enum class Sign { positive, negative, random };

// Codes of any width, uniformly distributed.
SyntheticPattern any_bits();

// e4m3 codes without the NaNs; rms_of_e4m3_codes() is the root mean square of their values.
SyntheticPattern e4m3_codes();
double rms_of_e4m3_codes();

// Floats (BF16 or F32) of root mean square `rms`, with all magnitudes within a factor of 4.
SyntheticPattern spread(Dtype dtype, Sign sign, double rms);

// Positive floats of root mean square `rms`, within 25 % of each other.
SyntheticPattern scales(Dtype dtype, double rms);

// The BF16 biases for scales(Dtype::bf16, rms). Generate them with the key of those scales.
SyntheticPattern affine_biases(double rms, float middle_code);

// BF16 numbers from 0.969 to 1.055.
SyntheticPattern near_one();

// The key of tensor `name` in the model with seed `seed`.
std::uint64_t synthetic_key(std::uint64_t seed, std::string_view name);

// Writes bytes [position, position + out.size()) of the tensor to `out`.
void generate(const SyntheticPattern& pattern, std::uint64_t key, std::uint64_t position,
              std::span<std::byte> out);

}  // namespace moeflux
