#include "experts/resident_experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/testing/expect_contract.h"
#include "base/testing/states.h"
#include "experts/record_view.h"
#include "io/posix_file_system.h"
#include "model/testing/tiny_packed_model.h"
#include "quant/testing/random_matrix.h"

namespace moeflux {
namespace {

using test::States;
using testing::ElementsAre;
using Ids = std::vector<std::uint32_t>;

// The three matrices of an expert, and its record. Blocks of gate and up alternate; down begins at a page.
struct MadeExpert {
  RandomMatrix gate, up, down;

  MadeExpert(const ExpertFormat& format, std::mt19937& random)
      : gate(format.gate.rows, format.gate.cols, format.gate.encoding, random),
        up(format.up.rows, format.up.cols, format.up.encoding, random),
        down(format.down.rows, format.down.cols, format.down.encoding, random) {}

  std::string record(std::uint64_t size) const {
    const std::uint64_t gate_block = gate.tiled().block_stride, up_block = up.tiled().block_stride;
    const std::uint64_t gate_up = gate.tiles().size() + up.tiles().size();
    std::string bytes(size, '\0');
    auto* const first = reinterpret_cast<std::byte*>(bytes.data());
    gate.write_tiles(first, gate_block + up_block);
    up.write_tiles(first + gate_block, gate_block + up_block);
    down.write_tiles(first + (gate_up + 4095) / 4096 * 4096, down.tiled().block_stride);
    return bytes;
  }
};

// A packed model with known experts.
class ResidentExpertsOf : public testing::Test {
 protected:
  explicit ResidentExpertsOf(const ModelConfig& config) {
    Manifest manifest = tiny_manifest(config);
    const std::filesystem::path path = write_packed_model(temporary, manifest);
    std::mt19937 random(1);
    for (const ExpertFile& file : manifest.experts) {
      std::string bytes;
      for (const ExpertRecord& record : file.records) {
        made[file.layer].emplace_back(manifest.expert_formats[record.format], random);
        bytes += made[file.layer].back().record(record.bytes);
      }
      temporary.write("model/" + file.file, bytes);
    }
    Result<PackedModel> opened = PackedModel::open(disk, path);
    EXPECT_TRUE(opened) << opened.error().message();
    model.emplace(*std::move(opened));
  }

  std::unique_ptr<ResidentExperts> open() const {
    auto source = ResidentExperts::open(*model);
    EXPECT_TRUE(source) << source.error().message();
    return *std::move(source);
  }

  TemporaryDirectory temporary;
  PosixFileSystem disk;
  std::optional<PackedModel> model;
  std::map<LayerId, std::vector<MadeExpert>> made;
};

class ResidentExpertsOfQwen : public ResidentExpertsOf {
 protected:
  ResidentExpertsOfQwen() : ResidentExpertsOf(tiny_qwen_config()) {}
};
class ResidentExpertsOfDeepseek : public ResidentExpertsOf {
 protected:
  ResidentExpertsOfDeepseek() : ResidentExpertsOf(tiny_deepseek_config()) {}
};

std::vector<float> decode(const tile16::TiledMatrix& matrix) {
  std::vector<float> all(matrix.rows * matrix.cols);
  for (std::uint64_t row = 0; row < matrix.rows; ++row)
    tile16::decode_row(matrix, row, std::span(all).subspan(row * matrix.cols, matrix.cols));
  return all;
}

void expect_numbers(const ExpertView& view, const MadeExpert& expert) {
  EXPECT_EQ(decode(view.gate), expert.gate.numbers());
  EXPECT_EQ(decode(view.up), expert.up.numbers());
  EXPECT_EQ(decode(view.down), expert.down.numbers());
}

// The experts that a Fetch hands out. Each is released before the next.
Ids ids_of(ExpertSource& source, LayerId layer, const Ids& wanted, FetchOrder order) {
  Ids ids;
  Fetch fetch = source.begin(layer, wanted, order);
  while (true) {
    Result<std::optional<Lease>> lease = fetch.next();
    if (!lease) ADD_FAILURE() << lease.error().message();
    if (!lease || !*lease) return ids;
    ids.push_back((*lease)->expert().index());
  }
}

TEST_F(ResidentExpertsOfQwen, HandsOutEachWantedExpertOnceInAscendingOrder) {
  const auto source = open();
  for (const FetchOrder order : {FetchOrder::ready_first, FetchOrder::ascending}) {
    EXPECT_THAT(ids_of(*source, LayerId(0), {0, 1, 2, 3}, order), ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(ids_of(*source, LayerId(1), {1, 3}, order), ElementsAre(1, 3));
    EXPECT_THAT(ids_of(*source, LayerId(1), {2}, order), ElementsAre(2));
    EXPECT_THAT(ids_of(*source, LayerId(0), {}, order), ElementsAre());
  }
}

TEST_F(ResidentExpertsOfQwen, ViewsHaveThePackedNumbers) {
  const auto source = open();
  for (const auto& [layer, experts] : made) {
    const Ids wanted = {0, 1, 2, 3};
    Fetch fetch = source->begin(layer, wanted, FetchOrder::ascending);
    for (const MadeExpert& expert : experts) {
      const Result<std::optional<Lease>> lease = fetch.next();
      ASSERT_TRUE(lease && *lease);
      expect_numbers((*lease)->view(), expert);
    }
  }
}

TEST_F(ResidentExpertsOfDeepseek, ViewsHaveThePackedNumbersAfterADenseLayer) {
  const auto source = open();
  ASSERT_EQ(made.size(), 1u);
  const Ids wanted = {2};
  Fetch fetch = source->begin(LayerId(1), wanted, FetchOrder::ready_first);
  const Result<std::optional<Lease>> lease = fetch.next();
  ASSERT_TRUE(lease && *lease);
  expect_numbers((*lease)->view(), made.at(LayerId(1))[2]);
}

TEST_F(ResidentExpertsOfQwen, AnExpertIsReadyUntilAllAreHandedOut) {
  const auto source = open();
  const Ids wanted = {0, 2};
  Fetch fetch = source->begin(LayerId(0), wanted, FetchOrder::ready_first);
  EXPECT_TRUE(fetch.is_one_ready());
  EXPECT_TRUE(*fetch.next());
  EXPECT_TRUE(fetch.is_one_ready());
  EXPECT_TRUE(*fetch.next());
  EXPECT_FALSE(fetch.is_one_ready());
  EXPECT_FALSE(*fetch.next());
  EXPECT_FALSE(*fetch.next());
}

TEST_F(ResidentExpertsOfQwen, CountsFetchesAndLeases) {
  const auto source = open();
  EXPECT_EQ(source->counters(), (ExpertCounters{}));
  ids_of(*source, LayerId(0), {0, 1, 3}, FetchOrder::ascending);
  EXPECT_EQ(source->counters(), (ExpertCounters{.fetches = 1, .served = 3}));
  ids_of(*source, LayerId(1), {}, FetchOrder::ascending);
  EXPECT_EQ(source->counters(), (ExpertCounters{.fetches = 2, .served = 3}));
}

TEST_F(ResidentExpertsOfQwen, ADroppedFetchMakesRoomForTheNext) {
  const auto source = open();
  const Ids wanted = {0, 1, 2, 3};
  {
    Fetch fetch = source->begin(LayerId(0), wanted, FetchOrder::ascending);
    EXPECT_TRUE(*fetch.next());
  }
  { const Fetch untouched = source->begin(LayerId(0), wanted, FetchOrder::ascending); }
  EXPECT_THAT(ids_of(*source, LayerId(1), {2, 3}, FetchOrder::ascending), ElementsAre(2, 3));
  EXPECT_EQ(source->counters(), (ExpertCounters{.fetches = 3, .served = 3}));
}

TEST_F(ResidentExpertsOfQwen, ALeaseOutlivesItsFetch) {
  const auto source = open();
  const Ids wanted = {1};
  std::optional<Lease> kept;
  {
    Fetch fetch = source->begin(LayerId(1), wanted, FetchOrder::ascending);
    kept = *fetch.next();
  }
  ids_of(*source, LayerId(0), {0, 1, 2, 3}, FetchOrder::ascending);
  EXPECT_EQ(kept->expert(), ExpertId(1));
  expect_numbers(kept->view(), made.at(LayerId(1))[1]);
}

TEST_F(ResidentExpertsOfQwen, OutlivesTheModelItWasReadFrom) {
  const auto source = open();
  model.reset();
  const Ids wanted = {3};
  Fetch fetch = source->begin(LayerId(0), wanted, FetchOrder::ascending);
  const std::optional<Lease> lease = *fetch.next();
  expect_numbers(lease->view(), made.at(LayerId(0))[3]);
}

TEST_F(ResidentExpertsOfQwen, HoldsAsManyBytesAsItsFiles) {
  std::uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(model->path() / "experts"))
    bytes += entry.file_size();
  EXPECT_EQ(ResidentExperts::bytes_of(*model), bytes);
}

TEST_F(ResidentExpertsOfQwen, RejectsAFileThatShrankSinceTheModelWasOpened) {
  const std::filesystem::path file = model->path() / model->manifest().experts[1].file;
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  const auto source = ResidentExperts::open(*model);
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().code(), ErrorCode::corrupt_data);
  EXPECT_THAT(source, States("layer_001.bin"));
}

TEST_F(ResidentExpertsOfQwen, KeepsTheContractOfOneFetchAtATime) {
  const auto source = open();
  const Ids wanted = {0};
  const Fetch fetch = source->begin(LayerId(0), wanted, FetchOrder::ascending);
  EXPECT_CONTRACT((void)source->begin(LayerId(1), wanted, FetchOrder::ascending), "one Fetch at a time");
}

TEST(RecordView, KeepsTheContractOfAWholeRecord) {
  const MatrixFormat gate{64, 64, PlainFormat{Dtype::bf16}};
  const ExpertFormat format{gate, gate, gate};
  const std::vector<std::byte> bytes(record_layout(format).record_bytes - 1);
  EXPECT_CONTRACT((void)view_of(format, bytes), "the record is whole");
}

}  // namespace
}  // namespace moeflux
