// Integer products, sixteen output rows at a time. Included by the kernels of each ISA after lanes_*.h and
// codes_vector.inl; int8_scalar.cpp says what they compute. The including file has defined
//
//   kInt8Rows                   rows of x that are multiplied together
//   dot4<Bits>(sum, codes, x)   sum + the products of the four bytes of a lane: codes are unsigned and below 2^Bits, x is
//                               signed and above -128; exact
//
// The sums of a cell are integers and exact, so chains and tiles are whatever is fast.

namespace moeflux {
namespace {

// Chains of integer sums a row of x: enough of them to hide how long a product takes.
constexpr unsigned chains_of(unsigned rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }

MF_LANES Ints broadcast_four(const std::int8_t* bytes) {
  std::int32_t four;
  __builtin_memcpy(&four, bytes, sizeof four);
  return broadcast(four);
}

template <unsigned Bits, unsigned Rows, unsigned Index = 0>
MF_LANES void add_step(const std::byte* low, const std::byte* high, const std::int8_t* const (&x)[Rows],
                       std::size_t k, Ints (&sums)[Rows][chains_of(Rows)]) {
  const Ints codes = quad_codes<Bits, Index>(low, high);
#pragma GCC unroll 16
  for (unsigned row = 0; row < Rows; ++row) {
    Ints& sum = sums[row][Index % chains_of(Rows)];
    sum = dot4<Bits>(sum, codes, broadcast_four(x[row] + k + 4 * Index));
  }
  if constexpr (4 * (Index + 1) < kStep) add_step<Bits, Rows, Index + 1>(low, high, x, k, sums);
}

// Rows [first_row, first_row + Rows) of the batch with one block.
template <unsigned Bits, unsigned Rows>
MF_LANES void multiply_rows(const Int8Args& args, std::uint32_t first_row, std::uint32_t block) {
  constexpr unsigned kChains = chains_of(Rows);
  const std::int8_t* x[Rows];
  const float* scales[Rows];
  const float* sums[Rows];
  Lanes acc[Rows];
#pragma GCC unroll 16
  for (unsigned row = 0; row < Rows; ++row) {
    const std::uint64_t x_row = args.x_rows != nullptr ? args.x_rows[first_row + row] : first_row + row;
    x[row] = args.x + x_row * args.x_stride;
    scales[row] = args.scales + x_row * args.scales_stride;
    sums[row] = args.sums + x_row * args.sums_stride;
    acc[row] = broadcast(0.0f);
  }
  const std::uint32_t cell = args.group < kInt8Group ? args.group : kInt8Group;
  const std::size_t high_at = std::size_t{args.group} * 2 * Planes<Bits>::kLow;
  const std::size_t scales_at = std::size_t{args.group} * 2 * Bits;
  const std::size_t group_bytes = scales_at + (args.f32_scales ? 2 : 1) * kUnitBytes;
  const std::byte* units = args.blocks + block * args.block_stride;
  for (std::uint32_t first = 0; first < args.cols; first += args.group, units += group_bytes) {
    const GroupScales of_rows = group_scales(units + scales_at, args.f32_scales);
    const std::byte* low = units;
    const std::byte* high = units + high_at;
    for (std::uint32_t k = first; k < first + args.group; k += cell) {
      Ints dots[Rows][kChains];
#pragma GCC unroll 16
      for (unsigned row = 0; row < Rows; ++row)
#pragma GCC unroll 4
        for (unsigned chain = 0; chain < kChains; ++chain) dots[row][chain] = broadcast(std::int32_t{0});
      for (std::uint32_t step = 0; step < cell; step += kStep) {
        __builtin_prefetch(low + 2048);
        if constexpr (Bits >= 4) __builtin_prefetch(low + 2048 + 2 * kUnitBytes);
        add_step<Bits, Rows>(low, high, x, k + step, dots);
        low += Planes<Bits>::kLow * kUnitBytes;
        high += Planes<Bits>::kHigh * kUnitBytes;
      }
#pragma GCC unroll 16
      for (unsigned row = 0; row < Rows; ++row) {
        Ints dot = dots[row][0];
#pragma GCC unroll 4
        for (unsigned chain = 1; chain < kChains; ++chain) dot = dot + dots[row][chain];
        float sum = sums[row][k / kSumCols];
        if (cell == kInt8Group) sum = sum + sums[row][k / kSumCols + 1];
        const Lanes inner = fma(of_rows.bias, broadcast(sum), of_rows.scale * to_float(dot));
        acc[row] = fma(broadcast(scales[row][k / kInt8Group]), inner, acc[row]);
      }
    }
  }
  const std::uint32_t rows_of_block = block + 1 == args.block_count ? args.last_block_rows : kBlockRows;
  float* y = args.y + first_row * args.y_stride + std::uint64_t{block} * kBlockRows;
#pragma GCC unroll 16
  for (unsigned row = 0; row < Rows; ++row) store_first(y + row * args.y_stride, acc[row], rows_of_block);
}

// Rows [row, end) with one block: as many at a time as there are registers for, then half as many, and so on. Widths
// other than 4 and 8 bits are rare, and compile for as long.
template <unsigned Bits>
constexpr unsigned kMostRows = Bits == 4 || Bits == 8 ? kInt8Rows : kInt8Rows / 2;

template <unsigned Bits, unsigned Rows>
MF_LANES void multiply_some(const Int8Args& args, std::uint32_t row, std::uint32_t end, std::uint32_t block) {
  for (; end - row >= Rows; row += Rows) multiply_rows<Bits, Rows>(args, row, block);
  if constexpr (Rows > 1) multiply_some<Bits, Rows / 2>(args, row, end, block);
}

// Rows of x that visit a block before the next is read: it and their x stay in the second-level cache.
constexpr std::uint32_t kChunkRows = 64;

template <unsigned Bits>
void multiply(const Int8Args& args) noexcept {
  for (std::uint32_t chunk = 0; chunk < args.batch; chunk += kChunkRows) {
    const std::uint32_t end = args.batch - chunk < kChunkRows ? args.batch : chunk + kChunkRows;
    for (std::uint32_t block = 0; block < args.block_count; ++block)
      multiply_some<Bits, kMostRows<Bits>>(args, chunk, end, block);
  }
}

void quantize(const float* x, std::uint32_t n, std::int8_t* codes, float* scales, float* sums) noexcept {
  for (std::uint32_t first = 0; first < n; first += kInt8Group) {
    const std::uint32_t count = n - first < kInt8Group ? n - first : kInt8Group;
    Lanes largest = broadcast(0.0f), nothing = broadcast(0.0f);
    for (std::uint32_t i = first; i < first + count; i += 16) {
      const Lanes size = magnitude(load(x + i));
      largest = select(greater(size, largest), size, largest);
      nothing = nothing + (size - size);  // zeros, or not a number
    }
    float lanes[16], m = 0;
    store(lanes, largest);
    for (const float lane : lanes) m = lane > m ? lane : m;
    const bool is_finite = fold_add(nothing) == 0;
    const bool counts = is_finite && m >= kInt8Least;
    scales[first / kInt8Group] = !is_finite ? __builtin_nanf("") : counts ? m / 127.0f : 0.0f;
    const Lanes inverse = broadcast(counts ? 127.0f / m : 0.0f);
    const Lanes round = broadcast(0x1.8p+23f);
    for (std::uint32_t i = first; i < first + count; i += 32) {
      Ints both[2];
#pragma GCC unroll 2
      for (unsigned half = 0; half < 2; ++half) {
        const Lanes number = load(x + i + 16 * half) * inverse;
        both[half] = counts ? to_int(number + round - round) : broadcast(std::int32_t{0});
        store_bytes(codes + i + 16 * half, both[half]);
      }
      sums[i / kSumCols] = fold_add(to_float(both[0] + both[1]));
    }
  }
}

constexpr Int8Kernels kInt8 = {
    .affine2 = multiply<2>,
    .affine3 = multiply<3>,
    .affine4 = multiply<4>,
    .affine5 = multiply<5>,
    .affine6 = multiply<6>,
    .affine8 = multiply<8>,
    .quantize = quantize,
};

}  // namespace
}  // namespace moeflux
