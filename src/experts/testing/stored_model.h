#pragma once
// A packed model on disk with records of two sizes and valid checksums, and functions that fetch from it.
//
// Two layers of six experts; the test chooses which are large. Experts that a source hands out are compared
// with the bytes on disk, including padding. Test code only. One thread at a time.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "experts/expert_store.h"
#include "experts/resident_experts.h"
#include "io/posix_file_system.h"
#include "io/testing/drive_testing.h"
#include "io/testing/faulty_drive.h"
#include "model/testing/tiny_packed_model.h"

namespace moeflux {

using WantedExperts = std::vector<std::uint32_t>;

// All four kinds of drive.
inline const std::array<DriveChoice, 4> kEveryDrive = {
    DriveChoice{DriveKind::uring, {}}, DriveChoice{DriveKind::pread, {}},
    DriveChoice{DriveKind::buffered, {}},
    DriveChoice{DriveKind::sim,
                {.bytes_per_second = std::uint64_t{1} << 32, .latency = std::chrono::microseconds(5)}}};

class StoredModel {
 public:
  static constexpr std::uint32_t kLayers = 2, kExperts = 6;
  using IsLarge = std::function<bool(std::uint32_t layer, std::uint32_t expert)>;

  // All experts of layer 1 and the last one of layer 0 are large.
  static bool is_usually_large(std::uint32_t layer, std::uint32_t expert) {
    return layer == 1 || expert == 5;
  }

  explicit StoredModel(const IsLarge& is_large = is_usually_large) {
    ModelConfig config = tiny_qwen_config();
    for (LayerConfig& layer : config.layers) std::get<MoeConfig>(layer.mlp).experts = kExperts;
    manifest_ = tiny_manifest(config);  // format 0 has 4 bits, format 1 has 8
    for (ExpertFile& file : manifest_.experts) {
      std::uint64_t at = 0;
      for (std::uint32_t expert = 0; expert < kExperts; ++expert) {
        const std::uint32_t format = is_large(file.layer.index(), expert) ? 1 : 0;
        const std::uint64_t bytes = record_layout(manifest_.expert_formats[format]).record_bytes;
        file.records[expert] = {format, at, bytes, 0};
        at += bytes;
      }
      file.bytes = at;
      contents_.push_back(distinct_bytes(at, 10 + file.layer.index()));
      for (ExpertRecord& record : file.records)
        record.checksum =
            checksum_of(std::as_bytes(std::span(contents_.back()).subspan(record.offset, record.bytes)));
    }
    write_packed_model(temporary_, manifest_);
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) restore_file(layer);
    Result<PackedModel> opened = PackedModel::open(disk_, temporary_ / "model");
    EXPECT_TRUE(opened) << opened.error().message();
    model_.emplace(*std::move(opened));
  }

  const PackedModel& model() const { return *model_; }
  std::uint64_t all_bytes() const { return ResidentExperts::bytes_of(*model_); }
  std::uint64_t least_bytes() const { return ExpertStore::least_bytes(*model_); }
  std::uint64_t record_bytes(std::uint32_t layer, std::uint32_t expert) const {
    return manifest_.experts[layer].records[expert].bytes;
  }
  std::uint64_t bytes_of(std::uint32_t layer, const WantedExperts& experts) const {
    return std::accumulate(experts.begin(), experts.end(), std::uint64_t{0},
                           [&](std::uint64_t sum, std::uint32_t e) { return sum + record_bytes(layer, e); });
  }
  std::string_view record(std::uint32_t layer, std::uint32_t expert) const {
    const ExpertRecord& record = manifest_.experts[layer].records[expert];
    return std::string_view(contents_[layer]).substr(record.offset, record.bytes);
  }
  const std::string& contents(std::uint32_t layer) const { return contents_[layer]; }
  std::filesystem::path file(std::uint32_t layer) const {
    return model_path() / manifest_.experts[layer].file;
  }
  std::filesystem::path model_path() const { return temporary_ / "model"; }
  void restore_file(std::uint32_t layer) const {
    temporary_.write("model/" + manifest_.experts[layer].file, contents_[layer]);
  }

  std::unique_ptr<ExpertStore> open(const ExpertStoreOptions& options) const {
    auto store = ExpertStore::open(*model_, options);
    EXPECT_TRUE(store) << store.error().message();
    return store ? *std::move(store) : nullptr;
  }
  std::unique_ptr<ExpertStore> open(ExpertStoreOptions options,
                                    const std::shared_ptr<DriveFaults>& faults) const {
    options.wrap_drive = [faults](std::unique_ptr<Drive> drive) {
      return std::make_unique<FaultyDrive>(std::move(drive), faults);
    };
    return open(options);
  }

  // Whether the lease has every byte of the right expert.
  testing::AssertionResult is_right(std::uint32_t layer, const Lease& lease) const {
    const std::string_view expected = record(layer, lease.expert().index());
    const std::byte* const first = lease.view().gate.first_block;
    const RecordLayout layout = record_layout(
        manifest_.expert_formats[manifest_.experts[layer].records[lease.expert().index()].format]);
    if (lease.view().up.first_block != first + layout.gate_block_bytes ||
        lease.view().down.first_block != first + layout.down_offset)
      return testing::AssertionFailure() << "the matrices are not at their offsets in the record";
    if (std::memcmp(first, expected.data(), expected.size()) == 0) return testing::AssertionSuccess();
    return testing::AssertionFailure()
           << "expert " << lease.expert().index() << " of layer " << layer << " has wrong bytes";
  }

 private:
  TemporaryDirectory temporary_;
  PosixFileSystem disk_;
  Manifest manifest_;
  std::vector<std::string> contents_;  // [layers]
  std::optional<PackedModel> model_;
};

inline WantedExperts all_experts() {
  WantedExperts all(StoredModel::kExperts);
  std::iota(all.begin(), all.end(), 0u);
  return all;
}

// Runs a whole fetch, releasing each expert before the next. Compares all bytes. Returns the experts in the
// order in which they were handed out, or the error.
inline Result<WantedExperts> try_fetch(const StoredModel& model, ExpertSource& source, std::uint32_t layer,
                                       const WantedExperts& wanted,
                                       FetchOrder order = FetchOrder::ready_first) {
  WantedExperts came;
  Fetch fetch = source.begin(LayerId(layer), wanted, order);
  while (true) {
    MF_TRY(const std::optional<Lease> lease, fetch.next());
    if (!lease) return came;
    EXPECT_TRUE(model.is_right(layer, *lease));
    came.push_back(lease->expert().index());
  }
}

// The same for a fetch that must succeed.
inline void expect_fetch(const StoredModel& model, ExpertSource& source, std::uint32_t layer,
                         const WantedExperts& wanted, FetchOrder order = FetchOrder::ready_first) {
  Result<WantedExperts> came = try_fetch(model, source, layer, wanted, order);
  ASSERT_TRUE(came) << came.error().message();
  if (order == FetchOrder::ready_first) std::ranges::sort(*came);
  EXPECT_EQ(*came, wanted);
}

// Fetches all experts of all layers twice. Detects lost slots and slots with wrong bytes.
inline void fetch_everything_twice(const StoredModel& model, ExpertSource& source) {
  for (int round = 0; round < 2; ++round)
    for (const FetchOrder order : {FetchOrder::ready_first, FetchOrder::ascending})
      for (std::uint32_t layer = 0; layer < StoredModel::kLayers; ++layer)
        expect_fetch(model, source, layer, all_experts(), order);
}

// Waits until no read is in flight.
inline void drain(ExpertStore& store, const DriveFaults& faults) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (faults.reads_in_flight() > 0 && std::chrono::steady_clock::now() < deadline) store.advance_reads();
  EXPECT_EQ(faults.reads_in_flight(), 0u) << "reads do not end";
}

// A random wanted set: ascending, without duplicates, sometimes all experts, sometimes none.
inline WantedExperts random_wanted(std::mt19937& random) {
  const std::size_t chances = random() % 9;  // of 8
  WantedExperts wanted;
  for (std::uint32_t expert = 0; expert < StoredModel::kExperts; ++expert)
    if (random() % 8 < chances) wanted.push_back(expert);
  return wanted;
}

// Runs random fetches: both orders; hints that are right, wrong, repeated, or for the running layer; leases
// that outlive their fetch; fetches that are dropped half-way.
inline void live(const StoredModel& model, ExpertStore& store, unsigned seed, int fetches) {
  std::mt19937 random(seed);
  std::uint64_t wanted_in_all = 0;
  for (int i = 0; i < fetches; ++i) {
    const std::uint32_t layer = static_cast<std::uint32_t>(i) % StoredModel::kLayers;
    const WantedExperts wanted = random_wanted(random);
    wanted_in_all += wanted.size();
    if (random() % 2 == 0) store.hint(LayerId(1 - layer), random_wanted(random), 0.9F);
    if (random() % 4 == 0) store.hint(LayerId(layer), wanted, 1.0F);
    if (random() % 2 == 0) store.advance_reads();
    const FetchOrder order = random() % 2 == 0 ? FetchOrder::ascending : FetchOrder::ready_first;
    std::size_t left = random() % 8 == 0 ? random() % (wanted.size() + 1) : wanted.size();
    std::vector<Lease> held;
    WantedExperts came;
    {
      Fetch fetch = store.begin(LayerId(layer), wanted, order);
      for (; left > 0; --left) {
        if (held.size() + 1 > store.lease_limit() || random() % 3 == 0) held.clear();
        const bool was_ready = fetch.is_one_ready();
        Result<std::optional<Lease>> lease = fetch.next();
        ASSERT_TRUE(lease) << lease.error().message();
        ASSERT_TRUE(*lease) << left << " experts left, ready: " << was_ready;
        came.push_back((*lease)->expert().index());
        held.push_back(**std::move(lease));
        for (const Lease& one : held) ASSERT_TRUE(model.is_right(layer, one));
      }
      if (came.size() == wanted.size()) {
        EXPECT_FALSE(fetch.is_one_ready());
        const Result<std::optional<Lease>> nothing = fetch.next();
        ASSERT_TRUE(nothing && !*nothing);
      }
    }
    for (const Lease& one : held) ASSERT_TRUE(model.is_right(layer, one)) << "after its fetch";
    const bool is_whole = came.size() == wanted.size();
    if (order == FetchOrder::ascending) {
      EXPECT_TRUE(std::ranges::equal(came, std::span(wanted).first(came.size())));
    }
    std::ranges::sort(came);
    if (is_whole) {
      EXPECT_EQ(came, wanted);
    }
  }
  const ExpertStatistics statistics = store.statistics();
  EXPECT_EQ(statistics.wanted(), wanted_in_all);
  EXPECT_LE(statistics.hits, wanted_in_all);  // no counter has wrapped around
  EXPECT_LE(statistics.misses, wanted_in_all);
  EXPECT_LE(statistics.late, wanted_in_all);
}

}  // namespace moeflux
