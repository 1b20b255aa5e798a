#include "model/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/testing/states.h"
#include "model/testing/tiny_packed_model.h"

namespace moeflux {
namespace {

using test::States;

Json manifest_json(const ModelConfig& config = tiny_qwen_config()) {
  return Json::parse(write_manifest(tiny_manifest(config)));
}

Error error_of(std::string_view text) {
  auto manifest = parse_manifest(text, "manifest.json");
  return manifest ? Error{ErrorCode::cancelled, "no error"} : manifest.error();
}

std::string message_of(const Json& json) { return error_of(json.dump()).message(); }

TEST(Manifest, RoundTrips) {
  for (const ModelConfig& config : {tiny_qwen_config(), tiny_deepseek_config()}) {
    const Manifest manifest = tiny_manifest(config);
    const auto again = parse_manifest(write_manifest(manifest), "manifest.json");
    ASSERT_TRUE(again) << again.error().message();
    EXPECT_EQ(*again, manifest);
  }
}

TEST(Manifest, KeepsEveryStoredEncoding) {
  for (const Encoding& encoding :
       {Encoding(PlainFormat{Dtype::bf16}), Encoding(PlainFormat{Dtype::f32}),
        Encoding(AffineFormat{3, 32, Dtype::f32}), Encoding(Fp8BlockFormat{Dtype::f32})}) {
    Manifest manifest = tiny_manifest(tiny_qwen_config());
    PackedTensor& last = manifest.tensors.back();
    last.format.encoding = encoding;
    last.bytes = packed_bytes(last.format, last.layout);
    manifest.resident_bytes = last.offset + last.bytes;
    const auto again = parse_manifest(write_manifest(manifest), "manifest.json");
    ASSERT_TRUE(again) << again.error().message();
    EXPECT_EQ(*again, manifest) << describe(encoding);
  }
}

TEST(Manifest, AcceptsSplitProjections) {
  Manifest manifest = tiny_manifest(tiny_deepseek_config());
  std::vector<PackedTensor> tensors;
  std::uint64_t end = 0;
  for (const TensorShape& shape : resident_tensors(manifest.config, true)) {
    const Encoding encoding = PlainFormat{shape.is_vector ? Dtype::f32 : Dtype::bf16};
    const TensorLayout layout = shape.is_vector ? TensorLayout::rows : TensorLayout::tile16;
    const MatrixFormat format{shape.rows, shape.cols, encoding};
    tensors.push_back({shape.name, format, layout, (end + 255) / 256 * 256, packed_bytes(format, layout), 0});
    end = tensors.back().offset + tensors.back().bytes;
  }
  manifest.tensors = tensors;
  manifest.resident_bytes = end;
  EXPECT_EQ(error_of(write_manifest(manifest)).message(), "no error");
}

TEST(Manifest, RejectsAnotherVersion) {
  Json json = manifest_json();
  json["format_version"] = 0;
  const Error error = error_of(json.dump());
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_THAT(error.message(), States("manifest.json", 0, 1));
}

TEST(Manifest, RejectsAnotherLayout) {
  Json json = manifest_json();
  json["layout"] = "tile32";
  const Error error = error_of(json.dump());
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_THAT(error.message(), States("'tile32'", "'tile16'"));
}

struct Damage {
  const char* what;
  std::function<void(Json&)> apply;
  std::vector<std::string> facts;
};

void expect_refused(const Json& sound, const std::vector<Damage>& damages) {
  for (const Damage& damage : damages) {
    Json json = sound;
    damage.apply(json);
    const Error error = error_of(json.dump());
    EXPECT_THAT(error.message(), testing::MakePolymorphicMatcher(test::StatesMatcher(damage.facts)))
        << damage.what;
    EXPECT_THAT(error.message(), States("manifest.json")) << damage.what;
  }
}

TEST(Manifest, NamesAMissingKey) {
  const Json sound = manifest_json();
  for (const auto& [key, value] : sound.items()) {
    Json json = sound;
    json.erase(key);
    EXPECT_THAT(message_of(json), States("'" + key + "'", "missing"));
  }
  for (const auto& [key, value] : sound["tensors"][0].items()) {
    Json json = sound;
    json["tensors"][0].erase(key);
    EXPECT_THAT(message_of(json), States("tensor 0", "'" + key + "'", "missing"));
  }
  for (const auto& [key, value] : sound["experts"][1].items()) {
    Json json = sound;
    json["experts"][1].erase(key);
    EXPECT_THAT(message_of(json), States("file 1", "'" + key + "'", "missing"));
  }
  for (const auto& [key, value] : sound["expert_formats"][0].items()) {
    Json json = sound;
    json["expert_formats"][0].erase(key);
    EXPECT_THAT(message_of(json), States("format 0", "'" + key + "'", "missing"));
  }
}

TEST(Manifest, RejectsAnInvalidHeader) {
  expect_refused(
      manifest_json(),
      {{"another format",
        [](Json& m) { m["format"] = "gguf"; },
        {"'format'", "'moeflux packed model'", "gguf"}},
       {"a version that is text", [](Json& m) { m["format_version"] = "0"; }, {"'format_version'", "number"}},
       {"a short fingerprint", [](Json& m) { m["fingerprint"] = "abc"; }, {"'fingerprint'", "32"}},
       {"capitals", [](Json& m) { m["fingerprint"] = std::string(32, 'A'); }, {"'fingerprint'", "32"}},
       {"a config that cannot run", [](Json& m) { m["config"]["dim"] = 0; }, {"config", "'dim'", "0"}},
       {"a config that is none", [](Json& m) { m["config"] = 1; }, {"config", "1", "object"}},
       {"a text file elsewhere",
        [](Json& m) { m["text_files"] = {"../secret"}; },
        {"'text_files'", "inside"}},
       {"a text file below", [](Json& m) { m["text_files"] = {"a/b.json"}; }, {"'text_files'", "inside"}},
       {"an absolute text file",
        [](Json& m) { m["text_files"] = {"/etc/passwd"}; },
        {"'text_files'", "inside"}},
       {"too many text files",
        [](Json& m) { m["text_files"] = std::vector<std::string>(65, "a"); },
        {"'text_files'", "64"}}});
}

TEST(Manifest, RejectsTensorsOfAnotherModel) {
  expect_refused(
      manifest_json(),
      {{"one missing", [](Json& m) { m["tensors"].erase(0); }, {"'layers.0.input_layernorm'", "missing"}},
       {"one twice", [](Json& m) { m["tensors"][0]["name"] = "norm"; }, {"'norm'", "listed", "twice"}},
       {"another name",
        [](Json& m) { m["tensors"][0]["name"] = "x"; },
        {"'layers.0.input_layernorm'", "missing"}},
       {"one more",
        [](Json& m) {
          Json extra = m["tensors"][0];
          const auto end = (m["resident_bytes"].get<std::uint64_t>() + 255) / 256 * 256;
          extra["name"] = "visual";
          extra["offset"] = end;
          m["resident_bytes"] = end + extra["bytes"].get<std::uint64_t>();
          m["tensors"].push_back(extra);
        },
        {"'visual'"}},
       {"another shape",
        [](Json& m) {
          m["tensors"][0]["cols"] = 32;
          m["tensors"][0]["bytes"] = 128;
        },
        {"'layers.0.input_layernorm'", "1 x 64", "1 x 32"}},
       {"a matrix in rows",
        [](Json& m) {
          Json& last = m["tensors"].back();
          last["layout"] = "rows";
          last["encoding"] = {{"kind", "plain"}, {"dtype", "F32"}};
          last["bytes"] = 96 * 64 * 4;
          m["resident_bytes"] = last["offset"].get<std::uint64_t>() + 96 * 64 * 4;
        },
        {"'embed_tokens'", "96 x 64", "tile16", "rows"}},
       {"embeddings that are not last",
        [](Json& m) {  // lm_head and embed_tokens have the same format, so this swaps only their names
          const std::size_t count = m["tensors"].size();
          std::swap(m["tensors"][count - 2]["name"], m["tensors"][count - 1]["name"]);
        },
        {"'lm_head'", "'embed_tokens'"}},
       {"a tensor that is none", [](Json& m) { m["tensors"][3] = 1; }, {"tensor 3", "object"}}});
}

TEST(Manifest, RejectsTensorsAtInvalidOffsets) {
  expect_refused(
      manifest_json(),
      {{"misaligned", [](Json& m) { m["tensors"][1]["offset"] = 257; }, {"257", "256", "multiple"}},
       {"overlapping", [](Json& m) { m["tensors"][2]["offset"] = 256; }, {"256", "overlaps"}},
       {"overlapping by one alignment unit at most",
        [](Json& m) {
          Json& offset = m["tensors"][2]["offset"];
          offset = offset.get<std::uint64_t>() - kTensorAlignment;
        },
        {"'layers.0.linear_attn.in_proj_z'", "'layers.0.linear_attn.in_proj_qkv'", "overlaps"}},
       {"beyond the end",
        [](Json& m) { m["tensors"].back()["offset"] = 1u << 30; },
        {"'embed_tokens'", "1073741824"}},
       {"a file that is one byte short",
        [](Json& m) { m["resident_bytes"] = m["resident_bytes"].get<std::uint64_t>() - 1; },
        {"'embed_tokens'"}},
       {"an offset that would wrap",
        [](Json& m) { m["tensors"].back()["offset"] = ~std::uint64_t{0} - 255; },
        {"'embed_tokens'", "18446744073709551360"}},
       {"an offset beyond 64 bits",
        [](Json& m) { m["tensors"][0]["offset"] = 1e30; },
        {"tensor 0", "'offset'", "number"}},
       {"a negative offset",
        [](Json& m) { m["tensors"][0]["offset"] = -256; },
        {"tensor 0", "'offset'", "-256"}},
       {"other bytes", [](Json& m) { m["tensors"][0]["bytes"] = 255; }, {"'bytes'", "256", "255"}},
       {"a checksum of other digits", [](Json& m) { m["tensors"][0]["xxh3"] = "zz"; }, {"'xxh3'", "16"}},
       {"rows that are too many",
        [](Json& m) { m["tensors"][0]["rows"] = kMaxDim + 1; },
        {"'rows'", "4194305"}},
       {"no rows", [](Json& m) { m["tensors"][0]["rows"] = 0; }, {"'rows'", "0"}},
       {"another layout",
        [](Json& m) { m["tensors"][0]["layout"] = "cols"; },
        {"'layout'", "rows", "tile16", "cols"}}});
}

TEST(Manifest, RejectsEncodingsThatAreNeverStored) {
  const auto embedding = [](Json encoding) {
    return [encoding](Json& m) { m["tensors"].back()["encoding"] = encoding; };
  };
  expect_refused(
      manifest_json(),
      {{"unknown", embedding({{"kind", "nf4"}}), {"'nf4'", "unknown"}},
       {"plain f16", embedding({{"kind", "plain"}, {"dtype", "F16"}}), {"f16"}},
       {"integers", embedding({{"kind", "plain"}, {"dtype", "U32"}}), {"'dtype'", "BF16", "F32"}},
       {"f16 scales",
        embedding({{"kind", "affine"}, {"bits", 4}, {"group", 64}, {"scales", "F16"}}),
        {"F16"}},
       {"7 bits",
        embedding({{"kind", "affine"}, {"bits", 7}, {"group", 64}, {"scales", "BF16"}}),
        {"'bits'", "2", "3", "4", "5", "6", "8"}},
       {"a group of 48",
        embedding({{"kind", "affine"}, {"bits", 4}, {"group", 48}, {"scales", "BF16"}}),
        {"'group'", "32", "64", "128"}},
       {"a group that is too wide",
        embedding({{"kind", "affine"}, {"bits", 4}, {"group", 128}, {"scales", "BF16"}}),
        {"'group'", "64 columns", "128"}},
       {"fp8 with bf16 scales", embedding({{"kind", "fp8_block"}, {"scales", "BF16"}}), {"encoding", "BF16"}},
       {"quantized rows",
        [](Json& m) {
          m["tensors"][0]["encoding"] = {{"kind", "plain"}, {"dtype", "BF16"}};
        },
        {"tensor 0", "'encoding'", "F32"}}});
}

TEST(Manifest, RejectsRecordsAtInvalidOffsets) {
  const auto record = [](std::size_t field, Json value) {
    return [field, value](Json& m) { m["experts"][0]["records"][1][field] = value; };
  };
  expect_refused(
      manifest_json(),
      {{"one too few", [](Json& m) { m["experts"][0]["records"].erase(0); }, {"file 0", "layer 0", "4", "3"}},
       {"overlapping", record(1, 0), {"file 0", "offset 0", "overlap"}},
       {"misaligned", record(1, 512), {"layer 0", "expert 1", "12288", "512", "4096", "aligned"}},
       {"beyond the end", record(1, 4096 * 1000), {"layer 0", "expert 1", "12288", "4096000"}},
       {"an offset that would wrap",
        record(1, ~std::uint64_t{0} - 4095),
        {"layer 0", "expert 1", "18446744073709547520"}},
       {"another length", record(2, 8192), {"12288", "8192"}},
       {"a format that is not there", record(0, 2), {"layer 0", "expert 1", "format 2", "2"}},
       {"a format beyond 32 bits", record(0, std::uint64_t{1} << 32), {"format 4294967296", "2"}},
       {"a checksum that is none", record(3, "xyz"), {"layer 0", "expert 1", "checksum", "16"}},
       {"an object",
        [](Json& m) { m["experts"][0]["records"][1] = Json::object(); },
        {"layer 0", "expert 1", "checksum"}},
       {"five fields",
        [](Json& m) { m["experts"][0]["records"][1].push_back(1); },
        {"layer 0", "expert 1", "checksum"}}});
}

TEST(Manifest, RejectsExpertFilesOfAnotherModel) {
  expect_refused(
      manifest_json(),
      {{"a file above",
        [](Json& m) { m["experts"][0]["file"] = "../x"; },
        {"file 0", "'file'", "inside", "../x"}},
       {"an absolute file",
        [](Json& m) { m["experts"][0]["file"] = "/x"; },
        {"file 0", "'file'", "inside", "/x"}},
       {"no name", [](Json& m) { m["experts"][0]["file"] = ""; }, {"file 0", "'file'", "inside"}},
       {"a NUL byte", [](Json& m) { m["experts"][0]["file"] = std::string("a\0b", 3); }, {"manifest.json"}},
       {"a layer twice", [](Json& m) { m["experts"][1]["layer"] = 0; }, {"layer 0", "listed", "twice"}},
       {"a layer too many", [](Json& m) { m["experts"][1]["layer"] = 2; }, {"file 1", "'layer'", "2"}},
       {"a layer missing", [](Json& m) { m["experts"].erase(1); }, {"2", "1", "listed"}},
       {"experts of another shape",
        [](Json& m) {
          for (const char* part : {"gate", "up"}) m["expert_formats"][0][part]["rows"] = 60;
        },
        {"64 x 64"}},
       {"gate and up of different heights",
        [](Json& m) { m["expert_formats"][0]["up"]["rows"] = 48; },
        {"format 0", "'up'", "gate"}},
       {"too many formats",
        [](Json& m) { m["expert_formats"] = std::vector<int>(4097, 1); },
        {"'expert_formats'", "4096"}}});
  Json dense = manifest_json(tiny_deepseek_config());
  dense["experts"][0]["layer"] = 0;
  EXPECT_THAT(message_of(dense), States("layer 0", "routed"));
}

TEST(Manifest, RejectsInvalidJson) {
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("\xff\xfe")})
    EXPECT_EQ(error_of(text).code(), ErrorCode::corrupt_data) << text;
  Json truncated = manifest_json();
  const std::string whole = truncated.dump();
  EXPECT_EQ(error_of(std::string_view(whole).substr(0, whole.size() / 2)).code(), ErrorCode::corrupt_data);
}

TEST(Manifest, RejectsADocumentBeyondTheLimits) {
  const std::string deep = "{\"format\":" + std::string(17, '[') + std::string(17, ']') + "}";
  EXPECT_EQ(error_of(deep).code(), ErrorCode::unsupported);
  EXPECT_EQ(error_of(std::string(kManifestLimits.bytes + 1, ' ')).code(), ErrorCode::unsupported);
}

TEST(HexDigits, RoundTrip) {
  EXPECT_EQ(hex_of(std::uint64_t{0x0123456789abcdef}), "0123456789abcdef");
  EXPECT_EQ(checksum_from_hex("0123456789abcdef"), 0x0123456789abcdefu);
  EXPECT_EQ(hex_of(std::uint64_t{0}), "0000000000000000");
  EXPECT_EQ(digest_from_hex(hex_of(digest_of("weights"))), digest_of("weights"));
  for (const char* wrong :
       {"", "0123456789abcde", "0123456789abcdef0", "0123456789abcdeg", "0123456789ABCDEF"}) {
    EXPECT_FALSE(checksum_from_hex(wrong)) << wrong;
    EXPECT_FALSE(digest_from_hex(wrong)) << wrong;
  }
  EXPECT_FALSE(digest_from_hex("0123456789abcdef0123456789abcdeg"));
}

}  // namespace
}  // namespace moeflux
