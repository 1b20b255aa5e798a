#include "pack/matrix_packer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/testing/states.h"
#include "pack/quantize.h"
#include "pack/testing/packing.h"

namespace moeflux {
namespace {

using test::States;

// A matrix in a file of its own, with some bytes before it.
class OneMatrix {
 public:
  OneMatrix(const Encoding& encoding, std::uint64_t rows, std::uint64_t cols, std::size_t before = 0)
      : matrix_{rows, cols, encoding, {}, {}, {}, false} {
    const EncodedBytes bytes = encoded_bytes(encoding, rows, cols);
    std::string data(before, '\0');
    for (const auto& [range, size] : {std::pair{&matrix_.codes, bytes.codes},
                                      {&matrix_.scales, bytes.scales},
                                      {&matrix_.biases, bytes.biases}}) {
      *range = {FileId(0), size == 0 ? 0 : data.size(), size};
      for (std::uint64_t i = 0; i < size; ++i)  // a finite float in any type, as the sources of other tests
        data += static_cast<char>((i * 7 + size) % 61);
      data.append(before, '\0');
    }
    data_ = data;
    write();
  }
  void set(const ByteRange& part, std::uint64_t at, std::string_view bytes) {
    data_.replace(part.offset + at, bytes.size(), bytes);
    write();
  }
  SourceMatrix& matrix() { return matrix_; }
  const TensorCatalog& catalog() const { return *catalog_; }

  Result<Digest> pack(const MatrixFormat& format, std::vector<std::byte>& blocks) {
    MatrixPacker packer(*catalog_);
    return packer.pack_tiles(matrix_, "layers.0.some_proj", format,
                             [&](std::span<const std::byte> block) -> Status {
                               blocks.insert(blocks.end(), block.begin(), block.end());
                               return {};
                             });
  }
  Numbers numbers() {
    Numbers all;
    const Status decoded =
        decode_rows(*catalog_, matrix_, "matrix", [&](std::uint64_t, std::span<const float> row) -> Status {
          all.insert(all.end(), row.begin(), row.end());
          return {};
        });
    EXPECT_TRUE(decoded) << decoded.error().message();
    return all;
  }

 private:
  void write() {
    PosixFileSystem disk;
    auto file = disk.open_read(temporary_.write("weights.bin", data_));
    ASSERT_TRUE(file);
    catalog_ = std::make_unique<TensorCatalog>();
    (void)catalog_->add_file(*std::move(file));
  }

  TemporaryDirectory temporary_;
  SourceMatrix matrix_;
  std::string data_;
  std::unique_ptr<TensorCatalog> catalog_;
};

std::vector<Encoding> encodings() {
  return {
      PlainFormat{Dtype::bf16},         PlainFormat{Dtype::f16},           PlainFormat{Dtype::f32},
      AffineFormat{4, 64, Dtype::bf16}, AffineFormat{8, 64, Dtype::bf16},  AffineFormat{3, 32, Dtype::f16},
      AffineFormat{5, 32, Dtype::f32},  AffineFormat{6, 128, Dtype::bf16}, AffineFormat{2, 32, Dtype::bf16},
      Fp8BlockFormat{Dtype::f32},       Fp8BlockFormat{Dtype::bf16}};
}

TEST(AMatrixPacker, KeepsEveryNumberOfEveryEncoding) {
  for (const Encoding& encoding : encodings())
    for (const std::uint64_t rows : {1u, 15u, 16u, 17u, 130u, 300u}) {
      OneMatrix one(encoding, rows, 128);
      const MatrixFormat format{rows, 128, tile16::stored_encoding(encoding)};
      std::vector<std::byte> blocks;
      const auto digest = one.pack(format, blocks);
      ASSERT_TRUE(digest) << digest.error().message();
      ASSERT_EQ(blocks.size(), packed_bytes(format, TensorLayout::tile16));
      EXPECT_EQ(decode(format, blocks.data(), tile16::block_bytes(format.encoding, 128)), one.numbers())
          << describe(encoding) << ", " << rows << " rows";
    }
}

TEST(AMatrixPacker, QuantizesRowByRowWhatIsPlain) {
  for (const Encoding& encoding : {Encoding(PlainFormat{Dtype::bf16}), Encoding(Fp8BlockFormat{Dtype::f32})})
    for (const std::uint32_t bits : {4u, 8u}) {
      OneMatrix one(encoding, 150, 192);
      const AffineFormat affine{bits, 64, Dtype::bf16};
      const MatrixFormat format{150, 192, affine};
      std::vector<std::byte> blocks;
      ASSERT_TRUE(one.pack(format, blocks));
      Numbers expected = one.numbers();
      QuantizedRows quantized(1, 192, affine);
      for (std::size_t row = 0; row < 150; ++row) {
        const auto part = std::span(expected).subspan(row * 192, 192);
        quantized.set_row(0, part);
        decode_row(quantized.view(1), 0, part);
      }
      EXPECT_EQ(decode(format, blocks.data(), tile16::block_bytes(format.encoding, 192)), expected) << bits;
    }
}

TEST(AMatrixPacker, DigestsTheBytesAndNotWhereTheyLie) {
  for (const Encoding& encoding : encodings()) {
    const MatrixFormat format{300, 128, tile16::stored_encoding(encoding)};
    OneMatrix here(encoding, 300, 128), there(encoding, 300, 128, 4097);
    std::vector<std::byte> first, second;
    const auto a = here.pack(format, first), b = there.pack(format, second);
    ASSERT_TRUE(a && b);
    EXPECT_EQ(*a, *b) << describe(encoding);
    EXPECT_EQ(first, second) << describe(encoding);
  }
}

TEST(AMatrixPacker, DigestsASourceLargerThanASliceAsItsParts) {
  OneMatrix one(PlainFormat{Dtype::f32}, 2500, 512);  // 5 MB: two slices
  std::vector<std::byte> blocks;
  const auto digest = one.pack({2500, 512, PlainFormat{Dtype::f32}}, blocks);
  ASSERT_TRUE(digest);
  DigestStream codes, nothing, all;
  const std::vector<std::byte> bytes =
      read(one.catalog().file(FileId(0)), one.matrix().codes.offset, one.matrix().codes.size);
  codes.add(bytes);
  for (const Digest& part : {codes.value(), nothing.value(), nothing.value()})
    all.add(std::as_bytes(std::span(part.bytes)));
  EXPECT_EQ(*digest, all.value());
}

TEST(AMatrixPacker, SeesAnyChangedByteInTheDigest) {
  OneMatrix one(AffineFormat{4, 64, Dtype::bf16}, 40, 128);
  const MatrixFormat format{40, 128, one.matrix().encoding};
  std::vector<std::byte> ignored;
  std::vector<Digest> seen{*one.pack(format, ignored)};
  for (const ByteRange& part : {one.matrix().codes, one.matrix().scales, one.matrix().biases}) {
    one.set(part, part.size - 1, "\x3d");
    seen.push_back(*one.pack(format, ignored));
    EXPECT_NE(seen[seen.size() - 2], seen.back());
  }
}

TEST(AMatrixPacker, RefusesNumbersThatAreNotFiniteByName) {
  for (const bool quantize : {false, true}) {
    OneMatrix one(PlainFormat{Dtype::bf16}, 40, 64);
    one.set(one.matrix().codes, (33 * 64 + 5) * 2, std::string("\xc0\x7f", 2));
    std::vector<std::byte> ignored;
    const Encoding encoding = quantize ? Encoding(kAffine4) : one.matrix().encoding;
    const auto packed = one.pack({40, 64, encoding}, ignored);
    ASSERT_FALSE(packed);
    EXPECT_EQ(packed.error().code(), ErrorCode::corrupt_data);
    EXPECT_THAT(packed.error().message(), States("'layers.0.some_proj'", "row 33", "column 5", "nan"));
  }
  OneMatrix scaled(AffineFormat{4, 64, Dtype::bf16}, 40, 128);
  scaled.set(scaled.matrix().scales, (20 * 2 + 1) * 2, std::string("\x80\x7f", 2));
  std::vector<std::byte> ignored;
  const auto packed = scaled.pack({40, 128, scaled.matrix().encoding}, ignored);
  ASSERT_FALSE(packed);
  EXPECT_THAT(packed.error().message(), States("'layers.0.some_proj'", "row 20", "group 1", "inf"));
}

TEST(AMatrixPacker, AddsTheOneThatASourceLeftOut) {
  OneMatrix one(PlainFormat{Dtype::bf16}, 2, 48);
  MatrixPacker packer(one.catalog());
  const auto rows = [&] {
    Numbers all;
    const auto digest =
        packer.pack_rows(one.matrix(), "norm", [&](std::span<const std::byte> bytes) -> Status {
          const std::size_t before = all.size();
          all.resize(before + bytes.size() / 4);
          std::memcpy(all.data() + before, bytes.data(), bytes.size());
          return {};
        });
    EXPECT_TRUE(digest);
    return std::pair{all, *digest};
  };
  const auto [plain, plain_digest] = rows();
  EXPECT_EQ(plain, one.numbers());
  one.matrix().add_one = true;
  const auto [added, added_digest] = rows();
  ASSERT_EQ(added.size(), plain.size());
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(added[i], plain[i] + 1.0f);
  EXPECT_EQ(added_digest, plain_digest);
}

TEST(AMatrixPacker, StopsWhenTheSinkDoes) {
  OneMatrix one(PlainFormat{Dtype::bf16}, 64, 64);
  MatrixPacker packer(one.catalog());
  int calls = 0;
  const auto packed = packer.pack_tiles(one.matrix(), "m", {64, 64, one.matrix().encoding},
                                        [&](std::span<const std::byte>) -> Status {
                                          ++calls;
                                          return Error{ErrorCode::no_space, "full"};
                                        });
  ASSERT_FALSE(packed);
  EXPECT_EQ(packed.error().message(), "full");
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace moeflux
