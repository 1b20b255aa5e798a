// How fast are the products with 4-bit matrices? Every table of kernels that runs here, one thread.
//
//   matmul_bench [REPEATS]
//
// For the shapes of the routed experts of Qwen3.5 35B and 397B, group 64, BF16 scales: one row of activations
// (decode: GB/s of weights, which come from memory every time) and 4, 16 and 256 (GFMA/s). Each kernel is
// first held against the scalar one, bit for bit. Repeats are interleaved, so that all kernels share the
// machine's moods; medians are shown, beside the rate at which the same memory can be read. Exits with 1 when
// a kernel is wrong.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/kernel_table.h"
#include "quant/tile16.h"

namespace moeflux {
namespace {

struct Shape {
  std::uint32_t rows, cols;
};
constexpr Shape kShapes[] = {{512, 2048}, {2048, 512}, {1024, 4096}, {4096, 1024}};
constexpr std::uint32_t kBatches[] = {1, 4, 16, 256};
constexpr std::uint32_t kLargestBatch = 256;
constexpr AffineFormat kFormat{.bits = 4, .group = 64, .scale_dtype = Dtype::bf16};
constexpr std::size_t kMemory = std::size_t{96} << 20;  // three times the largest cache in reach
constexpr std::uint32_t kLargestScalarBatch = 4;        // the specification is timed, but not for minutes

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

struct Measured {
  const KernelTable* table;
  std::uint32_t batch;
  std::vector<double> times{};
};

std::vector<Measured> all_kernels() {
  std::vector<Measured> all;
  for (const KernelTable* table : compiled_kernels())
    for (const std::uint32_t batch : kBatches)
      if (table->runs_here() && (table->name != "scalar" || batch <= kLargestScalarBatch))
        all.push_back({table, batch});
  return all;
}

// One random matrix, as often as it takes to fall out of the caches, and activations to go with it.
class Bench {
 public:
  explicit Bench(Shape shape)
      : shape_(shape),
        x_(std::size_t{kLargestBatch} * shape.cols),
        sums_(x_.size() / kSumCols),
        y_(std::size_t{kLargestBatch} * shape.rows),
        expected_(shape.rows) {
    std::mt19937 random(1);
    std::uniform_real_distribution<float> any(-1, 1);
    for (float& number : x_) number = any(random);
    scalar_->matmul->sums(x_.data(), static_cast<std::uint32_t>(x_.size()), sums_.data());
  }

  bool allocate() {
    auto memory = HugeBuffer::create(kMemory);
    if (!memory) return false;
    memory_ = *std::move(memory);
    std::mt19937 random(2);
    std::uniform_real_distribution<float> scale(0.002f, 0.003f);
    std::vector<std::byte> codes(std::size_t{shape_.rows} * shape_.cols / 2), scales, biases;
    for (std::byte& byte : codes) byte = static_cast<std::byte>(random());
    for (std::size_t group = 0; group < codes.size() * 2 / kFormat.group; ++group) {
      append_bf16(scales, scale(random));
      append_bf16(biases, -8 * scale(random));
    }
    const MatrixView matrix{shape_.rows, shape_.cols, kFormat, codes, scales, biases};
    for (std::size_t block = 0; block < blocks(); ++block)
      tile16::encode_block(matrix, block * tile16::kBlockRows,
                           memory_.bytes().subspan(block * block_bytes(), block_bytes()));
    for (std::size_t copy = 1; copy < copies(); ++copy)
      std::memcpy(memory_.data() + copy * matrix_bytes(), memory_.data(), matrix_bytes());
    return true;
  }

  std::size_t blocks() const { return shape_.rows / tile16::kBlockRows; }
  std::size_t block_bytes() const { return tile16::block_bytes(kFormat, shape_.cols); }
  std::size_t matrix_bytes() const { return blocks() * block_bytes(); }
  std::size_t copies() const { return kMemory / matrix_bytes(); }

  // Whether the first and last rows of a batch have the bits of the scalar kernel.
  bool is_right(const Measured& measured) {
    std::fill(y_.begin(), y_.end(), 0.0f);
    measured.table->matmul->affine4(args(0, 0, measured.batch, y_));
    for (const std::uint32_t row : {0u, measured.batch / 2, measured.batch - 1}) {
      scalar_->matmul->affine4(args(0, row, 1, expected_));
      const float* found = y_.data() + std::size_t{row} * shape_.rows;
      if (std::memcmp(expected_.data(), found, shape_.rows * sizeof(float)) != 0) return false;
    }
    return true;
  }

  // Seconds for one matrix.
  double time(const Measured& measured) {
    std::size_t count =
        measured.batch == 1 ? copies() : std::max<std::size_t>(1, copies() * 2 / measured.batch);
    if (measured.table == scalar_) count = 2;
    const double begin = seconds();
    for (std::size_t copy = 0; copy < count; ++copy)
      measured.table->matmul->affine4(args(copy, 0, measured.batch, y_));
    return (seconds() - begin) / static_cast<double>(count);
  }

  // GB/s of memory that is read and not used.
  double read_rate() {
    std::uint64_t words[8] = {};
    const double begin = seconds();
    for (std::size_t at = 0; at < kMemory; at += sizeof words)
      for (std::size_t k = 0; k < 8; ++k) words[k] += load<std::uint64_t>(memory_.data() + at + k * 8);
    const double rate = static_cast<double>(kMemory) / (seconds() - begin) * 1e-9;
    for (const std::uint64_t word : words) checksum_ += word;
    return rate;
  }

  std::string describe(const Measured& measured) const {
    const double time = median(measured.times);
    if (measured.batch == 1)
      return fmt::format("{:.1f} GB/s", static_cast<double>(matrix_bytes()) / time * 1e-9);
    const std::uint64_t products = std::uint64_t{shape_.rows} * shape_.cols * measured.batch;
    return fmt::format("{:.1f} GFMA/s", static_cast<double>(products) / time * 1e-9);
  }

  std::uint64_t checksum() const { return checksum_; }

 private:
  static void append_bf16(std::vector<std::byte>& bytes, float number) {
    std::byte halves[4];
    std::memcpy(halves, &number, sizeof halves);
    bytes.insert(bytes.end(), halves + 2, halves + 4);
  }

  MatmulArgs args(std::size_t copy, std::uint32_t first_row, std::uint32_t batch,
                  std::vector<float>& y) const {
    MatmulArgs args;
    args.blocks = memory_.data() + copy * matrix_bytes();
    args.block_stride = block_bytes();
    args.block_count = static_cast<std::uint32_t>(blocks());
    args.cols = shape_.cols;
    args.group = kFormat.group;
    args.x = x_.data() + std::size_t{first_row} * shape_.cols;
    args.x_stride = shape_.cols;
    args.sums = sums_.data() + std::size_t{first_row} * shape_.cols / kSumCols;
    args.sums_stride = shape_.cols / kSumCols;
    args.batch = batch;
    args.y = y.data();
    args.y_stride = shape_.rows;
    return args;
  }

  Shape shape_;
  std::vector<float> x_, sums_, y_, expected_;
  HugeBuffer memory_;
  std::uint64_t checksum_ = 0;  // so that reading memory is not left out
  const KernelTable* scalar_ = compiled_kernels().back();
};

bool measure(Shape shape, int repeats) {
  Bench bench(shape);
  if (!bench.allocate()) {
    fmt::print(stderr, "matmul_bench: not enough memory\n");
    return false;
  }
  std::vector<Measured> kernels = all_kernels();
  for (const Measured& measured : kernels)
    if (!bench.is_right(measured)) {
      fmt::print(stderr, "matmul_bench: {}, batch {}, is not what the scalar kernel gives\n",
                 measured.table->name, measured.batch);
      return false;
    }
  std::vector<double> rates;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    rates.push_back(bench.read_rate());
    for (Measured& measured : kernels) measured.times.push_back(bench.time(measured));
  }
  fmt::print("\n{} x {}: {} bytes; memory is read at {:.1f} GB/s (checksum {:x})\n", shape.rows, shape.cols,
             bench.matrix_bytes(), median(std::move(rates)), bench.checksum());
  for (const Measured& measured : kernels)
    fmt::print("{:<8}{:>4}{:>16}\n", measured.table->name, measured.batch, bench.describe(measured));
  return true;
}

}  // namespace
}  // namespace moeflux

int main(int argc, char** argv) {
  int repeats = 5;
  const std::string_view text = argc == 2 ? argv[1] : "";
  if (argc == 2) std::from_chars(text.data(), text.data() + text.size(), repeats);
  if (argc > 2 || repeats < 1) {
    fmt::print(stderr, "usage: matmul_bench [REPEATS]\n");
    return 2;
  }
  for (const moeflux::Shape shape : moeflux::kShapes)
    if (!moeflux::measure(shape, repeats)) return 1;
  return 0;
}
