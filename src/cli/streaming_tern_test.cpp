// A real model on a drive that fails: every kind of fault at every read of a run of Tern. In this folder
// because a checkpoint has to be packed first.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/session.h"
#include "io/posix_file_system.h"
#include "io/testing/faulty_drive.h"
#include "io/testing/temporary_directory.h"
#include "library/model_choice.h"

namespace moeflux::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;

constexpr std::uint64_t kCacheBytes =
    40 * 57'344;  // ten layers' experts of a token: most of a run has to be read

struct StreamingTern : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem files;
  CollectingLog log;
  std::filesystem::path packed;
  std::shared_ptr<DriveFaults> faults = std::make_shared<DriveFaults>();
  const std::vector<TokenId> prompt{TokenId(40), TokenId(7), TokenId(300), TokenId(12), TokenId(99)};

  StreamingTern() {
    const auto tern = std::filesystem::path(MOEFLUX_REPOSITORY) / "models" / "tern";
    Result<ChosenModel> model = choose_model(files, {tern.string(), ""}, {temporary / "cache", {}, {}}, log,
                                             [](const PackProgress&) {});
    EXPECT_TRUE(model) << model.error().message();
    if (model) packed = model->packed;
  }

  std::shared_ptr<Engine> open(DriveKind kind, bool verifies_reads, std::chrono::nanoseconds patience) {
    EngineOptions options;
    options.threads = 1;
    options.context = 32;
    options.expert_cache_bytes = kCacheBytes;
    options.drive = DriveChoice{kind, {}};
    options.verifies_reads = verifies_reads;
    options.store.patience = patience;
    options.store.wrap_drive = [this](std::unique_ptr<Drive> drive) -> std::unique_ptr<Drive> {
      return std::make_unique<FaultyDrive>(std::move(drive), faults);
    };
    Result<std::shared_ptr<Engine>> engine = Engine::open(files, *PackedModel::open(files, packed), options);
    EXPECT_TRUE(engine) << engine.error().message();
    return *engine;
  }

  using Logits = std::vector<float>;

  // Runs a prompt and two tokens. If a step fails, runs it again without the fault and continues. Returns the
  // error of the first failure, or "".
  std::string run(Engine& engine, std::vector<Logits>& logits) {
    std::string error;
    Session session = *engine.new_session();
    const std::vector<TokenId> next{TokenId(5), TokenId(250)};
    for (std::size_t i = 0; i < 3; ++i) {
      const std::span<const TokenId> tokens = i == 0 ? std::span(prompt) : std::span(next).subspan(i - 1, 1);
      logits.emplace_back(engine.config().vocabulary);
      const std::uint32_t before = session.position();
      const Result<StepStatistics> step = session.extend(tokens, logits.back());
      if (step) continue;
      // A second failure is possible only on a busy machine, because the patience is short.
      EXPECT_TRUE(error.empty() || HasNoAnswer(step.error()))
          << "one fault, one failure: " << step.error().message();
      EXPECT_EQ(step.error().code(), ErrorCode::io_failed);
      EXPECT_EQ(session.position(), before);
      if (error.empty()) error = step.error().message();
      faults->set_plan({});
      faults->release_stuck();
      // On a busy machine, a read may take longer than the short patience of this test.
      Result<StepStatistics> again = session.extend(tokens, logits.back());
      for (int tries = 0; !again && tries < 500 && HasNoAnswer(again.error()); ++tries)
        again = session.extend(tokens, logits.back());
      EXPECT_TRUE(again) << again.error().message();
    }
    return error;
  }
  static bool HasNoAnswer(const Error& error) {
    return error.message().find("no answer") != std::string::npos;
  }

  void fail_everywhere(DriveFaultKind kind, const std::string& cause) {
    const auto patience = kind == DriveFaultKind::stuck
                              ? std::chrono::nanoseconds(std::chrono::milliseconds(5))
                              : std::chrono::nanoseconds(std::chrono::seconds(10));
    const std::shared_ptr<Engine> engine =
        open(DriveKind::pread, kind == DriveFaultKind::flipped_bit, patience);
    faults->set_plan({});
    std::vector<Logits> undisturbed;
    for (std::string said = "no answer"; said.find("no answer") != std::string::npos;) {
      undisturbed.clear();
      said = run(*engine, undisturbed);
    }
    const std::uint64_t before = faults->reads();
    std::vector<Logits> once_more;
    run(*engine, once_more);
    const std::uint64_t reads = faults->reads() - before;
    ASSERT_GT(reads, 60u);
    std::uint64_t failures = 0;
    for (std::uint64_t index = 0; index < reads; ++index) {
      faults->set_plan({.faults = {{.kind = kind, .index = index}}, .pick = {}});
      std::vector<Logits> logits;
      const std::string said = run(*engine, logits);
      faults->set_plan({});
      faults->release_stuck();
      ASSERT_EQ(logits, undisturbed) << "read " << index;
      if (said.empty()) continue;  // a guess that no layer wanted, or this run read a little less
      ++failures;
      EXPECT_THAT(said, AllOf(MatchesRegex(".*expert [0-9]+ of layer [0-7].*"), HasSubstr("experts/layer_00"),
                              HasSubstr(cause)));
    }
    EXPECT_GT(failures, reads * 3 / 4);
  }
};

TEST_F(StreamingTern, SurvivesAnErrorOfTheDriveAtEveryRead) {
  fail_everywhere(DriveFaultKind::error, "Input/output error");
}
TEST_F(StreamingTern, SurvivesAFileThatEndsAtEveryRead) {
  fail_everywhere(DriveFaultKind::end_of_file, "has been cut off");
}
TEST_F(StreamingTern, SurvivesAFlippedBitAtEveryRead) {
  fail_everywhere(DriveFaultKind::flipped_bit, "checksum");
}
TEST_F(StreamingTern, SurvivesASilentDriveAtEveryRead) {
  fail_everywhere(DriveFaultKind::stuck, "no answer");
}

TEST_F(StreamingTern, ContinuesAfterShortReads) {
  const std::shared_ptr<Engine> engine = open(DriveKind::pread, true, std::chrono::seconds(10));
  std::vector<Logits> undisturbed, cut;
  EXPECT_EQ(run(*engine, undisturbed), "");
  faults->set_plan(
      {.faults = {{.kind = DriveFaultKind::short_read, .index = 0, .and_all_later = true}}, .pick = {}});
  EXPECT_EQ(run(*engine, cut), "");
  EXPECT_EQ(cut, undisturbed);
}

}  // namespace
}  // namespace moeflux::cli
