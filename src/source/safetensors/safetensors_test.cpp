#include "source/safetensors/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

#include "base/testing/states.h"
#include "source/testing/safetensors_builder.h"

namespace moeflux {
namespace {

using test::States;
using testing::ElementsAre;

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

TEST(SafetensorsHeader, AllowsEmptyTensorsEvenInsideOthers) {
  const auto header = parse(R"({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]},
                                "empty": {"dtype": "F32", "shape": [0, 9], "data_offsets": [8, 8]},
                                "last": {"dtype": "F32", "shape": [0], "data_offsets": [16, 16]}})");
  ASSERT_TRUE(header) << header.error().message();
  EXPECT_EQ(header->tensors.size(), 3u);
  EXPECT_EQ(header->unclaimed_bytes, 0u);
}

TEST(SafetensorsHeader, TreatsAnEmptyShapeAsOneNumber) {
  const auto header = parse(R"({"a": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}})");
  ASSERT_TRUE(header) << header.error().message();
  EXPECT_EQ(describe_shape(header->tensors[0].shape), "[]");
}

TEST(SafetensorsHeader, AllowsPaddingAndMetadata) {
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
    EXPECT_THAT(odd.error().message(), States("'a'", "F4", "[5]", end));
  }
}

TEST(SafetensorsHeader, RejectsTooManyTensors) {
  std::string json = "{";
  for (std::uint64_t i = 0; i <= kMaxTensorsInFile; ++i)
    json += fmt::format("{}\"{}\":{{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
                        i == 0 ? "" : ",", i);
  json += "}";
  const auto header = parse(json);
  ASSERT_FALSE(header);
  EXPECT_THAT(header.error().message(), States(131072));
}

TEST(SafetensorsHeader, FindsAnOverlapWhereverItIs) {
  EXPECT_TRUE(rc::check([] {
    // Tensors of one byte each, side by side, except one that may be moved onto another.
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
      RC_ASSERT(test::states_fact(header.error().message(), "overlap") &&
                test::states_fact(header.error().message(), fmt::format("byte {}", onto)));
  }));
}

struct BadHeader {
  const char* name;
  std::string json;
  std::vector<std::string> facts;
};
void PrintTo(const BadHeader& bad, std::ostream* out) { *out << bad.name; }

// A header with one tensor 't' whose fields are these.
std::string tensor(std::string_view fields) { return fmt::format(R"({{"t": {{{}}}}})", fields); }

std::string repeated(std::string_view text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

// Not JSON, or JSON of the wrong shape.
std::vector<BadHeader> malformed_headers() {
  return {
      {"Nothing", "", {"JSON", "byte"}},
      {"Rubbish", "GGUF", {"JSON"}},
      {"CutShort", R"({"t": {"dtype": "U8", "sha)", {"JSON"}},
      {"TextAfterTheEnd", "{} {}", {"JSON"}},
      {"NulByte", std::string("{}\0{}", 5), {"JSON"}},
      {"NumberBeyondDoubles", tensor(R"("shape": [1e999])"), {"JSON"}},
      {"Array", "[]", {"array"}},
      {"Number", "7", {"number"}},
      {"TensorIsANumber", R"({"t": 7})", {"'t'", "number"}},
      {"TensorIsAnArray", R"({"t": [7]})", {"'t'", "array"}},
      {"TensorIsNull", R"({"t": null})", {"'t'", "null"}},
      {"NoDtype", tensor(R"("shape": [1], "data_offsets": [0, 1])"), {"'t'", "'dtype'"}},
      {"NoShape", tensor(R"("dtype": "U8", "data_offsets": [0, 1])"), {"'t'", "'shape'"}},
      {"NoOffsets", tensor(R"("dtype": "U8", "shape": [1])"), {"'t'", "'data_offsets'"}},
      {"OneOffset", tensor(R"("dtype": "U8", "shape": [1], "data_offsets": [0])"), {"'t'", "'data_offsets'"}},
      {"ThreeOffsets",
       tensor(R"("dtype": "U8", "shape": [1], "data_offsets": [0, 1, 2])"),
       {"'t'", "data_offsets"}},
      {"UnknownDtype",
       tensor(R"("dtype": "F7", "shape": [1], "data_offsets": [0, 1])"),
       {"'t'", "'F7'", "unknown"}},
      {"DtypeIsANumber", tensor(R"("dtype": 7)"), {"'t'", "number"}},
      {"DtypeIsAnArray", tensor(R"("dtype": ["U8"])"), {"'t'", "array"}},
      {"ShapeIsAString", tensor(R"("shape": "U8")"), {"'t'", "string"}},
      {"ShapeIsAnObject", tensor(R"("shape": {})"), {"'t'", "object"}},
      {"ShapeIsNested", tensor(R"("shape": [[1]])"), {"'t'", "array"}},
      {"ShapeHoldsABoolean", tensor(R"("shape": [true])"), {"'t'", "boolean"}},
      {"NegativeDimension", tensor(R"("dtype": "U8", "shape": [-1])"), {"'t'", "-1", "negative", "number"}},
      {"FractionalDimension", tensor(R"("shape": [1.5])"), {"'t'", "'1.5'", "number"}},
      {"DimensionBeyond64Bits", tensor(R"("shape": [18446744073709551616])"), {"number"}},
      {"NineDimensions", tensor(R"("shape": [1, 1, 1, 1, 1, 1, 1, 1, 1])"), {"'t'", "8"}},
      {"UnknownKey", tensor(R"("dtype": "U8", "strides": [1])"), {"'t'", "'strides'", "unknown"}},
      {"KeyTwice", tensor(R"("dtype": "U8", "dtype": "U8")"), {"'t'", "repeats"}},
      {"NameTwice",
       R"({"t": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
           "t": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}})",
       {"'t'", "listed", "twice"}},
  };
}

// Well-formed headers whose offsets or sizes contradict each other or the file.
std::vector<BadHeader> contradicting_headers() {
  return {
      {"EndBeforeBegin",
       tensor(R"("dtype": "U8", "shape": [1], "data_offsets": [2, 1])"),
       {"'t'", "byte 1", "2"}},
      {"OutOfBounds",
       tensor(R"("dtype": "U8", "shape": [8], "data_offsets": [9, 17])"),
       {"'t'", "9", "17", "16", "incomplete"}},
      {"OffsetsThatWouldWrap",
       tensor(R"("dtype": "U8", "shape": [1], "data_offsets": [18446744073709551615, 18446744073709551615])"),
       {"18446744073709551615"}},
      {"ShapeThatWouldWrapToZero",
       tensor(R"("dtype": "U8", "shape": [4294967296, 4294967296], "data_offsets": [0, 0])"),
       {"'t'", "U8", "[4294967296, 4294967296]", "0"}},
      {"BitsThatWouldWrapToZero",
       tensor(R"("dtype": "F64", "shape": [288230376151711744], "data_offsets": [0, 0])"),
       {"0"}},
      {"SizeOfAnotherShape",
       tensor(R"("dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 4])"),
       {"'t'", "BF16", "[2, 2]", "4"}},
      {"Overlap",
       R"({"u": {"dtype": "U8", "shape": [4], "data_offsets": [3, 7]},
           "t": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}})",
       {"'t'", "'u'", "byte 3", "overlap"}},
      {"SameBytesTwice",
       R"({"u": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]},
           "t": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}})",
       {"byte 0", "overlap"}},
  };
}

// Headers that try to exhaust the reader or the terminal.
std::vector<BadHeader> abusive_headers() {
  return {
      {"DeepMetadata", R"({"__metadata__": )" + std::string(40, '[') + std::string(40, ']') + "}", {"array"}},
      {"DeepInsideMetadata",
       R"({"__metadata__": {"x": )" + std::string(40, '[') + std::string(40, ']') + "}}",
       {"'__metadata__'", "deeply"}},
      {"DeepObjectsInsideMetadata",
       R"({"__metadata__": )" + repeated(R"({"x": )", 40),
       {"'__metadata__'", "deeply"}},
      {"ControlCharactersInAName", R"({"a\u001b[2J\u0007": 7})", {"'a?[2J?'", "number"}},
      {"EndlessName",
       R"({")" + std::string(5000, 'n') + R"(": 7})",
       {std::string(120, 'n') + "...'", "number"}},
  };
}

class BadSafetensorsHeader : public testing::TestWithParam<BadHeader> {};

TEST_P(BadSafetensorsHeader, IsRejectedWithAReason) {
  const auto header = parse(GetParam().json);
  ASSERT_FALSE(header);
  EXPECT_EQ(header.error().code(), ErrorCode::corrupt_data);
  EXPECT_THAT(header.error().message(), testing::StartsWith("a.safetensors: "));
  EXPECT_THAT(header.error().message(),
              testing::MakePolymorphicMatcher(test::StatesMatcher(GetParam().facts)));
  EXPECT_LT(header.error().message().size(), 400u);
}

const auto kHeaderName = [](const auto& param_info) { return std::string(param_info.param.name); };
INSTANTIATE_TEST_SUITE_P(Malformed, BadSafetensorsHeader, testing::ValuesIn(malformed_headers()),
                         kHeaderName);
INSTANTIATE_TEST_SUITE_P(Contradicting, BadSafetensorsHeader, testing::ValuesIn(contradicting_headers()),
                         kHeaderName);
INSTANTIATE_TEST_SUITE_P(Abusive, BadSafetensorsHeader, testing::ValuesIn(abusive_headers()), kHeaderName);

}  // namespace
}  // namespace moeflux
