#include "source/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

#include "source/testing/safetensors_builder.h"

namespace moeflux {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kDataStart = 1000;

Result<SafetensorsHeader> parse(std::string_view json, std::uint64_t data_bytes = 16) {
  return parse_safetensors_header(json, kDataStart, data_bytes, FileId(3), "a.safetensors");
}

std::vector<std::string> names_of(const SafetensorsHeader& header) {
  std::vector<std::string> names;
  for (const TensorEntry& tensor : header.tensors) names.push_back(tensor.name);
  return names;
}

TEST(SafetensorsHeader, ListsTensorsByNameWithTheirPlaceInTheFile) {
  SafetensorsBuilder builder;
  builder.metadata({{"format", "mlx"}});
  builder.add("z", Dtype::bf16, {2, 3}).add("a", Dtype::u32, {1}).add("m", Dtype::f8_e4m3, {5});
  const auto header = parse(builder.header(), builder.data().size());
  ASSERT_TRUE(header) << header.error().message();
  EXPECT_THAT(names_of(*header), ElementsAre("a", "m", "z"));
  const TensorEntry& z = header->tensors[2];
  EXPECT_EQ(z.dtype, Dtype::bf16);
  EXPECT_THAT(z.shape, ElementsAre(2, 3));
  EXPECT_EQ(z.bytes, (ByteRange{FileId(3), kDataStart, 12}));
  EXPECT_EQ(header->tensors[0].bytes, (ByteRange{FileId(3), kDataStart + 12, 4}));
  EXPECT_EQ(header->tensors[1].bytes, (ByteRange{FileId(3), kDataStart + 16, 5}));
  EXPECT_EQ(header->header_bytes, kDataStart);
  EXPECT_EQ(header->unclaimed_bytes, 0u);
}

TEST(SafetensorsHeader, IsEmptyForAFileWithoutTensors) {
  const auto header = parse("{}", 7);
  ASSERT_TRUE(header) << header.error().message();
  EXPECT_TRUE(header->tensors.empty());
  EXPECT_EQ(header->unclaimed_bytes, 7u);
}

TEST(SafetensorsHeader, CountsBytesThatNoTensorClaims) {
  SafetensorsBuilder builder;
  builder.gap(3).add("a", Dtype::u8, {4}).gap(5).add("b", Dtype::u8, {2}).gap(7);
  const auto header = parse(builder.header(), builder.data().size());
  ASSERT_TRUE(header) << header.error().message();
  EXPECT_EQ(header->unclaimed_bytes, 15u);
}

TEST(SafetensorsHeader, AllowsEmptyTensorsAnywhereAlsoInsideOthers) {
  const auto header = parse(R"({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]},
                                "empty": {"dtype": "F32", "shape": [0, 9], "data_offsets": [8, 8]},
                                "last": {"dtype": "F32", "shape": [0], "data_offsets": [16, 16]}})");
  ASSERT_TRUE(header) << header.error().message();
  EXPECT_EQ(header->tensors.size(), 3u);
  EXPECT_EQ(header->unclaimed_bytes, 0u);
}

TEST(SafetensorsHeader, TakesAnEmptyShapeForOneNumber) {
  const auto header = parse(R"({"a": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}})");
  ASSERT_TRUE(header) << header.error().message();
  EXPECT_EQ(describe_shape(header->tensors[0].shape), "[]");
}

TEST(SafetensorsHeader, AllowsThePaddingAndTheMetadataOfRealWriters) {
  const auto header = parse(R"({"__metadata__": {"format": "pt", "depth": [1, [2, {"x": null}]], "n": -1.5,
                                 "dtype": "not a dtype", "yes": true},
                                "a": {"shape": [4], "data_offsets": [0, 4], "dtype": "U8"}}     )");
  ASSERT_TRUE(header) << header.error().message();
  EXPECT_THAT(names_of(*header), ElementsAre("a"));
}

TEST(SafetensorsHeader, PacksTwoFourBitNumbersIntoAByte) {
  const auto even = parse(R"({"a": {"dtype": "F4", "shape": [6], "data_offsets": [0, 3]}})");
  EXPECT_TRUE(even);
  for (const char* end : {"2", "3"}) {
    const auto odd =
        parse(fmt::format(R"({{"a": {{"dtype": "F4", "shape": [5], "data_offsets": [0, {}]}}}})", end));
    ASSERT_FALSE(odd) << end;
    EXPECT_THAT(odd.error().message(), HasSubstr("does not fill"));
  }
}

TEST(SafetensorsHeader, WithTooManyTensorsIsRefused) {
  std::string json = "{";
  for (std::uint64_t i = 0; i <= kMaxTensorsInFile; ++i)
    json += fmt::format("{}\"{}\":{{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
                        i == 0 ? "" : ",", i);
  json += "}";
  const auto header = parse(json);
  ASSERT_FALSE(header);
  EXPECT_THAT(header.error().message(), HasSubstr("the header lists more than 131072 tensors"));
}

TEST(SafetensorsHeader, FindsAnOverlapWhereverItIs) {
  EXPECT_TRUE(rc::check([] {
    // Tensors of one byte each, all but one side by side, that one moved onto another.
    const auto count = *rc::gen::inRange<std::uint64_t>(2, 20);
    const auto moved = *rc::gen::inRange<std::uint64_t>(0, count);
    const auto onto = *rc::gen::inRange<std::uint64_t>(0, count);
    std::string json = "{";
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t at = i == moved ? onto : i;
      json += fmt::format("{}\"t{}\":{{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[{},{}]}}",
                          i == 0 ? "" : ",", i, at, at + 1);
    }
    const auto header = parse(json + "}", count);
    RC_ASSERT(header.has_value() == (moved == onto));
    if (!header)
      RC_ASSERT(header.error().message().find(fmt::format("overlap at data byte {}", onto)) !=
                std::string::npos);
  }));
}

struct BadHeader {
  const char* name;
  std::string json;
  const char* telling;
};
void PrintTo(const BadHeader& bad, std::ostream* out) { *out << bad.name; }

// A header with one tensor 't' whose fields are these.
std::string tensor(std::string_view fields) { return fmt::format(R"({{"t": {{{}}}}})", fields); }

std::string repeated(std::string_view text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

const std::vector<BadHeader>& bad_headers() {
  static const std::vector<BadHeader> headers{
      {"Nothing", "", "a.safetensors: not valid JSON at byte"},
      {"Rubbish", "GGUF", "not valid JSON at byte"},
      {"CutShort", R"({"t": {"dtype": "U8", "sha)", "not valid JSON at byte"},
      {"TextAfterTheEnd", "{} {}", "not valid JSON at byte"},
      {"NulByte", std::string("{}\0{}", 5), "not valid JSON"},
      {"NumberBeyondDoubles", tensor(R"("shape": [1e999])"), "not valid JSON"},
      {"Array", "[]", "the header holds an array where none was expected"},
      {"Number", "7", "the header holds a number where it was not expected"},
      {"TensorIsANumber", R"({"t": 7})", "tensor 't' holds a number where it was not expected"},
      {"TensorIsAnArray", R"({"t": [7]})", "tensor 't' holds an array where none was expected"},
      {"TensorIsNull", R"({"t": null})", "tensor 't' holds null where it was not expected"},
      {"NoDtype", tensor(R"("shape": [1], "data_offsets": [0, 1])"), "tensor 't' has no 'dtype'"},
      {"NoShape", tensor(R"("dtype": "U8", "data_offsets": [0, 1])"), "tensor 't' has no 'shape'"},
      {"NoOffsets", tensor(R"("dtype": "U8", "shape": [1])"), "tensor 't' has no two 'data_offsets'"},
      {"OneOffset", tensor(R"("dtype": "U8", "shape": [1], "data_offsets": [0])"),
       "tensor 't' has no two 'data_offsets'"},
      {"ThreeOffsets", tensor(R"("dtype": "U8", "shape": [1], "data_offsets": [0, 1, 2])"),
       "tensor 't' has more than two data_offsets"},
      {"UnknownDtype", tensor(R"("dtype": "F7", "shape": [1], "data_offsets": [0, 1])"),
       "tensor 't' has an unknown dtype 'F7'"},
      {"DtypeIsANumber", tensor(R"("dtype": 7)"), "tensor 't' holds a number where it was not expected"},
      {"DtypeIsAnArray", tensor(R"("dtype": ["U8"])"), "tensor 't' holds an array where none was expected"},
      {"ShapeIsAString", tensor(R"("shape": "U8")"), "tensor 't' holds a string where it was not expected"},
      {"ShapeIsAnObject", tensor(R"("shape": {})"), "tensor 't' holds an object where a value was expected"},
      {"ShapeIsNested", tensor(R"("shape": [[1]])"), "tensor 't' holds an array where none was expected"},
      {"ShapeHoldsABoolean", tensor(R"("shape": [true])"),
       "tensor 't' holds a boolean where it was not expected"},
      {"NegativeDimension", tensor(R"("dtype": "U8", "shape": [-1])"),
       "tensor 't' holds the negative number -1"},
      {"FractionalDimension", tensor(R"("shape": [1.5])"),
       "tensor 't' holds '1.5' where a whole number was expected"},
      {"DimensionBeyond64Bits", tensor(R"("shape": [18446744073709551616])"),
       "where a whole number was expected"},
      {"NineDimensions", tensor(R"("shape": [1, 1, 1, 1, 1, 1, 1, 1, 1])"),
       "tensor 't' has more than 8 dimensions"},
      {"UnknownKey", tensor(R"("dtype": "U8", "strides": [1])"), "tensor 't' has an unknown key 'strides'"},
      {"KeyTwice", tensor(R"("dtype": "U8", "dtype": "U8")"), "tensor 't' repeats a key"},
      {"NameTwice",
       R"({"t": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
           "t": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}})",
       "tensor 't' is listed twice"},
      {"EndBeforeBegin", tensor(R"("dtype": "U8", "shape": [1], "data_offsets": [2, 1])"),
       "tensor 't' ends at data byte 1, before it begins at 2"},
      {"OutOfBounds", tensor(R"("dtype": "U8", "shape": [8], "data_offsets": [9, 17])"),
       "tensor 't' spans data bytes [9, 17), but the file has only 16; the download is probably incomplete"},
      {"OffsetsThatWouldWrap",
       tensor(R"("dtype": "U8", "shape": [1], "data_offsets": [18446744073709551615, 18446744073709551615])"),
       "spans data bytes [18446744073709551615, 18446744073709551615)"},
      {"ShapeThatWouldWrapToZero",
       tensor(R"("dtype": "U8", "shape": [4294967296, 4294967296], "data_offsets": [0, 0])"),
       "tensor 't' is U8 [4294967296, 4294967296], which does not fill its 0 bytes"},
      {"BitsThatWouldWrapToZero",
       tensor(R"("dtype": "F64", "shape": [288230376151711744], "data_offsets": [0, 0])"),
       "which does not fill its 0 bytes"},
      {"SizeOfAnotherShape", tensor(R"("dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 4])"),
       "tensor 't' is BF16 [2, 2], which does not fill its 4 bytes"},
      {"Overlap",
       R"({"u": {"dtype": "U8", "shape": [4], "data_offsets": [3, 7]},
           "t": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}})",
       "tensors 't' and 'u' overlap at data byte 3"},
      {"SameBytesTwice",
       R"({"u": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]},
           "t": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}})",
       "overlap at data byte 0"},
      {"DeepMetadata", R"({"__metadata__": )" + std::string(40, '[') + std::string(40, ']') + "}",
       "holds an array where none was expected"},
      {"DeepInsideMetadata",
       R"({"__metadata__": {"x": )" + std::string(40, '[') + std::string(40, ']') + "}}",
       "'__metadata__' is nested too deeply"},
      {"DeepObjectsInsideMetadata", R"({"__metadata__": )" + repeated(R"({"x": )", 40),
       "'__metadata__' is nested too deeply"},
      {"ControlCharactersInAName", R"({"a\u001b[2J\u0007": 7})", "tensor 'a?[2J?' holds a number"},
      {"EndlessName", R"({")" + std::string(5000, 'n') + R"(": 7})", "nnn...' holds a number"},
  };
  return headers;
}

class BadSafetensorsHeader : public testing::TestWithParam<BadHeader> {};

TEST_P(BadSafetensorsHeader, IsRefusedWithItsReason) {
  const auto header = parse(GetParam().json);
  ASSERT_FALSE(header);
  EXPECT_EQ(header.error().code(), ErrorCode::corrupt_data);
  EXPECT_THAT(header.error().message(), testing::StartsWith("a.safetensors: "));
  EXPECT_THAT(header.error().message(), HasSubstr(GetParam().telling));
  EXPECT_LT(header.error().message().size(), 400u);
}

INSTANTIATE_TEST_SUITE_P(, BadSafetensorsHeader, testing::ValuesIn(bad_headers()),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

}  // namespace
}  // namespace moeflux
