#include "quant/dtype.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "base/testing/expect_contract.h"

namespace moeflux {
namespace {

constexpr std::array kNames{
    std::pair{"BOOL", 8u}, std::pair{"U8", 8u},      std::pair{"I8", 8u},      std::pair{"U16", 16u},
    std::pair{"I16", 16u}, std::pair{"U32", 32u},    std::pair{"I32", 32u},    std::pair{"U64", 64u},
    std::pair{"I64", 64u}, std::pair{"F16", 16u},    std::pair{"BF16", 16u},   std::pair{"F32", 32u},
    std::pair{"F64", 64u}, std::pair{"F8_E4M3", 8u}, std::pair{"F8_E5M2", 8u}, std::pair{"F8_E8M0", 8u},
    std::pair{"F4", 4u},
};

// The value of a small float from its fields, by definition.
float float_of_fields(bool negative, unsigned exponent, unsigned fraction, int fraction_bits, int bias) {
  const double whole = exponent == 0 ? 0.0 : 1.0;
  const int power = (exponent == 0 ? 1 : static_cast<int>(exponent)) - bias;
  const double magnitude =
      std::ldexp(whole + std::ldexp(static_cast<double>(fraction), -fraction_bits), power);
  return static_cast<float>(negative ? -magnitude : magnitude);
}

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

TEST(DtypeNames, RoundTripForEveryTypeOfSafetensors) {
  for (const auto& [name, bits] : kNames) {
    const auto dtype = dtype_from_name(name);
    ASSERT_TRUE(dtype) << name;
    EXPECT_EQ(name_of(*dtype), name);
    EXPECT_EQ(bits_of(*dtype), bits) << name;
  }
}

TEST(DtypeNames, AreExact) {
  for (const char* name : {"", "bf16", "BF16 ", "BF", "F8", "F8_E4M3FN", "FLOAT32", "U4"})
    EXPECT_FALSE(dtype_from_name(name)) << name;
}

TEST(Dtype, IsAPlainFloatIfBf16F16OrF32) {
  for (const auto& [name, bits] : kNames) {
    const std::string text = name;
    EXPECT_EQ(is_plain_float(*dtype_from_name(text)), text == "BF16" || text == "F16" || text == "F32")
        << text;
  }
}

TEST(E4m3, DecodesEveryCodeByDefinition) {
  for (unsigned code = 0; code < 256; ++code) {
    const float value = float_from_e4m3(static_cast<std::uint8_t>(code));
    const unsigned exponent = code >> 3 & 0xf, fraction = code & 7;
    if (exponent == 15 && fraction == 7) {
      EXPECT_TRUE(std::isnan(value)) << code;
      continue;
    }
    const float expected = float_of_fields(code >= 128, exponent, fraction, 3, 7);
    EXPECT_TRUE(same_bits(value, expected)) << code << ": " << value << " instead of " << expected;
  }
}

TEST(E4m3, HasNoInfinitiesAndReaches448) {
  EXPECT_EQ(float_from_e4m3(0x7e), 448.0f);
  EXPECT_EQ(float_from_e4m3(0xfe), -448.0f);
  EXPECT_EQ(float_from_e4m3(0x01), 0x1p-9f);
  for (unsigned code = 0; code < 256; ++code)
    EXPECT_FALSE(std::isinf(float_from_e4m3(static_cast<std::uint8_t>(code)))) << code;
}

TEST(F16, DecodesEveryCodeByDefinition) {
  for (std::uint32_t code = 0; code < 65536; ++code) {
    const float value = float_from_f16(static_cast<std::uint16_t>(code));
    const bool negative = code >= 32768;
    const unsigned exponent = code >> 10 & 0x1f, fraction = code & 0x3ff;
    if (exponent == 31 && fraction != 0) {
      ASSERT_TRUE(std::isnan(value)) << code;
      continue;
    }
    const float expected = exponent == 31 ? (negative ? -HUGE_VALF : HUGE_VALF)
                                          : float_of_fields(negative, exponent, fraction, 10, 15);
    ASSERT_TRUE(same_bits(value, expected)) << code << ": " << value << " instead of " << expected;
  }
}

TEST(Bf16, DecodesEveryCodeByDefinition) {
  for (std::uint32_t code = 0; code < 65536; ++code) {
    const float value = float_from_bf16(static_cast<std::uint16_t>(code));
    const unsigned exponent = code >> 7 & 0xff, fraction = code & 0x7f;
    if (exponent == 255) {
      ASSERT_EQ(std::isnan(value), fraction != 0) << code;
      ASSERT_EQ(std::isinf(value), fraction == 0) << code;
      continue;
    }
    ASSERT_TRUE(same_bits(value, float_of_fields(code >= 32768, exponent, fraction, 7, 127))) << code;
  }
}

TEST(LoadFloat, LoadsEachTypeAtAnyAlignment) {
  // 1.5 and -2 in each type, as little-endian bytes.
  const std::array<unsigned char, 4> bf16{0xc0, 0x3f, 0x00, 0xc0};
  const std::array<unsigned char, 4> f16{0x00, 0x3e, 0x00, 0xc0};
  const std::array<unsigned char, 8> f32{0x00, 0x00, 0xc0, 0x3f, 0x00, 0x00, 0x00, 0xc0};
  for (std::size_t shift = 0; shift < 8; ++shift) {
    alignas(8) std::array<std::byte, 16> buffer{};
    std::byte* const at = buffer.data() + shift;
    std::memcpy(at, bf16.data(), bf16.size());
    EXPECT_EQ(load_float(at, 0, Dtype::bf16), 1.5f);
    EXPECT_EQ(load_float(at, 1, Dtype::bf16), -2.0f);
    std::memcpy(at, f16.data(), f16.size());
    EXPECT_EQ(load_float(at, 0, Dtype::f16), 1.5f);
    EXPECT_EQ(load_float(at, 1, Dtype::f16), -2.0f);
    std::memcpy(at, f32.data(), f32.size());
    EXPECT_EQ(load_float(at, 0, Dtype::f32), 1.5f);
    EXPECT_EQ(load_float(at, 1, Dtype::f32), -2.0f);
  }
}

TEST(LoadFloat, RequiresAPlainFloat) {
  const std::array<std::byte, 8> zeros{};
  EXPECT_CONTRACT(load_float(zeros.data(), 0, Dtype::u32), "load_float reads bf16, f16 and f32");
}

}  // namespace
}  // namespace moeflux
