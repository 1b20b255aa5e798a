#include "source/matrix_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/testing/states.h"
#include "io/posix_file_system.h"
#include "io/testing/faulty_file_system.h"
#include "io/testing/temporary_directory.h"
#include "source/testing/tiny_models.h"

namespace moeflux {
namespace {

using test::States;
using testing::Each;
using testing::ElementsAre;
using testing::Le;

// A matrix 'm' of one encoding in its own file, found by the names of its tensors.
class OneMatrix {
 public:
  OneMatrix(FileSystem& files, std::uint64_t rows, std::uint64_t cols, const Encoding& encoding)
      : builder_(built(rows, cols, encoding)), catalog_(catalog_of(files, temporary_, builder_)) {
    const auto range = [&](const char* name) {
      const TensorEntry* tensor = catalog_.find(name);
      return tensor == nullptr ? ByteRange{} : tensor->bytes;
    };
    const bool fp8 = std::holds_alternative<Fp8BlockFormat>(encoding);
    matrix = {.rows = rows,
              .cols = cols,
              .encoding = encoding,
              .codes = range("m.weight"),
              .scales = range(fp8 ? "m.weight_scale_inv" : "m.scales"),
              .biases = range("m.biases")};
  }

  SourceMatrix matrix;
  const TensorCatalog& catalog() const { return catalog_; }
  std::filesystem::path path() const { return temporary_ / "model.safetensors"; }

  // Decodes the whole matrix at once, from memory.
  MatrixView whole() const {
    const auto part = [&](const ByteRange& range) {
      const auto data = std::as_bytes(std::span(builder_.data()));
      return data.subspan(range.size == 0 ? 0 : range.offset - catalog_offset(), range.size);
    };
    return {matrix.rows,        matrix.cols,         matrix.encoding,
            part(matrix.codes), part(matrix.scales), part(matrix.biases)};
  }

 private:
  static SafetensorsBuilder built(std::uint64_t rows, std::uint64_t cols, const Encoding& encoding) {
    TinyCheckpoint tensors;
    tensors.module("m", {rows, cols}, encoding);
    return tensors.safetensors();
  }
  std::uint64_t catalog_offset() const { return 8 + builder_.header().size(); }

  TemporaryDirectory temporary_;
  SafetensorsBuilder builder_;
  TensorCatalog catalog_;
};

struct Case {
  const char* name;
  std::uint64_t rows, cols;
  Encoding encoding;
  std::vector<std::uint64_t> slices;  // rows of each
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// Slices hold 4 MiB: 4194304 / (bytes of a row).
const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"Bf16", 7, 33, PlainFormat{Dtype::bf16}, {7}},
      {"F16", 7, 33, PlainFormat{Dtype::f16}, {7}},
      {"F32", 7, 33, PlainFormat{Dtype::f32}, {7}},
      {"Affine3", 9, 96, AffineFormat{3, 32, Dtype::f16}, {9}},
      {"Affine4", 9, 128, kAffine4, {9}},
      {"Affine5", 9, 128, AffineFormat{5, 128, Dtype::f32}, {9}},
      {"Affine8", 9, 128, kAffine8, {9}},
      {"Fp8AtBlockBorders", 300, 130, Fp8BlockFormat{Dtype::f32}, {128, 128, 44}},
      {"Fp8WithBf16Scales", 129, 257, Fp8BlockFormat{Dtype::bf16}, {128, 1}},
      {"LargeF32", 1100, 1024, PlainFormat{Dtype::f32}, {1024, 76}},
      {"LargeAffine", 600, 8192, kAffine8, {481, 119}},  // 8192 + 2 * 256 bytes per row
      {"LargeFp8", 130, 40000, Fp8BlockFormat{Dtype::f32}, {104, 24, 2}},
      {"RowsLargerThanASlice", 2, 1200000, PlainFormat{Dtype::f32}, {1, 1}},
  };
  return all;
}

class SlicedMatrix : public testing::TestWithParam<Case> {};

TEST_P(SlicedMatrix, IsTheWholeMatrixRowByRow) {
  const Case& c = GetParam();
  PosixFileSystem disk;
  const OneMatrix m(disk, c.rows, c.cols, c.encoding);
  const MatrixView whole = m.whole();
  std::vector<float> from_slice(c.cols), from_whole(c.cols);
  std::vector<std::uint64_t> slices;
  std::uint64_t next = 0;
  const Status status =
      read_slices(m.catalog(), m.matrix, [&](std::uint64_t first, const MatrixView& rows) -> Status {
        EXPECT_EQ(first, next);
        next += rows.rows;
        slices.push_back(rows.rows);
        for (std::uint64_t row = 0; row < rows.rows; ++row) {
          decode_row(rows, row, from_slice);
          decode_row(whole, first + row, from_whole);
          EXPECT_EQ(std::memcmp(from_slice.data(), from_whole.data(), c.cols * sizeof(float)), 0)
              << first + row;
        }
        return {};
      });
  ASSERT_TRUE(status) << status.error().message();
  EXPECT_EQ(next, c.rows);
  EXPECT_EQ(slices, c.slices);
}

INSTANTIATE_TEST_SUITE_P(, SlicedMatrix, testing::ValuesIn(cases()),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

struct MatrixReader : testing::Test {
  PosixFileSystem disk;
  FaultyFileSystem files{disk};
  std::vector<std::uint64_t> visited;  // rows

  Status decode(const OneMatrix& m) {
    visited.clear();
    return decode_rows(m.catalog(), m.matrix, "layers.0.m",
                       [&](std::uint64_t row, std::span<const float>) -> Status {
                         visited.push_back(row);
                         return {};
                       });
  }
};

TEST_F(MatrixReader, ReadsEachByteOnceInBoundedPieces) {
  const OneMatrix m(files, 600, 8192, kAffine8);
  files.clear_log();
  ASSERT_TRUE(decode(m));
  EXPECT_EQ(files.bytes(FileOperation::read), m.matrix.total_bytes());
  std::vector<std::uint64_t> reads;
  for (const FileOperationRecord& record : files.log()) reads.push_back(record.bytes);
  EXPECT_THAT(reads, Each(Le(kSliceBytes)));
}

TEST_F(MatrixReader, VisitsEveryRowInOrder) {
  const OneMatrix m(files, 130, 64, Fp8BlockFormat{Dtype::f32});
  ASSERT_TRUE(decode(m));
  ASSERT_EQ(visited.size(), 130u);
  EXPECT_TRUE(std::is_sorted(visited.begin(), visited.end()));
  EXPECT_EQ(visited.back(), 129u);
}

TEST_F(MatrixReader, AddsOneToNormsStoredWithoutIt) {
  OneMatrix m(files, 1, 5, PlainFormat{Dtype::f32});
  std::vector<float> stored, raised;
  const auto keep = [&](std::vector<float>& into) {
    return decode_rows(m.catalog(), m.matrix, "norm",
                       [&](std::uint64_t, std::span<const float> numbers) -> Status {
                         into.assign(numbers.begin(), numbers.end());
                         return {};
                       });
  };
  ASSERT_TRUE(keep(stored));
  m.matrix.add_one = true;
  ASSERT_TRUE(keep(raised));
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(raised[i], stored[i] + 1.0f);
}

TEST_F(MatrixReader, NamesThePlaceOfANumberThatIsNotFinite) {
  TemporaryDirectory temporary;
  std::vector<float> numbers(1500 * 1024);
  numbers[1400 * 1024 + 17] = NAN;  // in the second slice
  SafetensorsBuilder builder;
  builder.add("m.weight", Dtype::f32, {1500, 1024}, raw(numbers));
  const TensorCatalog catalog = catalog_of(files, temporary, builder);
  const SourceMatrix matrix{.rows = 1500,
                            .cols = 1024,
                            .encoding = PlainFormat{Dtype::f32},
                            .codes = catalog.find("m.weight")->bytes,
                            .scales = {},
                            .biases = {}};
  std::uint64_t rows = 0;
  const Status status =
      decode_rows(catalog, matrix, "layers.0.m", [&](std::uint64_t, std::span<const float>) -> Status {
        ++rows;
        return {};
      });
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), ErrorCode::corrupt_data);
  EXPECT_THAT(status.error().message(), States((temporary / "model.safetensors").string(), "'layers.0.m'",
                                               "row 1400", "column 17", "nan"));
  EXPECT_EQ(rows, 1400u);
}

TEST_F(MatrixReader, VisitsNothingAfterAFailedRead) {
  const OneMatrix m(files, 600, 8192, kAffine8);  // slices of 481 and 119 rows, three reads each
  for (std::uint64_t failing = 0; failing < 6; ++failing) {
    files.set_plan({.faults = {{.operation = FileOperation::read, .index = failing}}});
    const Status status = decode(m);
    ASSERT_FALSE(status) << failing;
    EXPECT_EQ(status.error().code(), ErrorCode::io_failed);
    EXPECT_THAT(status.error().message(), States(m.path().string()));
    EXPECT_EQ(visited.size(), failing < 3 ? 0u : 481u);
  }
}

TEST_F(MatrixReader, CompletesShortReads) {
  const OneMatrix m(files, 9, 128, kAffine4);
  files.set_plan({.longest_read_bytes = 7});
  ASSERT_TRUE(decode(m));
  EXPECT_EQ(visited.size(), 9u);
}

TEST_F(MatrixReader, ReportsAFileThatShrankWhileInUse) {
  const OneMatrix m(files, 600, 8192, kAffine8);
  files.set_plan({.truncations = {{.path = m.path(), .size_bytes = 1000, .from_operation = 0}}});
  const Status status = decode(m);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), ErrorCode::corrupt_data);
  EXPECT_THAT(status.error().message(), States(m.path().string(), 3940352, 240, 760));
  EXPECT_TRUE(visited.empty());
}

TEST_F(MatrixReader, StopsAtTheErrorOfItsVisitor) {
  const OneMatrix m(files, 9, 128, kAffine4);
  std::uint64_t rows = 0;
  const Status status =
      decode_rows(m.catalog(), m.matrix, "m", [&](std::uint64_t, std::span<const float>) -> Status {
        if (++rows == 4) return Error{ErrorCode::cancelled, "enough"};
        return {};
      });
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message(), "enough");
  EXPECT_EQ(rows, 4u);
}

}  // namespace
}  // namespace moeflux
