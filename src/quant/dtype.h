#pragma once
// Element types of tensors and their conversion to float.
//
// The names are the same as in safetensors ("BF16", "F8_E4M3"). Elements are loaded with memcpy, never
// through a cast pointer, because tensor data is unaligned in real files. Plain values and pure functions:
// any thread.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace moeflux {

enum class Dtype {
  boolean,
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  u64,
  i64,
  f16,
  bf16,
  f32,
  f64,
  f8_e4m3,  // no infinities; 0x7f and 0xff are NaN ("e4m3fn")
  f8_e5m2,
  f8_e8m0,  // a power of two; the scales of the MX formats
  f4,       // two per byte
};

std::optional<Dtype> dtype_from_name(std::string_view name);
std::string_view name_of(Dtype dtype);
std::uint32_t bits_of(Dtype dtype);

// Whether this is one of the dtypes of plain weights: bf16, f16, f32.
constexpr bool is_plain_float(Dtype dtype) {
  return dtype == Dtype::bf16 || dtype == Dtype::f16 || dtype == Dtype::f32;
}

inline float float_from_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
float float_from_f16(std::uint16_t bits);
float float_from_e4m3(std::uint8_t bits);

// Loads a little-endian T from `bytes`, which may be unaligned.
template <class T>
T load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// Element `index` of an array of plain floats. Requires: is_plain_float(dtype).
float load_float(const std::byte* bytes, std::size_t index, Dtype dtype);

}  // namespace moeflux
