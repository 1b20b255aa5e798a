// A loaded session continues exactly like the saved one, and a snapshot file is whole or absent.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "engine/testing/test_models.h"
#include "io/posix_file_system.h"
#include "io/testing/faulty_file_system.h"
#include "io/testing/temporary_directory.h"
#include "state/piece_reader.h"
#include "state/testing/original_rope.h"

namespace moeflux {
namespace {

using Bytes = std::vector<std::byte>;

class WithFiles : public OnSmallModels {
 protected:
  static constexpr std::uint32_t kContext = 600;

  std::span<const TokenId> text_up_to(std::uint32_t position) const {
    return std::span(text).first(position);
  }
  Session session_at(std::uint32_t position) {
    Session session = new_session(*engine);
    EXPECT_TRUE(succeeds(session.extend(text_up_to(position))));
    return session;
  }
  Bytes saved_at(std::uint32_t position) { return saved(session_at(position)); }
  Bytes file() const {
    const std::string read = temporary.read("session");
    const auto bytes = std::as_bytes(std::span(read));
    return {bytes.begin(), bytes.end()};
  }
  void write_file(std::span<const std::byte> bytes) const {
    temporary.write("session", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  bool partial_exists() const { return std::filesystem::exists(temporary / "session.partial"); }
  bool is_recurrent() const { return config.family == Family::qwen3_5_moe; }

  std::shared_ptr<Engine> engine = model.open({.threads = 1, .context = kContext});
  Tokens text = random_tokens(*engine, 530);
  Tokens detour = random_tokens(*engine, 4, 2);
  TemporaryDirectory temporary;
  std::filesystem::path path = temporary / "session";
  PosixFileSystem disk;
  FaultyFileSystem files{disk};
};

// ---- Saving and loading -----------------------------------------------------------------------------------

using ASavedSession = WithFiles;
INSTANTIATE_TEST_SUITE_P(, ASavedSession, testing::Values("qwen", "deepseek"), name_of_model);

TEST_P(ASavedSession, ContinuesInAnotherEngineWithTheSameBits) {
  const auto other = model.open({.threads = 2, .context = kContext, .step_rows = 7});
  for (const std::uint32_t place : {0u, 1u, 255u, 256u, 257u, 511u, 512u, 513u, 530u}) {
    const Session session = session_at(place);
    const Bytes bytes = saved(session);
    ASSERT_TRUE(succeeds(session.save(disk, path)));
    EXPECT_TRUE(file() == bytes);
    EXPECT_EQ(session.saved_bytes(), bytes.size());
    const Logits expected = logits_ahead(session, detour);
    EXPECT_TRUE(same_bits(expected, fresh_logits(*engine, joined(text_up_to(place), detour))));

    Session from_file = new_session(*other), from_bytes = new_session(*other);
    ASSERT_TRUE(from_bytes.extend(detour));  // its earlier state does not matter
    ASSERT_TRUE(succeeds(from_file.load(disk, path)));
    ASSERT_TRUE(succeeds(from_bytes.load(bytes)));
    for (Session* loaded : {&from_file, &from_bytes}) {
      EXPECT_EQ(loaded->position(), place);
      EXPECT_EQ(loaded->tokens_begin(), 0u);
      EXPECT_TRUE(std::ranges::equal(loaded->tokens(), text_up_to(place)));
      EXPECT_TRUE(saved(*loaded) == bytes);
      EXPECT_TRUE(same_bits(logits_after(*loaded, detour), expected)) << place;
    }
  }
}

TEST_P(ASavedSession, IsReadOnceInBoundedPieces) {
  Session session = session_at(530);
  session.checkpoint();
  ASSERT_TRUE(succeeds(session.save(disk, path)));
  Session loaded = new_session(*engine);
  ASSERT_TRUE(succeeds(loaded.load(files, path)));
  std::uint64_t end = 0;
  for (const FileOperationRecord& record : files.log()) {
    if (record.operation != FileOperation::read) continue;
    EXPECT_EQ(record.offset, end);
    EXPECT_LE(record.bytes, PieceReader::kPieceBytes);
    end += record.bytes;
  }
  EXPECT_EQ(end, session.saved_bytes());
}

TEST_P(ASavedSession, StoresKeysAndValuesInTheirDtype) {
  Bytes larger = saved_at(300);
  for (const KvDtype numbers : {KvDtype::bf16, KvDtype::int8}) {
    const auto narrow = model.open({.context = kContext, .step_rows = 64, .kv_dtype = numbers});
    Session session = new_session(*narrow);
    ASSERT_TRUE(session.extend(text_up_to(300)));
    const Bytes bytes = saved(session);
    EXPECT_LT(bytes.size(), larger.size()) << name_of(numbers);
    EXPECT_EQ(session.saved_bytes(), bytes.size());
    EXPECT_EQ(bytes.size(), snapshot_bytes(state_shape_of(config, numbers), 300, 300));
    EXPECT_EQ(narrow->state_pool().used_bytes(), state_shape_of(config, numbers).session_bytes(300));
    Session loaded = new_session(*narrow);
    ASSERT_TRUE(succeeds(loaded.load(bytes)));
    EXPECT_TRUE(saved(loaded) == bytes);
    EXPECT_TRUE(same_bits(logits_after(loaded, detour), logits_after(session, detour)));
    // An engine with another KV dtype refuses it.
    Session whole = new_session(*engine);
    const Status refused = whole.load(bytes);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::wrong_numerics);
    larger = bytes;
  }
}

TEST_P(ASavedSession, HasTheBytesOfAFreshSessionWhateverItsHistory) {
  for (const std::uint32_t place : {1u, 255u, 256u, 300u}) {
    const Bytes expected = saved_at(place);
    Session session = new_session(*engine);
    for (const TokenId token : text_up_to(place)) ASSERT_TRUE(session.extend({&token, 1}));
    EXPECT_TRUE(saved_state(session) == expected) << "token by token";
    const Snapshot snapshot = session.snapshot();
    session.checkpoint();
    const Session fork = fork_of(session);
    ASSERT_TRUE(session.extend(detour));
    EXPECT_TRUE(saved_state(fork) == expected) << "a fork";
    ASSERT_TRUE(session.restore_to(place));
    EXPECT_TRUE(saved_state(session) == expected) << "gone back to a checkpoint";
    ASSERT_TRUE(session.extend(detour));
    ASSERT_TRUE(session.restore(snapshot));
    EXPECT_TRUE(saved_state(session) == expected) << "restored";
    ASSERT_TRUE(session.extend(detour));
    ASSERT_TRUE(session.rewind(place));
    EXPECT_TRUE(saved_state(session) == expected) << "rewound";
  }
}

TEST_P(ASavedSession, CanBeRewoundAfterLoading) {
  const Bytes bytes = saved_at(300);
  Session session = new_session(*engine);
  ASSERT_TRUE(session.load(bytes));
  for (const std::uint32_t place : {299u, 256u, 255u, 7u}) {
    ASSERT_TRUE(succeeds(session.rewind(place)));
    EXPECT_TRUE(saved(session) == saved_at(place)) << place;
  }
}

TEST_P(ASavedSession, SharesNothingWithItsOrigin) {
  Session session = session_at(300);
  const Bytes bytes = saved(session);
  Session loaded = new_session(*engine);
  ASSERT_TRUE(loaded.load(bytes));
  EXPECT_EQ(engine->state_pool().used_bytes(), 2 * state_shape_of(config).session_bytes(300));
  const std::uint64_t copied = engine->state_pool().copied_bytes();
  ASSERT_TRUE(session.extend(detour));
  ASSERT_TRUE(loaded.extend(text_up_to(9)));
  EXPECT_EQ(engine->state_pool().copied_bytes(), copied);
  EXPECT_TRUE(std::ranges::equal(loaded.tokens(), joined(text_up_to(300), text_up_to(9))));
}

TEST_P(ASavedSession, ReplacesAnExistingFile) {
  ASSERT_TRUE(session_at(30).save(disk, path));
  ASSERT_TRUE(session_at(300).save(disk, path));
  EXPECT_TRUE(file() == saved_at(300));
  EXPECT_FALSE(partial_exists());
}

// ---- Loads that fail ------------------------------------------------------------------------------------

class ALoadThatFails : public WithFiles {
 protected:
  void SetUp() override {
    ASSERT_TRUE(session.extend(text_up_to(12)));
    session.checkpoint();
    ASSERT_TRUE(session.extend(text_up_to(20).subspan(12)));
    expected_ = logits_ahead(session, detour);
    used_ = engine->state_pool().used_bytes();
  }
  void TearDown() override {
    EXPECT_EQ(engine->state_pool().used_bytes(), used_);
    EXPECT_EQ(session.checkpoint_count(), 1u);
    EXPECT_TRUE(std::ranges::equal(session.tokens(), text_up_to(20)));
    EXPECT_TRUE(same_bits(logits_ahead(session, detour), expected_));
    EXPECT_TRUE(same_bits(logits_after(session, detour), expected_));
    EXPECT_TRUE(succeeds(session.restore_to(12)));
  }
  // Loads them as bytes and as a file.
  template <class... Facts>
  void expect_refused(const Bytes& bytes, ErrorCode code, const Facts&... facts) {
    EXPECT_TRUE(fails_with(session.load(bytes), code, facts...));
    write_file(bytes);
    EXPECT_TRUE(fails_with(session.load(disk, path), code, facts...));
  }
  Session session = new_session(*engine);

 private:
  Logits expected_;
  std::uint64_t used_ = 0;
};
INSTANTIATE_TEST_SUITE_P(, ALoadThatFails, testing::Values("qwen", "deepseek"), name_of_model);

TEST_P(ALoadThatFails, NamesAMissingFile) {
  EXPECT_TRUE(fails_with(session.load(disk, path), ErrorCode::not_found, path.native()));
  EXPECT_TRUE(
      fails_with(session.load(disk, temporary.path()), ErrorCode::unsupported, temporary.path().native()));
}

TEST_P(ALoadThatFails, NamesTheFile) {
  write_file(Bytes(100));
  EXPECT_TRUE(fails_with(session.load(disk, path), ErrorCode::bad_magic, path.native(), "snapshot"));
}

TEST_P(ALoadThatFails, SaysWhatIsWrongWithChangedBytes) {
  const Bytes bytes = saved_at(40);
  const auto changed_at = [&](std::size_t at) {
    Bytes changed = bytes;
    changed[at] ^= std::byte{1};
    return changed;
  };
  expect_refused({}, ErrorCode::buffer_too_small);
  expect_refused(changed_at(0), ErrorCode::bad_magic);
  expect_refused(changed_at(5), ErrorCode::bad_version);
  expect_refused(changed_at(16), ErrorCode::wrong_model);
  expect_refused(changed_at(40), ErrorCode::wrong_numerics);
  for (const std::size_t at : {std::size_t{70}, bytes.size() / 2, bytes.size() - 9, bytes.size() - 1})
    expect_refused(changed_at(at), ErrorCode::bad_checksum);
  for (const std::size_t size : {bytes.size() / 2, bytes.size() - 1})
    expect_refused({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)}, ErrorCode::truncated);
  Bytes longer = bytes;
  longer.push_back(std::byte{0});
  expect_refused(longer, ErrorCode::trailing_bytes);
}

TEST_P(ALoadThatFails, ReadsOnlyTheFirstPieceOfAnOverlongFile) {
  write_file(saved(new_session(*engine)));
  std::filesystem::resize_file(path, std::uintmax_t{1} << 40);  // sparse
  EXPECT_TRUE(fails_with(session.load(files, path), ErrorCode::trailing_bytes, path.native()));
  EXPECT_LE(files.bytes(FileOperation::read), PieceReader::kPieceBytes);
}

// The first bytes alone would be a valid snapshot.
TEST_P(ALoadThatFails, RefusesTrailingBytesAfterAFullContext) {
  Tokens all = text;
  all.resize(kContext, TokenId(1));
  Session full = new_session(*engine);
  ASSERT_TRUE(full.extend(all));
  Bytes bytes = saved(full);
  EXPECT_EQ(bytes.size(), snapshot_bytes(state_shape_of(config), kContext, kContext));
  full.clear();
  ASSERT_TRUE(succeeds(full.load(bytes)));
  bytes.push_back(std::byte{0});
  expect_refused(bytes, ErrorCode::trailing_bytes);
}

TEST_P(ALoadThatFails, RefusesASnapshotOfALongerContext) {
  const auto large = model.open({.threads = 1, .context = kContext + 200});
  Session longer = new_session(*large);
  ASSERT_TRUE(longer.extend(random_tokens(*large, kContext + 1)));
  expect_refused(saved(longer), ErrorCode::length_overflow, "601");
}

TEST_P(ALoadThatFails, RefusesASnapshotOfOtherNumerics) {
  const auto fewer = model.open({.threads = 1, .experts_per_token = 1});
  Session other = new_session(*fewer);
  ASSERT_TRUE(other.extend(detour));
  expect_refused(saved(other), ErrorCode::wrong_numerics, "1 experts");
}

TEST_P(ALoadThatFails, MayFailAtAnyFileOperation) {
  ASSERT_TRUE(session_at(300).save(disk, path));
  std::uint64_t faults = 0;
  for (;; ++faults) {
    files.set_plan({.faults = {{.index = faults}}});
    Session other = fork_of(session);
    const Status loaded = other.load(files, path);
    if (loaded) break;
    EXPECT_TRUE(fails_with(loaded, ErrorCode::io_failed, path.native()));
    EXPECT_TRUE(saved_state(other) == saved_state(session));
  }
  EXPECT_EQ(faults, 3u) << "open, size, read";
  files.set_plan({.truncations = {{.path = path, .size_bytes = 1000, .from_operation = 2}}});
  EXPECT_TRUE(
      fails_with(session.load(files, path), ErrorCode::corrupt_data));  // the file shrinks while it is read
}

TEST_P(ALoadThatFails, GivesItsBlocksBackWhenOutOfMemory) {
  const std::uint64_t of_one = state_shape_of(config).session_bytes(1);
  const auto small =
      model.open({.threads = 1, .context = kContext, .kv_budget_bytes = 2 * of_one + of_one / 2});
  Session full = new_session(*small);
  ASSERT_TRUE(full.extend(text_up_to(20)));
  EXPECT_TRUE(fails_with(full.load(saved_at(300)), ErrorCode::out_of_memory));
  EXPECT_EQ(small->state_pool().used_bytes(), of_one);
  EXPECT_TRUE(std::ranges::equal(full.tokens(), text_up_to(20)));
  const Logits ahead = logits_after(full, detour);
  EXPECT_TRUE(same_bits(ahead, logits_ahead(session, detour)));
  ASSERT_TRUE(succeeds(full.load(saved_at(200))));
}

// ---- Saves that fail ---------------------------------------------------------------------

class ASaveThatFails : public WithFiles {
 protected:
  // Restores the old file, `old_bytes`.
  void restart() {
    write_file(old_bytes);
    files.clear_log();
  }
  void expect_loadable(const Bytes& expected) {
    EXPECT_TRUE(file() == expected);
    Session loaded = new_session(*engine);
    ASSERT_TRUE(succeeds(loaded.load(disk, path)));
    EXPECT_TRUE(saved(loaded) == expected);
  }
  Session session_with_checkpoints() {
    Session started = new_session(*engine);
    for (const std::uint32_t place : {0u, 100u, 257u, 300u}) {
      EXPECT_TRUE(succeeds(started.extend(text_up_to(place).subspan(started.position()))));
      started.checkpoint();
    }
    return started;
  }
  Session session = session_with_checkpoints();
  Bytes old_bytes = saved_at(30), new_bytes = saved(session);
};
INSTANTIATE_TEST_SUITE_P(, ASaveThatFails, testing::Values("qwen", "deepseek"), name_of_model);

TEST_P(ASaveThatFails, LeavesTheOldFileOrTheWholeNewOneAtAnyOperation) {
  for (const int error_number : {EIO, ENOSPC})
    for (const bool and_all_later : {false, true}) {
      std::uint64_t faults = 0;
      for (;; ++faults) {
        restart();
        files.set_plan(
            {.faults = {{.index = faults, .and_all_later = and_all_later, .error_number = error_number}}});
        const Status written = session.save(files, path);
        if (written) break;
        EXPECT_TRUE(fails_with(written, error_number == EIO ? ErrorCode::io_failed : ErrorCode::no_space,
                               path.native()));
        // A file whose directory was not synced exists, but may not survive a power failure.
        const bool is_renamed = files.count(FileOperation::sync_directory) != 0;
        expect_loadable(is_renamed ? new_bytes : old_bytes);
        EXPECT_TRUE(and_all_later || !partial_exists());  // removing it may have failed as well
        if (HasFailure()) FAIL() << "operation " << faults;
      }
      EXPECT_GE(faults, 6u) << "create, append, the checksum, sync, rename, sync_directory";
      expect_loadable(new_bytes);
      EXPECT_FALSE(partial_exists());
    }
}

TEST_P(ASaveThatFails, LeavesTheOldFileOnAFullDisk) {
  const std::uint64_t size = new_bytes.size();
  for (const std::uint64_t room :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{64}, size / 2, size - 9, size - 8, size - 1}) {
    restart();
    files.set_plan({.disk_bytes = room});
    EXPECT_TRUE(fails_with(session.save(files, path), ErrorCode::no_space, path.native())) << room;
    expect_loadable(old_bytes);
    EXPECT_FALSE(partial_exists());
  }
  files.set_plan({.disk_bytes = size});
  ASSERT_TRUE(succeeds(session.save(files, path)));
  expect_loadable(new_bytes);
}

TEST_P(ASaveThatFails, LeavesTheSessionUnchanged) {
  const Logits expected = logits_ahead(session, detour);
  files.set_plan({.disk_bytes = 1000});
  EXPECT_FALSE(session.save(files, path));
  EXPECT_TRUE(saved(session) == new_bytes);
  EXPECT_TRUE(same_bits(logits_after(session, detour), expected));
}

TEST_P(ASaveThatFails, ReturnsTheErrorOfItsSink) {
  int pieces = 0;
  ASSERT_TRUE(session.save([&](std::span<const std::byte>) -> Status {
    ++pieces;
    return {};
  }));
  ASSERT_GE(pieces, 2);
  for (int failing = 0; failing < pieces; ++failing) {
    int piece = 0;
    const Status written = session.save([&](std::span<const std::byte>) -> Status {
      if (piece++ == failing) return Error(ErrorCode::io_failed, "the pipe is broken");
      return {};
    });
    EXPECT_TRUE(fails_with(written, ErrorCode::io_failed, "the pipe is broken"));
    EXPECT_EQ(piece, failing + 1);  // no further piece is passed
  }
}

TEST_P(ASaveThatFails, OverwritesTheLeftoverOfAKilledSave) {
  restart();
  temporary.write("session.partial", "half of something");
  ASSERT_TRUE(succeeds(session.save(disk, path)));
  expect_loadable(new_bytes);
  EXPECT_FALSE(partial_exists());
}

// ---- States of the original -------------------------------------------------------------------------------

// Writes a session in the original's format: version 1, or 2 with latent attention.
class OriginalWriter {
 public:
  explicit OriginalWriter(const Session& session)
      : config_(session.engine().config()), shape_(state_shape_of(config_)), snapshot_(session.snapshot()) {}

  Bytes write() {
    const bool has_latents = std::holds_alternative<MlaConfig>(config_.layers[0].mixer);
    put_word(kSnapshotMagic);
    put_word(has_latents ? 2 : 1);
    put_word(static_cast<std::uint32_t>(config_.layers.size()));
    if (has_latents) {
      const auto& mla = std::get<MlaConfig>(config_.layers[0].mixer);
      for (const std::uint32_t word : {1u, 0u, 0u, 0u, 0u, mla.latent_dim, mla.rope_dim}) put_word(word);
    } else {
      const auto& attention = std::get<GatedAttentionConfig>(config_.layers[1].mixer);
      put_word(2);  // attention interval: every second layer
      put_word(attention.kv_heads);
      put_word(attention.head_dim);
      put_word(static_cast<std::uint32_t>(shape_.recurrent[0].conv_size * sizeof(float)));
      put_word(static_cast<std::uint32_t>(shape_.recurrent[0].delta_size() * sizeof(float)));
    }
    for (std::size_t layer = 0; layer < config_.layers.size(); ++layer) {
      if (const auto* net = std::get_if<GatedDeltaNetConfig>(&config_.layers[layer].mixer)) {
        put_recurrent(layer, *net);
        continue;
      }
      put_word(snapshot_.position());
      const KvShape& kv = shape_.kv[layer];
      if (has_latents) {
        const auto& mla = std::get<MlaConfig>(config_.layers[layer].mixer);
        put_rows(layer, &KvBlock::keys, 1, kv.key_dim, 0, mla.latent_dim);
        put_rotated_keys(layer, mla);
      } else {
        put_rows(layer, &KvBlock::keys, kv.heads, kv.key_dim, 0, kv.key_dim);
        put_rows(layer, &KvBlock::values, kv.heads, kv.value_dim, 0, kv.value_dim);
      }
    }
    return std::move(bytes_);
  }

 private:
  void put(const void* from, std::size_t size) {
    const auto* const begin = static_cast<const std::byte*>(from);
    bytes_.insert(bytes_.end(), begin, begin + size);
  }
  void put_word(std::uint32_t word) { put(&word, sizeof word); }
  // Writes columns [first, first + count) of each row, in the order of positions.
  void put_rows(std::size_t layer, float* KvBlock::*part, std::size_t heads, std::size_t dim,
                std::size_t first, std::size_t count) {
    for (std::uint32_t position = 0; position < snapshot_.position(); ++position) {
      const KvBlock& block = snapshot_.contents().blocks[layer][position / kKvBlockPositions];
      for (std::size_t head = 0; head < heads; ++head)
        put(block.*part + (head * kKvBlockPositions + position % kKvBlockPositions) * dim + first,
            count * sizeof(float));
    }
  }
  // The original has the same keys as the session before the rotation, and its own after it.
  void put_rotated_keys(std::size_t layer, const MlaConfig& mla) {
    for (std::uint32_t position = 0; position < snapshot_.position(); ++position) {
      const float* const key = snapshot_.contents().blocks[layer][position / kKvBlockPositions].keys +
                               position % kKvBlockPositions * (mla.latent_dim + mla.rope_dim) +
                               mla.latent_dim;
      const std::vector<double> raw =
          rotated_as_in_training(std::vector<double>(key, key + mla.rope_dim), position, mla.rope, -1);
      std::vector<float> rotated(raw.begin(), raw.end());
      rotate_as_the_original(rotated, position, mla.rope);
      put(rotated.data(), rotated.size() * sizeof(float));
    }
  }
  void put_recurrent(std::size_t layer, const GatedDeltaNetConfig& net) {
    const auto* const floats = reinterpret_cast<const float*>(snapshot_.contents().recurrent.data());
    const RecurrentShape& place = shape_.recurrent[layer];
    put(floats + place.conv_offset, place.conv_size * sizeof(float));
    const float* delta = floats + place.delta_offset;
    for (std::size_t head = 0; head < net.value_heads; ++head, delta += place.delta_head.size())
      for (std::size_t value = 0; value < net.value_head_dim; ++value)
        for (std::size_t key = 0; key < net.key_head_dim; ++key)
          put(delta + place.delta_head.place(key, value), sizeof(float));
  }

  const ModelConfig& config_;
  StateShape shape_;
  Snapshot snapshot_;
  Bytes bytes_;
};

class AnImportedState : public WithFiles {
 protected:
  static constexpr std::uint32_t kImported = 258;

  void SetUp() override {
    EngineOptions options{.threads = 1, .context = kContext};
    options.precision = Precision::exact;
    engine = model.open(options);
    session = new_session(*engine);
    const Session origin = session_at(kImported);
    imported = OriginalWriter(origin).write();
    ASSERT_TRUE(succeeds(session.load(imported)));
  }
  // Whether these are the logits of a session that ran the tokens itself. Keys of latent attention are
  // imported with an error of up to 3e-5 of their length at position 258 (import_tolerance), which is also
  // the order of the error of the logits after three layers; everything else is exact.
  testing::AssertionResult agree(const Logits& found, const Logits& expected) const {
    if (is_recurrent()) return same_bits(found, expected);
    float largest = 0, difference = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      largest = std::max(largest, std::abs(expected[i]));
      difference = std::max(difference, std::abs(found[i] - expected[i]));
    }
    if (found.size() == expected.size() && difference <= 1e-4f * largest) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "logits of up to " << largest << " differ by " << difference;
  }
  Logits fresh_at(std::uint32_t position) {
    return fresh_logits(*engine, joined(text_up_to(position), detour));
  }
  Bytes imported;
  Session session = new_session(*engine);
};
INSTANTIATE_TEST_SUITE_P(, AnImportedState, testing::Values("qwen", "deepseek"), name_of_model);

TEST_P(AnImportedState, ContinuesAndKnowsItsTokensFromThereOn) {
  EXPECT_EQ(session.position(), kImported);
  EXPECT_EQ(session.tokens_begin(), kImported);
  EXPECT_TRUE(session.tokens().empty());
  EXPECT_TRUE(agree(logits_after(session, detour), fresh_at(kImported)));
  EXPECT_EQ(session.tokens_begin(), kImported);
  EXPECT_TRUE(std::ranges::equal(session.tokens(), detour));
  const Session fork = fork_of(session);
  EXPECT_EQ(fork.tokens_begin(), kImported);
  EXPECT_TRUE(std::ranges::equal(fork.tokens(), detour));
}

TEST_P(AnImportedState, HasTheKeysOfASessionThatRanItsTokens) {
  if (is_recurrent()) {  // its keys need no conversion
    EXPECT_TRUE(same_bits(logits_ahead(session, detour), fresh_at(kImported)));
    return;
  }
  const Snapshot found = session.snapshot(), expected = session_at(kImported).snapshot();
  for (std::size_t layer = 0; layer < config.layers.size(); ++layer) {
    const auto& mla = std::get<MlaConfig>(config.layers[layer].mixer);
    const std::uint32_t row = mla.latent_dim + mla.rope_dim;
    for (std::uint32_t p = 0; p < kImported; ++p) {
      const auto key_of = [&](const Snapshot& snapshot) {
        return snapshot.contents().blocks[layer][p / kKvBlockPositions].keys +
               p % kKvBlockPositions * std::size_t{row};
      };
      const float *const a = key_of(found), *const b = key_of(expected);
      EXPECT_TRUE(std::equal(a, a + mla.latent_dim, b));
      double norm = 0;
      for (std::uint32_t c = mla.latent_dim; c < row; ++c) norm = std::hypot(norm, b[c]);
      for (std::uint32_t c = mla.latent_dim; c < row; ++c)
        ASSERT_NEAR(a[c], b[c], import_tolerance(norm, p)) << "layer " << layer << ", position " << p;
    }
  }
}

TEST_P(AnImportedState, MayComeFromAFile) {
  write_file(imported);
  Session other = new_session(*engine);
  ASSERT_TRUE(succeeds(other.load(disk, path)));
  EXPECT_TRUE(saved(other) == saved(session));
}

TEST_P(AnImportedState, CannotRerunUnknownTokens) {
  ASSERT_TRUE(session.extend(text_up_to(270).subspan(kImported)));
  const Logits ahead = logits_ahead(session, detour);
  for (const std::uint32_t place : {269u, kImported, kImported - 1, 256u, 1u}) {
    Session other = fork_of(session);
    const Result<StepStatistics> rewound = other.rewind(place);
    if (is_recurrent()) {
      EXPECT_TRUE(fails_with(rewound, ErrorCode::tokens_unknown, place, 258));
      EXPECT_EQ(other.position(), 270u);
      EXPECT_TRUE(std::ranges::equal(other.tokens(), text_up_to(270).subspan(kImported)));
      EXPECT_TRUE(same_bits(logits_after(other, detour), ahead));
    } else {  // nothing needs to run
      ASSERT_TRUE(succeeds(rewound));
      EXPECT_EQ(other.position(), place);
      EXPECT_EQ(other.tokens_begin(), std::min(place, kImported));
      EXPECT_EQ(other.tokens().size(), place - other.tokens_begin());
      EXPECT_TRUE(agree(logits_after(other, detour), fresh_at(place)));
    }
  }
}

TEST_P(AnImportedState, CannotRerunIfOnlyItsFirstTokenIsUnknown) {
  Session other = new_session(*engine);
  ASSERT_TRUE(succeeds(other.load(OriginalWriter(session_at(1)).write())));
  ASSERT_EQ(other.tokens_begin(), 1u);
  ASSERT_TRUE(other.extend(text_up_to(20).subspan(1)));
  const Result<StepStatistics> rewound = other.rewind(10);
  if (!is_recurrent()) {
    ASSERT_TRUE(succeeds(rewound));
    return;
  }
  EXPECT_TRUE(fails_with(rewound, ErrorCode::tokens_unknown));
  EXPECT_EQ(other.position(), 20u);
  ASSERT_TRUE(succeeds(other.rewind(0)));  // nothing needs to run
}

TEST_P(AnImportedState, CanBeRewoundDownToACheckpoint) {
  session.checkpoint();
  ASSERT_TRUE(session.extend(text_up_to(270).subspan(kImported)));
  for (const std::uint32_t place : {269u, 260u, kImported}) {
    ASSERT_TRUE(succeeds(session.rewind(place)));
    EXPECT_EQ(session.position(), place);
    EXPECT_EQ(session.tokens_begin(), kImported);
    EXPECT_TRUE(agree(logits_ahead(session, detour), fresh_at(place)));
  }
  if (is_recurrent()) {
    EXPECT_TRUE(fails_with(session.rewind(kImported - 1), ErrorCode::tokens_unknown));
  }
}

TEST_P(AnImportedState, IsAnOrdinarySessionAfterRewindingTo0) {
  ASSERT_TRUE(succeeds(session.rewind(0)));
  EXPECT_EQ(session.tokens_begin(), 0u);
  ASSERT_TRUE(session.extend(text_up_to(20)));
  ASSERT_TRUE(succeeds(session.rewind(10)));
  EXPECT_TRUE(same_bits(logits_after(session, detour), fresh_at(10)));
}

TEST_P(AnImportedState, IsSavedWithItsKnownTokens) {
  ASSERT_TRUE(session.extend(text_up_to(270).subspan(kImported)));
  const Bytes bytes = saved(session);
  EXPECT_EQ(session.saved_bytes(), bytes.size());
  Session other = new_session(*engine);
  ASSERT_TRUE(succeeds(other.load(bytes)));
  EXPECT_EQ(other.tokens_begin(), kImported);
  EXPECT_TRUE(std::ranges::equal(other.tokens(), session.tokens()));
  EXPECT_TRUE(agree(logits_after(other, detour), fresh_at(270)));
}

}  // namespace
}  // namespace moeflux
