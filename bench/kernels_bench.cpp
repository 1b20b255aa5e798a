// Measures the kernels at the shapes of Qwen3.5-35B-A3B, on one thread.
//
//   kernels_bench [--repeats N] [--isa NAME] [--only products|attention|delta] [--json FILE]
//
// Products: 4-bit matrices, group 64, BF16 scales, exact and fast, for batches of 1 (GB/s of weights, read
// from memory each time) to 512 (products per second). Attention: eight queries over blocks of keys and
// values, 32,768 positions in turn (GB/s of keys and values), and over bytes (products per second). The delta
// rule: one head, 64 rows.
//
// Each product is first compared with the scalar kernel, bit for bit. Repeats are interleaved with two
// measurements of the machine: the rate of reading memory and the rate of products in registers (of the same
// ISA). The output shows medians and their share of the machine's rate. Exits with 1 if a kernel is wrong.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/arithmetic.h"
#include "base/json/json.h"
#include "base/memory/aligned_buffer.h"
#include "base/thread_pool.h"
#include "io/machine.h"
#include "io/posix_file_system.h"
#include "kernels/byte_attention.h"
#include "kernels/kernel_table.h"
#include "measure/memory_rate.h"
#include "measure/quantiles.h"
#include "quant/tile16.h"

namespace moeflux {
namespace {

constexpr AffineFormat kFormat{.bits = 4, .group = 64, .scale_dtype = Dtype::bf16};
constexpr std::size_t kMemory = std::size_t{96} << 20;  // three times the largest cache of the test machines
constexpr std::uint32_t kLargestBatch = 512;
constexpr std::uint64_t kPeakRounds = 1u << 20;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void append_bf16(std::vector<std::byte>& bytes, float number) {
  std::byte halves[4];
  std::memcpy(halves, &number, sizeof halves);
  bytes.insert(bytes.end(), halves + 2, halves + 4);
}

// The limits of the machine, measured between the cases.
struct Limits {
  ThreadPool pool{1};
  const KernelTable& kernels;
  std::vector<double> read_rates{}, product_rates{};

  void measure() {
    if (const Result<double> rate = measure_read_bytes_per_second(pool, kMemory, 3))
      read_rates.push_back(*rate);
    const double begin = seconds();
    const std::uint64_t products = kernels.int8->saturate(kPeakRounds);
    product_rates.push_back(static_cast<double>(products) / (seconds() - begin));
  }
  double read_rate() const { return median(read_rates); }
  double product_rate() const { return median(product_rates); }
};

// One timed case: each call of `work` reads `amount` bytes or computes `amount` products.
struct Case {
  std::string name, unit;  // "GB/s" of bytes or "GMAC/s" of products
  double amount;
  std::function<void(std::size_t call)> work;
  std::size_t calls;
  std::vector<double> rates{};

  void measure() {
    const double begin = seconds();
    for (std::size_t call = 0; call < calls; ++call) work(call);
    rates.push_back(amount * static_cast<double>(calls) / (seconds() - begin));
  }
};

// Copies of one random matrix, enough to exceed the caches, and activations for it.
class Products {
 public:
  Products(std::uint32_t rows, std::uint32_t cols)
      : rows_(rows),
        cols_(cols),
        x_stride_(cols + 64),
        x_(std::size_t{kLargestBatch} * cols),
        sums_(x_.size() / kSumCols),
        codes_(kLargestBatch * x_stride_),
        scales_(x_.size() / kInt8Group),
        code_sums_(sums_.size()),
        y_(std::size_t{kLargestBatch} * rows),
        expected_(rows) {
    std::mt19937 random(1);
    std::normal_distribution<float> any(0, 1);
    for (float& number : x_) number = any(random);
    scalar_->matmul->sums(x_.data(), static_cast<std::uint32_t>(x_.size()), sums_.data());
    for (std::size_t row = 0; row < kLargestBatch; ++row)
      scalar_->int8->quantize(x_.data() + row * cols, cols,
                              {codes_.data() + row * x_stride_, scales_.data() + row * (cols / kInt8Group),
                               code_sums_.data() + row * (cols / kSumCols)});
  }

  bool allocate() {
    auto memory = HugeBuffer::create(std::max(kMemory, matrix_bytes()) + matrix_bytes());
    if (!memory) return false;
    memory_ = *std::move(memory);
    std::mt19937 random(2);
    std::uniform_real_distribution<float> scale(0.002f, 0.003f);
    std::vector<std::byte> codes(std::size_t{rows_} * cols_ / 2), scales, biases;
    for (std::byte& byte : codes) byte = static_cast<std::byte>(random());
    for (std::size_t group = 0; group < codes.size() * 2 / kFormat.group; ++group) {
      append_bf16(scales, scale(random));
      append_bf16(biases, -8 * scale(random));
    }
    const MatrixView matrix{rows_, cols_, kFormat, codes, scales, biases};
    for (std::size_t block = 0; block < blocks(); ++block)
      tile16::encode_block(matrix, block * tile16::kBlockRows,
                           memory_.bytes().subspan(block * block_bytes(), block_bytes()));
    for (std::size_t copy = 1; copy < copies(); ++copy)
      std::memcpy(memory_.data() + copy * matrix_bytes(), memory_.data(), matrix_bytes());
    return true;
  }

  // True if the first, a middle and the last row of a batch have the bits of the scalar kernel.
  bool is_right(const KernelTable& table, bool fast, std::uint32_t batch) {
    std::ranges::fill(y_, 0.0f);
    multiply(table, fast, 0, 0, batch, y_);
    for (const std::uint32_t row : {0u, batch / 2, batch - 1}) {
      multiply(*scalar_, fast, 0, row, 1, expected_);
      const float* found = y_.data() + std::size_t{row} * rows_;
      if (std::memcmp(expected_.data(), found, rows_ * sizeof(float)) != 0) return false;
    }
    return true;
  }

  Case make_case(const KernelTable& table, bool fast, std::uint32_t batch) {
    const double products = static_cast<double>(rows_) * cols_ * batch;
    return {fmt::format("{} {} x {} batch {}", fast ? "fast" : "exact", rows_, cols_, batch),
            batch == 1 ? "GB/s" : "GMAC/s", batch == 1 ? static_cast<double>(matrix_bytes()) : products,
            [this, &table, fast, batch](std::size_t call) { multiply(table, fast, call, 0, batch, y_); },
            batch == 1 ? 4 * copies() : std::max<std::size_t>(1, static_cast<std::size_t>(4e9 / products))};
  }

 private:
  std::size_t blocks() const { return rows_ / tile16::kBlockRows; }
  std::size_t block_bytes() const { return tile16::block_bytes(kFormat, cols_); }
  std::size_t matrix_bytes() const { return blocks() * block_bytes(); }
  std::size_t copies() const { return std::max<std::size_t>(1, kMemory / matrix_bytes()); }

  template <class Args>
  Args describe(std::size_t copy, std::uint32_t batch, std::vector<float>& y) const {
    Args args;
    args.blocks = memory_.data() + copy % copies() * matrix_bytes();
    args.block_stride = block_bytes();
    args.block_count = static_cast<std::uint32_t>(blocks());
    args.cols = cols_;
    args.group = kFormat.group;
    args.sums_stride = cols_ / kSumCols;
    args.batch = batch;
    args.y = y.data();
    args.y_stride = rows_;
    return args;
  }

  void multiply(const KernelTable& table, bool fast, std::size_t copy, std::uint32_t first,
                std::uint32_t batch, std::vector<float>& y) {
    if (fast) {
      auto args = describe<Int8Args>(copy, batch, y);
      args.x = codes_.data() + first * x_stride_;
      args.x_stride = x_stride_;
      args.scales = scales_.data() + first * (cols_ / kInt8Group);
      args.scales_stride = cols_ / kInt8Group;
      args.sums = code_sums_.data() + first * (cols_ / kSumCols);
      args.prefetch = wants_prefetch_;
      table.int8->affine4(args);
    } else {
      auto args = describe<MatmulArgs>(copy, batch, y);
      args.x = x_.data() + std::size_t{first} * cols_;
      args.x_stride = cols_;
      args.sums = sums_.data() + first * (cols_ / kSumCols);
      table.matmul->affine4(args);
    }
  }

  std::uint32_t rows_, cols_;
  std::size_t x_stride_;
  std::vector<float> x_, sums_;
  std::vector<std::int8_t> codes_;
  std::vector<float> scales_, code_sums_, y_, expected_;
  HugeBuffer memory_;
  const KernelTable* scalar_ = compiled_kernels().back();
  const bool wants_prefetch_ = wants_prefetch();
};

// Eight queries that share a head of 256 channels, over 32,768 positions block by block.
class Attention {
 public:
  static constexpr std::uint32_t kQueries = 8, kDim = 256, kBlocks = 32768 / kAttentionBlock;

  bool allocate() {
    auto memory = HugeBuffer::create(std::size_t{kBlocks} * block_floats() * sizeof(float));
    if (!memory) return false;
    memory_ = *std::move(memory);
    std::mt19937 random(3);
    std::normal_distribution<float> any(0, 1);
    for (float& number : queries_) number = any(random);
    float* const floats = reinterpret_cast<float*>(memory_.data());
    for (std::size_t i = 0; i < memory_.size() / sizeof(float); ++i)
      floats[i] = static_cast<float>(i % 1021) * 1e-3f;
    return true;
  }

  Case make_case(const KernelTable& table, bool from_memory) {
    return {from_memory ? "attention 8 x 256" : "attention 8 x 256 cached", "GB/s",
            static_cast<double>(block_floats() * sizeof(float)),
            [this, &table, from_memory](std::size_t call) {
              const float* block = reinterpret_cast<const float*>(memory_.data()) +
                                   (from_memory ? call % kBlocks : 0) * block_floats();
              const std::vector<std::uint32_t> visible(kQueries, kAttentionBlock);
              AttendArgs args;
              args.queries = queries_.data();
              args.query_stride = kDim;
              args.count = kQueries;
              args.visible = visible.data();
              args.keys = block;
              args.key_stride = args.value_stride = args.key_dim = args.value_dim = kDim;
              args.values = block + block_floats() / 2;
              args.scale = 1.0f / 16;
              args.is_cold = from_memory;
              args.next_keys = from_memory ? reinterpret_cast<const float*>(memory_.data()) +
                                                 (call + 1) % kBlocks * block_floats()
                                           : nullptr;
              args.max = max_;
              args.sum = sum_;
              args.out = out_.data();
              args.out_stride = kDim;
              table.attention->attend(args);
            },
            2 * kBlocks};
  }

 private:
  static constexpr std::size_t block_floats() { return std::size_t{2} * kAttentionBlock * kDim; }
  HugeBuffer memory_;
  std::vector<float> queries_ = std::vector<float>(kQueries * kDim),
                     out_ = std::vector<float>(kQueries * kDim);
  float max_[kQueries] = {}, sum_[kQueries] = {};
};

// The same over bytes, in products per second: blocks opened from memory and used once, as in decoding; used
// when already open, as in prompts; and opening alone.
class ByteAttention {
 public:
  static constexpr std::uint32_t kQueries = Attention::kQueries, kDim = Attention::kDim,
                                 kBlocks = Attention::kBlocks;
  static constexpr ByteBlockShape kShape{kDim, kDim};

  bool allocate(const KernelTable& table) {
    auto memory = HugeBuffer::create(kBlocks * block_words() * sizeof(float));
    auto opened = HugeBuffer::create(kShape.bytes());
    if (!memory || !opened) return false;
    memory_ = *std::move(memory);
    opened_ = *std::move(opened);
    std::mt19937 random(3);
    std::normal_distribution<float> any(0, 1);
    std::vector<float> row(kDim);
    for (std::size_t i = 0; i < std::size_t{kBlocks} * 2 * kAttentionBlock; ++i) {
      for (float& number : row) number = any(random);
      table.attention->narrow_int8(row.data(), kDim,
                                   reinterpret_cast<float*>(memory_.data()) + i * kRowWords);
    }
    for (std::size_t q = 0; q < kQueries; ++q)
      table.byte_attention->narrow_query(row.data(), kDim, queries_.data() + q * byte_query_words(kDim));
    open(table, 0);
    return true;
  }

  Case open_case(const KernelTable& table) {
    return {"attention, bytes: opening", "GB/s", static_cast<double>(block_words() * sizeof(float)),
            [this, &table](std::size_t call) { open(table, call); }, 2 * kBlocks};
  }
  Case attend_case(const KernelTable& table, bool opens) {
    return {
        opens ? "attention, bytes, 8 x 256" : "attention, bytes, open", "GMAC/s",
        2.0 * kQueries * kAttentionBlock * kDim,
        [this, &table, opens](std::size_t call) {
          if (opens) open(table, call);
          table.byte_attention->attend(
              {.shape = kShape,
               .block = opened_.data(),
               .queries = queries_.data(),
               .query_stride = byte_query_words(kDim),
               .count = kQueries,
               .visible = kAttentionBlock,
               .scale = 1.0f / 16,
               .next = {{opens ? block(call + 1) : nullptr, opens ? block_words() * sizeof(float) : 0}, {}},
               .max = max_,
               .sum = sum_,
               .out = out_.data(),
               .out_stride = kDim});
        },
        2 * kBlocks};
  }

 private:
  static constexpr std::size_t kRowWords = kv_row_words(KvDtype::int8, kDim);
  static constexpr std::size_t block_words() { return 2 * kAttentionBlock * kRowWords; }

  const std::byte* block(std::size_t call) const {
    return memory_.data() + call % kBlocks * block_words() * sizeof(float);
  }
  void open(const KernelTable& table, std::size_t call) {
    const auto* const rows = reinterpret_cast<const float*>(block(call));
    const auto kept = [](const float* from) {
      return StoredBytes{reinterpret_cast<const std::int8_t*>(from), from + kv_code_words(kDim), kRowWords};
    };
    table.byte_attention->open(kShape, kept(rows), kept(rows + block_words() / 2), kAttentionBlock,
                               opened_.data());
  }

  HugeBuffer memory_, opened_;
  std::vector<float> queries_ = std::vector<float>(kQueries * byte_query_words(kDim)),
                     out_ = std::vector<float>(kQueries * kDim);
  float max_[kQueries] = {}, sum_[kQueries] = {};
};

// Heads of 128 x 128: 64 rows of one head, where an operation is a product of the state with key or query, or
// its update; and one row of all heads of a layer, as in decoding, whose states stream from and to memory.
class DeltaRule {
 public:
  static constexpr std::uint32_t kDim = 128, kRows = 64;

  DeltaRule() {
    std::mt19937 random(4);
    std::normal_distribution<float> any(0, 0.05f);
    for (float& number : rows_) number = any(random);
  }
  bool allocate() {
    auto memory = HugeBuffer::create(std::size_t{2} * kLayers * kHeads * kStateSize * sizeof(float));
    if (!memory) return false;
    memory_ = *std::move(memory);
    // Memory that was never written is one page of zeros, which stays in the cache.
    std::fill_n(state(0, 0), std::size_t{2} * kLayers * kHeads * kStateSize, 0.01f);
    return true;
  }

  Case rows_case(const KernelTable& table) {
    return {"delta rule 128 x 128", "GMAC/s", 3.0 * kRows * kStateSize,
            [this, &table](std::size_t) {
              DeltaRuleArgs args;
              args.queries = rows_.data();
              args.keys = rows_.data() + kDim;
              args.values = rows_.data() + 2 * kDim;
              args.query_stride = args.key_stride = args.value_stride = 3 * kDim;
              args.decay = args.beta = rows_.data();
              args.decay_stride = args.beta_stride = 3 * kDim;
              args.rows = kRows;
              args.key_dim = args.value_dim = kDim;
              args.state_in = args.state_out = state(0, 0);
              args.y = y_.data();
              args.y_stride = kDim;
              table.delta_net->delta_rule(args);
            },
            200};
  }

  Case step_case(const KernelTable& table) {
    return {"delta rule 128 x 128 once", "GB/s", 2.0 * kHeads * kStateSize * sizeof(float),
            [this, &table](std::size_t call) {
              const std::size_t layer = call % kLayers, side = call / kLayers % 2;
              DeltaHead heads[kHeads];
              for (std::size_t i = 0; i < kHeads; ++i)
                heads[i] = {rows_.data(),
                            rows_.data() + kDim,
                            rows_.data() + 2 * kDim,
                            0.9f,
                            0.5f,
                            state(side, layer) + i * kStateSize,
                            state(1 - side, layer) + i * kStateSize,
                            y_.data()};
              table.delta_net->delta_step({heads, kHeads, kDim, kDim});
            },
            4 * kLayers};
  }

 private:
  static constexpr std::size_t kLayers = 24, kHeads = 32, kStateSize = std::size_t{kDim} * kDim;

  float* state(std::size_t side, std::size_t layer) {
    return reinterpret_cast<float*>(memory_.data()) + (side * kLayers + layer) * kHeads * kStateSize;
  }

  HugeBuffer memory_;  // two sides
  std::vector<float> rows_ = std::vector<float>(std::size_t{kRows} * 3 * kDim);
  std::vector<float> y_ = std::vector<float>(kRows * kDim);
};

struct Arguments {
  int repeats = 5;
  std::string isa, only, json;
};

bool parse(int argc, char** argv, Arguments& arguments) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i], value = argv[i + 1];
    if (name == "--repeats")
      std::from_chars(value.data(), value.data() + value.size(), arguments.repeats);
    else if (name == "--isa")
      arguments.isa = value;
    else if (name == "--only")
      arguments.only = value;
    else if (name == "--json")
      arguments.json = value;
    else
      return false;
  }
  return argc % 2 == 1 && arguments.repeats >= 1;
}

struct Suite {
  std::vector<std::unique_ptr<Products>> products;
  Attention attention;
  ByteAttention byte_attention;
  DeltaRule delta_rule;
  std::vector<Case> cases;
};

// Returns false, with a message, if there is not enough memory or a kernel is wrong.
bool prepare(Suite& suite, const KernelTable& table, const Arguments& arguments) {
  const auto wants = [&](std::string_view what) { return arguments.only.empty() || arguments.only == what; };
  struct Shape {
    std::uint32_t rows, cols;
    std::vector<std::uint32_t> batches;
  };
  const Shape shapes[] = {{512, 2048, {1, 2, 3, 5, 8, 16, 24}},
                          {2048, 512, {1, 2, 3, 5, 8, 16, 24}},
                          {8192, 2048, {1, 8, 512}},
                          {2048, 4096, {1, 8, 512}}};
  for (const Shape& shape : shapes) {
    if (!wants("products")) break;
    suite.products.push_back(std::make_unique<Products>(shape.rows, shape.cols));
    Products& products = *suite.products.back();
    if (!products.allocate()) return fmt::print(stderr, "kernels_bench: not enough memory\n"), false;
    for (const bool fast : {true, false})
      for (const std::uint32_t batch : shape.batches) {
        if (!products.is_right(table, fast, batch))
          return fmt::print(stderr, "kernels_bench: {} x {}, batch {}, differs from the scalar kernel\n",
                            shape.rows, shape.cols, batch),
                 false;
        suite.cases.push_back(products.make_case(table, fast, batch));
      }
  }
  if (wants("attention")) {
    if (!suite.attention.allocate()) return fmt::print(stderr, "kernels_bench: not enough memory\n"), false;
    suite.cases.push_back(suite.attention.make_case(table, true));
    suite.cases.push_back(suite.attention.make_case(table, false));
    if (!suite.byte_attention.allocate(table))
      return fmt::print(stderr, "kernels_bench: not enough memory\n"), false;
    suite.cases.push_back(suite.byte_attention.open_case(table));
    suite.cases.push_back(suite.byte_attention.attend_case(table, true));
    suite.cases.push_back(suite.byte_attention.attend_case(table, false));
  }
  if (wants("delta")) {
    if (!suite.delta_rule.allocate()) return fmt::print(stderr, "kernels_bench: not enough memory\n"), false;
    suite.cases.push_back(suite.delta_rule.step_case(table));
    suite.cases.push_back(suite.delta_rule.rows_case(table));
  }
  return true;
}

int run(const Arguments& arguments) {
  const Result<const KernelTable*> table = select_kernels(arguments.isa);
  if (!table) return fmt::print(stderr, "kernels_bench: {}\n", table.error().message()), 2;
  Suite suite;
  if (!prepare(suite, **table, arguments)) return 1;
  Limits machine{.kernels = **table};
  for (int repeat = 0; repeat < arguments.repeats; ++repeat) {
    machine.measure();
    for (Case& timed : suite.cases) timed.measure();
  }
  PosixFileSystem files;
  Json json{{"isa", (*table)->name},
            {"processor", read_machine(files).processor},
            {"memory_gb_per_second", machine.read_rate() / 1e9},
            {"peak_gmac_per_second", machine.product_rate() / 1e9},
            {"cases", Json::array()}};
  fmt::print("{}: memory {:.1f} GB/s, products {:.1f} GMAC/s\n", (*table)->name, machine.read_rate() / 1e9,
             machine.product_rate() / 1e9);
  for (const Case& timed : suite.cases) {
    const double rate = median(timed.rates);
    const double limit = timed.unit == "GB/s" ? machine.read_rate() : machine.product_rate();
    fmt::print("{:<28}{:>8.1f} {:<7}{:>5.0f} %\n", timed.name, rate / 1e9, timed.unit, 100 * rate / limit);
    json["cases"].push_back(
        {{"name", timed.name}, {"unit", timed.unit}, {"rate", rate / 1e9}, {"of_machine", rate / limit}});
  }
  if (arguments.json.empty()) return 0;
  std::FILE* const file = std::fopen(arguments.json.c_str(), "w");
  if (file == nullptr) return fmt::print(stderr, "kernels_bench: cannot write {}\n", arguments.json), 1;
  fmt::print(file, "{}\n", json.dump(2));
  return std::fclose(file) == 0 ? 0 : 1;
}

}  // namespace
}  // namespace moeflux

int main(int argc, char** argv) {
  moeflux::Arguments arguments;
  if (!moeflux::parse(argc, argv, arguments)) {
    fmt::print(
        stderr,
        "usage: kernels_bench [--repeats N] [--isa NAME] [--only products|attention|delta] [--json FILE]\n");
    return 2;
  }
  return moeflux::run(arguments);
}
