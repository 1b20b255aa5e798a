#pragma once
// The dtype in which a session stores keys and values: as computed, or narrowed.
//
// They are converted once, when they are appended. Attention computes in float32 on the stored values, or,
// for int8 with the precision `fast`, in integers (docs/arithmetic.md). A row, the channels of one head and
// position, consists of whole words of 4 bytes:
//
//   f32    the values
//   bf16   the values, rounded to nearest even; two per word, the last word may be half empty
//   int8   values from -127 to 127, four per word, the last word may be partly empty; then one float32 scale
//          per 64 channels
//
// docs/performance.md has the cost of each. Plain values: any thread.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/arithmetic.h"

namespace moeflux {

enum class KvDtype : std::uint32_t { f32 = 0, bf16 = 1, int8 = 2 };  // values as stored in snapshot files

inline constexpr std::uint32_t kKvGroup = 64;  // channels that share a scale

constexpr std::string_view name_of(KvDtype dtype) {
  switch (dtype) {
    case KvDtype::f32: return "f32";
    case KvDtype::bf16: return "bf16";
    case KvDtype::int8: return "int8";
  }
  return "unknown";
}

// The words of an int8 row before its scales.
constexpr std::size_t kv_code_words(std::size_t channels) { return divide_up<std::size_t>(channels, 4); }

// The words of a row of `channels` channels.
constexpr std::size_t kv_row_words(KvDtype dtype, std::size_t channels) {
  switch (dtype) {
    case KvDtype::f32: return channels;
    case KvDtype::bf16: return divide_up<std::size_t>(channels, 2);
    case KvDtype::int8: return kv_code_words(channels) + divide_up<std::size_t>(channels, kKvGroup);
  }
  return 0;
}

}  // namespace moeflux
