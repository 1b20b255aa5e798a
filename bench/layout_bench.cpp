// Compares the same products over four layouts of a packed 4-bit matrix, with one thread.
//
//   layout_bench [REPEATS]
//
// For the shapes of the routed experts of Qwen3.5 35B and 397B: `exact` (float32 activations) and `int8`, for
// one row of activations (decode: GB/s of weights, which are read from memory every time) and for 16 and 256
// (prefill: GMAC/s). Every kernel is first compared with a plain loop, bit for bit. Repeats are interleaved,
// so that host load affects all kernels alike. Results are medians, next to the rate at which the same memory
// can be read. The exit status is 1 if a kernel is wrong. The conclusion is docs/decisions/0004-tile16.md.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory/aligned_buffer.h"
#include "layout_matrix.h"

namespace moeflux::layout_bench {
namespace {

struct Shape {
  std::uint32_t rows, cols;
};
constexpr Shape kShapes[] = {{512, 2048}, {2048, 512}, {1024, 4096}, {4096, 1024}};
constexpr std::uint32_t kBatches[] = {1, 16, 256};
constexpr std::uint32_t kLargestBatch = 256;
constexpr std::size_t kMemory = std::size_t{96} << 20;  // per layout: three times the largest cache
constexpr std::array<const char*, kLayouts> kLayoutNames{"rows", "tile16", "paired", "split"};

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

// One line of the table is one kernel, one batch; its columns are the layouts and, of `rows`, a second way.
struct Measured {
  std::string line, column;
  Layout layout;
  Kernel kernel;
  Order order;
  std::uint32_t batch;
  bool is_exact;
  std::vector<double> times{};
};

std::vector<Measured> all_kernels(const std::vector<const Kernels*>& tables) {
  std::vector<Measured> all;
  for (const Kernels* table : tables)
    for (const bool is_exact : {true, false})
      for (const std::uint32_t batch : kBatches) {
        const std::string line =
            fmt::format("{:<5} {:<6} {:>5}", is_exact ? "exact" : "int8", table->isa, batch);
        for (std::size_t i = 0; i < kLayouts; ++i) {
          const auto layout = static_cast<Layout>(i);
          const Order order = layout == Layout::rows ? Order::even_odd_of_8 : Order::columns;
          const Kernel kernel = is_exact ? table->exact[i] : table->int8[i];
          all.push_back({line, kLayoutNames[i], layout, kernel, order, batch, is_exact});
        }
        if (!is_exact && batch == 1)
          all.push_back({line, "across", Layout::rows, table->int8_across, Order::even_odd_of_64, 1, false});
      }
  return all;
}

// One matrix in every layout, with enough copies of each to exceed the caches.
class Bench {
 public:
  explicit Bench(Shape shape)
      : shape_(shape),
        matrix_(MlxMatrix::random(shape.rows, shape.cols, 1)),
        activations_(Activations::random(kLargestBatch, shape.cols, 2)),
        y_(std::size_t{kLargestBatch} * shape.rows) {}

  bool allocate() {
    for (std::size_t i = 0; i < kLayouts; ++i) {
      auto memory = HugeBuffer::create(kMemory);
      if (!memory) return false;
      const auto first = memory->bytes().first(matrix_.total_bytes());
      write_layout(static_cast<Layout>(i), matrix_.view(), first);
      for (std::size_t copy = 1; copy < copies(); ++copy)
        std::memcpy(memory->data() + copy * first.size(), first.data(), first.size());
      memory_[i] = *std::move(memory);
    }
    return true;
  }

  // Room for whole matrices and for the few bytes that a gather reads past the last one.
  std::size_t copies() const { return (kMemory - 64) / matrix_.total_bytes(); }
  std::size_t matrix_bytes() const { return matrix_.total_bytes(); }

  void run(const Measured& measured, std::size_t copy) {
    Product product = activations_.product(measured.order, measured.batch);
    product.weights = bytes_of(measured.layout) + copy * matrix_.total_bytes();
    product.rows = shape_.rows;
    product.y = y_.data();
    measured.kernel(product);
  }

  // True if the kernel produces the same bits as the plain loop, for the first and last rows of its batch.
  bool is_right(const Measured& measured) {
    std::fill(y_.begin(), y_.end(), 0.0f);
    run(measured, copies() - 1);
    std::vector<std::uint32_t> rows{0, measured.batch / 2, measured.batch - 1};
    return std::all_of(rows.begin(), rows.end(), [&](std::uint32_t n) {
      const std::vector<float>& expected = expected_of(n, measured.is_exact);
      return std::memcmp(expected.data(), y_.data() + std::size_t{n} * shape_.rows, shape_.rows * 4) == 0;
    });
  }

  // Seconds for one matrix.
  double time(const Measured& measured) {
    const std::size_t all = copies();
    const std::size_t count = measured.batch == 1 ? all : std::max<std::size_t>(1, all * 2 / measured.batch);
    const double begin = seconds();
    for (std::size_t copy = 0; copy < count; ++copy) run(measured, copy);
    return (seconds() - begin) / static_cast<double>(count);
  }

  double read_rate(const Kernels& table, std::size_t layout) {
    const double begin = seconds();
    table.read(bytes_of(static_cast<Layout>(layout)), kMemory);
    return static_cast<double>(kMemory) / (seconds() - begin) * 1e-9;
  }

  std::string describe(const Measured& measured) const {
    const double time = median(measured.times);
    if (measured.batch == 1)
      return fmt::format("{:.1f} GB/s", static_cast<double>(matrix_bytes()) / time * 1e-9);
    const std::uint64_t products = std::uint64_t{shape_.rows} * shape_.cols * measured.batch;
    return fmt::format("{:.0f} GMAC/s", static_cast<double>(products) / time * 1e-9);
  }

 private:
  const std::uint8_t* bytes_of(Layout layout) const {
    return reinterpret_cast<const std::uint8_t*>(memory_[static_cast<std::size_t>(layout)].data());
  }

  const std::vector<float>& expected_of(std::uint32_t row_of_batch, bool is_exact) {
    std::vector<float>& expected = expected_[is_exact ? 1 : 0][row_of_batch];
    if (expected.empty()) {
      expected.resize(shape_.rows);
      (is_exact ? exact_by_law : int8_by_law)(matrix_.view(), activations_, row_of_batch, expected);
    }
    return expected;
  }

  Shape shape_;
  MlxMatrix matrix_;
  Activations activations_;
  std::vector<float> y_;
  std::array<HugeBuffer, kLayouts> memory_;
  std::array<std::array<std::vector<float>, kLargestBatch>, 2> expected_;
};

void print_table(const Bench& bench, Shape shape, std::vector<double> rates,
                 const std::vector<Measured>& kernels) {
  fmt::print("\n{} x {}: {} bytes; memory is read at {:.1f} GB/s\n", shape.rows, shape.cols,
             bench.matrix_bytes(), median(std::move(rates)));
  const std::array<std::string_view, 5> columns{"rows", "across", "tile16", "paired", "split"};
  fmt::print("{:<18}", "batch");
  for (const std::string_view column : columns) fmt::print("{:>13}", column);
  for (const Measured& first : kernels) {
    if (first.layout != Layout::rows || first.column != "rows") continue;
    fmt::print("\n{:<18}", first.line);
    for (const std::string_view column : columns) {
      const auto found = std::find_if(kernels.begin(), kernels.end(), [&](const Measured& other) {
        return other.line == first.line && other.column == column;
      });
      fmt::print("{:>13}", found == kernels.end() ? "" : bench.describe(*found));
    }
  }
  fmt::print("\n");
}

bool measure(Shape shape, int repeats, const std::vector<const Kernels*>& tables) {
  Bench bench(shape);
  if (!bench.allocate()) {
    fmt::print(stderr, "layout_bench: not enough memory\n");
    return false;
  }
  std::vector<Measured> kernels = all_kernels(tables);
  for (const Measured& measured : kernels)
    if (!bench.is_right(measured)) {
      fmt::print(stderr, "layout_bench: {} over {} is not what the plain loop gives\n", measured.line,
                 measured.column);
      return false;
    }
  std::vector<double> rates;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    for (std::size_t layout = 0; layout < kLayouts; ++layout)
      rates.push_back(bench.read_rate(*tables.front(), layout));
    for (Measured& measured : kernels) measured.times.push_back(bench.time(measured));
  }
  print_table(bench, shape, std::move(rates), kernels);
  return true;
}

int run(int repeats) {
  std::vector<const Kernels*> tables;
  for (const Kernels* table : {&kAvx512Kernels, &kAvx2Kernels}) {
    if (table->runs_here())
      tables.push_back(table);
    else
      fmt::print("this CPU does not run {}: left out\n", table->isa);
  }
  if (tables.empty()) return 0;
  for (const Shape shape : kShapes)
    if (!measure(shape, repeats, tables)) return 1;
  return 0;
}

}  // namespace
}  // namespace moeflux::layout_bench

int main(int argc, char** argv) {
  int repeats = 5;
  const std::string_view text = argc == 2 ? argv[1] : "";
  if (argc == 2) std::from_chars(text.data(), text.data() + text.size(), repeats);
  if (argc > 2 || repeats < 1) {
    fmt::print(stderr, "usage: layout_bench [REPEATS]\n");
    return 2;
  }
  return moeflux::layout_bench::run(repeats);
}
