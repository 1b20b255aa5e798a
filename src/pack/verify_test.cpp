#include "pack/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/states.h"
#include "io/testing/faulty_file_system.h"
#include "pack/testing/packing.h"

namespace moeflux {
namespace {

using test::States;
using testing::ElementsAre;
using testing::IsEmpty;

struct Verifications : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem disk;
  FaultyFileSystem files{disk};
  std::filesystem::path path = temporary / "packed";
  Manifest manifest = packed_to(open_source(write_tiny(temporary, "deepseek_mlx")), path).manifest;

  Result<VerifyReport> verify_all(unsigned jobs = 1) {
    const auto model = PackedModel::open(files, path);
    EXPECT_TRUE(model) << model.error().message();
    return verify(*model, jobs, [](std::uint64_t, std::uint64_t) {});
  }
  std::vector<std::string> findings(unsigned jobs = 1) {
    const auto report = verify_all(jobs);
    EXPECT_TRUE(report) << report.error().message();
    return report ? report->findings : std::vector<std::string>{};
  }
  void flip(const std::string& file, std::uint64_t offset) {
    std::fstream stream(path / file, std::ios::binary | std::ios::in | std::ios::out);
    stream.seekg(static_cast<std::streamoff>(offset));
    const int byte = stream.get();
    stream.seekp(static_cast<std::streamoff>(offset));
    stream.put(static_cast<char>(byte ^ 0x10));
  }
  const PackedTensor& tensor(std::string_view name) const {
    for (const PackedTensor& candidate : manifest.tensors)
      if (candidate.name == name) return candidate;
    ADD_FAILURE() << name;
    return manifest.tensors[0];
  }
};

using AVerification = Verifications;

TEST_F(AVerification, OfASoundModelFindsNothingAndReadsEverything) {
  files.clear_log();
  const auto report = verify_all();
  ASSERT_TRUE(report);
  EXPECT_THAT(report->findings, IsEmpty());
  EXPECT_EQ(report->tensors, manifest.tensors.size());
  EXPECT_EQ(report->records, 4u);
  EXPECT_EQ(report->bytes, manifest.resident_bytes + manifest.experts[0].bytes);
  EXPECT_EQ(files.bytes(FileOperation::read),
            report->bytes + std::filesystem::file_size(path / "manifest.json"));
}

TEST_F(AVerification, NamesTheTensorWithAChangedByte) {
  for (const char* name : {"norm", "embed_tokens", "layers.1.self_attn.o_proj"})
    for (const std::uint64_t at : {std::uint64_t{0}, tensor(name).bytes - 1}) {
      flip("resident.bin", tensor(name).offset + at);
      EXPECT_THAT(findings(), ElementsAre(States((path / "resident.bin").string(), name, "changed")));
      flip("resident.bin", tensor(name).offset + at);
    }
  EXPECT_THAT(findings(), IsEmpty());
}

TEST_F(AVerification, NamesTheRecordWithAChangedByteWhereverInItThatIs) {
  const RecordLayout layout = record_layout(manifest.expert_formats[0]);
  ASSERT_LT(layout.gate_up_bytes, layout.down_offset);  // there is padding to change
  const ExpertRecord& record = manifest.experts[0].records[2];
  for (const std::uint64_t at : {std::uint64_t{0}, layout.gate_block_bytes, layout.gate_up_bytes,
                                 layout.down_offset, layout.record_bytes - 1}) {
    flip("experts/layer_001.bin", record.offset + at);
    EXPECT_THAT(findings(), ElementsAre(States("layer_001.bin", "layer 1", "expert 2", "changed"))) << at;
    flip("experts/layer_001.bin", record.offset + at);
  }
  EXPECT_THAT(findings(), IsEmpty());
}

TEST_F(AVerification, NamesThePaddingWithAChangedByte) {
  std::size_t padded = 0;
  for (std::size_t i = 1; i < manifest.tensors.size(); ++i) {
    const PackedTensor &before = manifest.tensors[i - 1], &after = manifest.tensors[i];
    if (before.offset + before.bytes == after.offset) continue;
    ++padded;
    flip("resident.bin", after.offset - 1);
    EXPECT_THAT(findings(), ElementsAre(States("resident.bin", "padding", after.name, "changed")));
    flip("resident.bin", after.offset - 1);
  }
  EXPECT_GT(padded, 0u);
}

TEST_F(AVerification, ReportsAllThatChangedInTheOrderOfTheFiles) {
  flip("experts/layer_001.bin", manifest.experts[0].records[3].offset);
  flip("experts/layer_001.bin", manifest.experts[0].records[0].offset);
  flip("resident.bin", tensor("embed_tokens").offset);
  flip("resident.bin", 0);
  for (const unsigned jobs : {0u, 1u, 2u, 5u})
    EXPECT_THAT(findings(jobs), ElementsAre(States("'layers.0.input_layernorm'"), States("'embed_tokens'"),
                                            States("layer 1", "expert 0"), States("layer 1", "expert 3")))
        << jobs;
}

TEST_F(AVerification, ReportsProgressUpToTheEnd) {
  const PackedModel model = open_packed(path);
  std::uint64_t last = 0, total = 0;
  const auto report = verify(model, 3, [&](std::uint64_t done, std::uint64_t of) {
    EXPECT_GT(done, last);
    last = done;
    total = of;
  });
  ASSERT_TRUE(report);
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, report->bytes);
}

TEST_F(AVerification, ReportsAFailingDiskAsAnError) {
  const auto model = PackedModel::open(files, path);
  ASSERT_TRUE(model);
  for (const char* name : {"resident.bin", "layer_001.bin"})
    for (const unsigned jobs : {1u, 3u}) {
      files.set_plan({.faults = {{.operation = FileOperation::read, .file_name = name, .index = 2}}});
      const auto report = verify(*model, jobs, [](std::uint64_t, std::uint64_t) {});
      ASSERT_FALSE(report);
      EXPECT_EQ(report.error().code(), ErrorCode::io_failed);
      EXPECT_THAT(report.error().message(), States(name));
    }
}

TEST_F(AVerification, NamesAFileThatShrinks) {
  const auto model = PackedModel::open(files, path);
  ASSERT_TRUE(model);
  files.set_plan({.truncations = {{.path = path / "resident.bin", .size_bytes = 1000}}});
  const auto report = verify(*model, 1, [](std::uint64_t, std::uint64_t) {});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code(), ErrorCode::corrupt_data);
  EXPECT_THAT(report.error().message(), States("resident.bin"));
}

}  // namespace
}  // namespace moeflux
