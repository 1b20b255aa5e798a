#pragma once
// How the keys and values of a session are kept: as they are computed, or in fewer bytes.
//
// They are narrowed once, when they are appended, and attention is that of float32 over what was kept, or, over int8 in the
// precision `fast`, that of integers (docs/arithmetic.md). A row of channels of one head and position lies in whole words
// of 4 bytes:
//
//   f32    the numbers
//   bf16   the numbers, rounded to nearest even; two a word, the last may be half empty
//   int8   bytes of -127..127, four a word, the last may not be full; then a float32 scale for each 64 channels
//
// docs/performance.md has what each costs. Plain values.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace moeflux {

enum class KvNumbers : std::uint32_t { f32 = 0, bf16 = 1, int8 = 2 };  // as snapshot files have them

inline constexpr std::uint32_t kKvGroup = 64;  // channels that share a scale

constexpr std::string_view name_of(KvNumbers numbers) {
  switch (numbers) {
    case KvNumbers::f32: return "f32";
    case KvNumbers::bf16: return "bf16";
    case KvNumbers::int8: return "int8";
  }
  return "unknown";
}

// Words of the bytes of a row, before its scales.
constexpr std::size_t kv_code_words(std::size_t channels) { return (channels + 3) / 4; }

// Words of a row of so many channels.
constexpr std::size_t kv_row_words(KvNumbers numbers, std::size_t channels) {
  switch (numbers) {
    case KvNumbers::f32: return channels;
    case KvNumbers::bf16: return (channels + 1) / 2;
    case KvNumbers::int8: return kv_code_words(channels) + (channels + kKvGroup - 1) / kKvGroup;
  }
  return 0;
}

}  // namespace moeflux
