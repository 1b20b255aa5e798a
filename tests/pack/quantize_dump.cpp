// quantize_dump BITS GROUP COLS: quantizes rows of BF16 numbers from standard input to standard output.
//
// Writes the codes of all rows as 32-bit words, then all scales, then all biases, both BF16, as MLX stores
// them. quantizer_test.py compares them with the same rule in numpy. Exit codes: 0, 1 after a message on
// standard error, 2 for wrong usage.

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cstdio>
#include <optional>
#include <string_view>
#include <vector>

#include "pack/quantize.h"

namespace moeflux {
namespace {

static_assert(std::endian::native == std::endian::little,
              "numbers are written in memory order, which must be little-endian");

std::optional<std::uint32_t> parse_number(std::string_view text) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::vector<std::uint16_t> read_all() {
  std::vector<std::uint16_t> words;
  std::vector<std::uint16_t> chunk(1 << 16);
  while (const std::size_t count = std::fread(chunk.data(), 2, chunk.size(), stdin))
    words.insert(words.end(), chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(count));
  return words;
}

bool put(std::span<const std::byte> bytes) {
  return std::fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size();
}

bool dump(const AffineFormat& format, std::uint64_t cols) {
  const std::vector<std::uint16_t> words = read_all();
  if (words.size() % cols != 0) {
    fmt::print(stderr, "quantize_dump: {} numbers are no whole rows of {}\n", words.size(), cols);
    return false;
  }
  const std::uint64_t rows = words.size() / cols;
  QuantizedRows quantized(rows, cols, format);
  std::vector<float> numbers(cols);
  for (std::uint64_t row = 0; row < rows; ++row) {
    for (std::uint64_t col = 0; col < cols; ++col) numbers[col] = float_from_bf16(words[row * cols + col]);
    quantized.set_row(row, numbers);
  }
  const MatrixView view = quantized.view(rows);
  if (put(view.codes) && put(view.scales) && put(view.biases) && std::fflush(stdout) == 0) return true;
  fmt::print(stderr, "quantize_dump: cannot write to standard output\n");
  return false;
}

}  // namespace
}  // namespace moeflux

int main(int argc, char** argv) {
  using moeflux::parse_number;
  const auto number = [&](int at) { return argc == 4 ? parse_number(argv[at]).value_or(0) : 0; };
  const std::uint32_t bits = number(1), group = number(2), cols = number(3);
  if ((bits != 4 && bits != 8) || !moeflux::is_affine_group(group) || cols == 0 || cols % group != 0) {
    fmt::print(stderr, "usage: quantize_dump 4|8 32|64|128 COLS, a multiple of the group\n");
    return 2;
  }
  return moeflux::dump({bits, group, moeflux::Dtype::bf16}, cols) ? 0 : 1;
}
