#include "quant/encoding.h"

#include <fmt/format.h>

#include "base/arithmetic.h"
#include "base/overloaded.h"

namespace moeflux {

EncodedBytes encoded_bytes(const Encoding& encoding, std::uint64_t rows, std::uint64_t cols) {
  return std::visit(overloaded{
                        [&](const PlainFormat& plain) -> EncodedBytes {
                          return {rows * cols * bits_of(plain.dtype) / 8, 0, 0};
                        },
                        [&](const AffineFormat& affine) -> EncodedBytes {
                          const std::uint64_t per_group =
                              rows * (cols / affine.group) * bits_of(affine.scale_dtype) / 8;
                          return {rows * affine_row_bytes(affine, cols), per_group, per_group};
                        },
                        [&](const Fp8BlockFormat& fp8) -> EncodedBytes {
                          const std::uint64_t block = Fp8BlockFormat::kBlock;
                          const std::uint64_t blocks = divide_up(rows, block) * divide_up(cols, block);
                          return {rows * cols, blocks * bits_of(fp8.scale_dtype) / 8, 0};
                        },
                    },
                    encoding);
}

std::string describe(const Encoding& encoding) {
  return std::visit(overloaded{
                        [](const PlainFormat& plain) -> std::string {
                          switch (plain.dtype) {
                            case Dtype::bf16: return "bf16";
                            case Dtype::f16: return "f16";
                            case Dtype::f32: return "f32";
                            default: return std::string(name_of(plain.dtype));
                          }
                        },
                        [](const AffineFormat& affine) {
                          return fmt::format("affine {}-bit group {}{}", affine.bits, affine.group,
                                             affine.scale_dtype == Dtype::bf16
                                                 ? ""
                                                 : fmt::format(" ({} scales)", name_of(affine.scale_dtype)));
                        },
                        [](const Fp8BlockFormat& fp8) {
                          return fmt::format("fp8 e4m3 {0}x{0} ({1} scales)", +Fp8BlockFormat::kBlock,
                                             name_of(fp8.scale_dtype));
                        },
                    },
                    encoding);
}

}  // namespace moeflux
