#include "quant/dtype.h"

#include <array>

#include "base/check.h"

namespace moeflux {
namespace {

struct DtypeRow {
  Dtype dtype;
  std::string_view name;
  std::uint32_t bits;
};

constexpr std::array kDtypes{
    DtypeRow{Dtype::boolean, "BOOL", 8},    DtypeRow{Dtype::u8, "U8", 8},
    DtypeRow{Dtype::i8, "I8", 8},           DtypeRow{Dtype::u16, "U16", 16},
    DtypeRow{Dtype::i16, "I16", 16},        DtypeRow{Dtype::u32, "U32", 32},
    DtypeRow{Dtype::i32, "I32", 32},        DtypeRow{Dtype::u64, "U64", 64},
    DtypeRow{Dtype::i64, "I64", 64},        DtypeRow{Dtype::f16, "F16", 16},
    DtypeRow{Dtype::bf16, "BF16", 16},      DtypeRow{Dtype::f32, "F32", 32},
    DtypeRow{Dtype::f64, "F64", 64},        DtypeRow{Dtype::f8_e4m3, "F8_E4M3", 8},
    DtypeRow{Dtype::f8_e5m2, "F8_E5M2", 8}, DtypeRow{Dtype::f8_e8m0, "F8_E8M0", 8},
    DtypeRow{Dtype::f4, "F4", 4},
};

const DtypeRow& row_of(Dtype dtype) {
  const DtypeRow& row = kDtypes[static_cast<std::size_t>(dtype)];
  MF_REQUIRE(row.dtype == dtype, "the table of dtypes is in the order of the enum");
  return row;
}

static_assert(std::endian::native == std::endian::little,
              "files are little-endian, and load() does not swap");

}  // namespace

std::optional<Dtype> dtype_from_name(std::string_view name) {
  for (const DtypeRow& row : kDtypes)
    if (row.name == name) return row.dtype;
  return std::nullopt;
}

std::string_view name_of(Dtype dtype) { return row_of(dtype).name; }
std::uint32_t bits_of(Dtype dtype) { return row_of(dtype).bits; }

float float_from_f16(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t{bits} >> 15 << 31;
  const std::uint32_t exponent = (bits >> 10) & 0x1f;
  const std::uint32_t fraction = bits & 0x3ff;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24, exact in float
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | (exponent + 127 - 15) << 23 | fraction << 13);
}

float float_from_e4m3(std::uint8_t bits) {
  const std::uint32_t sign = std::uint32_t{bits} >> 7 << 31;
  const std::uint32_t exponent = (bits >> 3) & 0xf;
  const std::uint32_t fraction = bits & 0x7;
  if (exponent == 0xf && fraction == 0x7) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-9
    const float magnitude = static_cast<float>(fraction) * 0x1p-9f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | (exponent + 127 - 7) << 23 | fraction << 20);
}

float load_float(const std::byte* bytes, std::size_t index, Dtype dtype) {
  switch (dtype) {
    case Dtype::bf16: return float_from_bf16(load<std::uint16_t>(bytes + 2 * index));
    case Dtype::f16: return float_from_f16(load<std::uint16_t>(bytes + 2 * index));
    case Dtype::f32: return load<float>(bytes + 4 * index);
    default: MF_REQUIRE(false, "load_float reads bf16, f16 and f32"); return 0;
  }
}

}  // namespace moeflux
