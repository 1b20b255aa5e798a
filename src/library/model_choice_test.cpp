#include "library/model_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/testing/states.h"
#include "io/posix_file_system.h"
#include "io/testing/temporary_directory.h"
#include "model/packed_model.h"
#include "source/testing/tiny_models.h"

namespace moeflux {
namespace {

using test::States;

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

struct Variables {
  std::map<std::string, std::string> values;
  const char* operator()(const char* name) const {
    const auto found = values.find(name);
    return found == values.end() ? nullptr : found->second.c_str();
  }
};

TEST(Places, AreThoseOfTheUsersHome) {
  const Places places = find_places(Variables{{{"HOME", "/users/ada"}}}, "/opt/moeflux/bin/moeflux");
  EXPECT_EQ(places.cache, "/users/ada/.cache");
  EXPECT_THAT(places.hub_caches, ElementsAre("/users/ada/.cache/huggingface/hub"));
  ASSERT_FALSE(places.demo_sources.empty());
  EXPECT_EQ(places.demo_sources[0], "/opt/moeflux/share/moeflux/models/tern");
}

TEST(Places, FollowTheVariablesThatHuggingFaceFollows) {
  const Variables variables{{{"HOME", "/users/ada"},
                             {"XDG_CACHE_HOME", "/cache"},
                             {"HF_HOME", "/hf"},
                             {"HF_HUB_CACHE", "/hub"},
                             {"HUGGINGFACE_HUB_CACHE", "/old_hub"}}};
  const Places places = find_places(variables, "moeflux");
  EXPECT_EQ(places.cache, "/cache");
  EXPECT_THAT(places.hub_caches, ElementsAre("/hub", "/old_hub", "/hf/hub", "/cache/huggingface/hub",
                                             "/users/ada/.cache/huggingface/hub"));
}

TEST(Places, OfACheckoutHaveItsDemo) {
  const Places places = find_places(Variables{}, "/src/moeflux/build/release/bin/moeflux");
  EXPECT_THAT(places.demo_sources, testing::Contains("/src/moeflux/models/tern"));
  EXPECT_TRUE(places.cache.empty());
}

struct ModelChoices : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem disk;
  CollectingLog log;
  fs::path source = tiny_qwen_mlx().write(temporary);
  Places places{temporary / "cache", {temporary / "hub"}, {temporary / "nowhere", source}};

  fs::path packed(const ModelChoice& choice) {
    const Result<ChosenModel> chosen = choose_model(disk, choice, places, log, [](const PackProgress&) {});
    EXPECT_TRUE(chosen) << chosen.error().message();
    return chosen ? chosen->packed : fs::path();
  }
  Error refused(const ModelChoice& choice) {
    const Result<ChosenModel> chosen = choose_model(disk, choice, places, log, [](const PackProgress&) {});
    EXPECT_FALSE(chosen) << chosen->packed;
    return chosen ? Error{ErrorCode::cancelled, "no error"} : chosen.error();
  }
};

TEST_F(ModelChoices, ACheckpointIsPackedIntoTheCacheOnce) {
  const fs::path first = packed({source.string(), ""});
  EXPECT_EQ(first.parent_path(), places.cache / "moeflux" / "models");
  EXPECT_TRUE(*PackedModel::is_at(disk, first));
  ASSERT_EQ(log.entries().size(), 1u);
  EXPECT_THAT(log.entries()[0].message, HasSubstr("packing " + source.string()));
  EXPECT_EQ(packed({source.string() + "/", ""}), first);
  EXPECT_EQ(packed({(source / "config.json").string(), ""}), first);
  EXPECT_EQ(log.entries().size(), 1u);
}

TEST_F(ModelChoices, AreCachedInAFolderThatIsTheCurrentOneUntilItIsThere) {
  EXPECT_EQ(folder_of_models(disk, places), ".");
  EXPECT_EQ(folder_of_models(disk, Places{}), ".");
  const fs::path model = packed({source.native(), ""});
  EXPECT_EQ(folder_of_models(disk, places), model.parent_path());
}

TEST_F(ModelChoices, ACheckpointThatHasChangedIsPackedBesideTheOldOne) {
  const fs::path first = packed({source.string(), ""});
  temporary.write((source.lexically_relative(temporary.path()) / "notes.txt").string(), "new");
  const fs::path second = packed({source.string(), ""});
  EXPECT_NE(first, second);
  EXPECT_TRUE(*PackedModel::is_at(disk, first));
}

TEST_F(ModelChoices, APackedModelIsTakenAsItIs) {
  const fs::path there = packed({source.string(), ""});
  const Result<ChosenModel> chosen =
      choose_model(disk, {there.string(), ""}, places, log, [](const PackProgress&) {});
  ASSERT_TRUE(chosen) << chosen.error().message();
  EXPECT_EQ(chosen->packed, there);
  EXPECT_EQ(chosen->name, there.filename());
  EXPECT_FALSE(chosen->is_demo);
}

TEST_F(ModelChoices, WithoutANameTheDemoIsMeant) {
  const Result<ChosenModel> chosen = choose_model(disk, {}, places, log, [](const PackProgress&) {});
  ASSERT_TRUE(chosen) << chosen.error().message();
  EXPECT_TRUE(chosen->is_demo);
  EXPECT_EQ(chosen->name, "Tern");
  places.demo_sources = {temporary / "nowhere"};
  EXPECT_THAT(refused({}), States("nowhere", "-m", "-hf"));
}

TEST_F(ModelChoices, ARepositoryIsFoundInTheHubsCache) {
  const fs::path repository = temporary / "hub" / "models--org--name";
  fs::create_directories(repository / "refs");
  fs::create_directories(repository / "snapshots");
  fs::create_directory_symlink(source, repository / "snapshots" / "0123abcd");
  const Result<fs::path> only = find_in_hub_caches(disk, "org/name", places.hub_caches);
  ASSERT_TRUE(only) << only.error().message();
  EXPECT_EQ(*only, repository / "snapshots" / "0123abcd");
  fs::create_directory_symlink(source, repository / "snapshots" / "4567");
  EXPECT_FALSE(find_in_hub_caches(disk, "org/name", places.hub_caches));  // ambiguous
  temporary.write("hub/models--org--name/refs/main", "4567\n");
  const Result<fs::path> main = find_in_hub_caches(disk, "org/name", places.hub_caches);
  ASSERT_TRUE(main) << main.error().message();
  EXPECT_EQ(*main, repository / "snapshots" / "4567");
  const fs::path by_name = packed({"", "org/name"});
  EXPECT_TRUE(*PackedModel::is_at(disk, by_name));
  EXPECT_EQ(packed({(repository / "snapshots" / "4567").string(), ""}), by_name);
}

TEST_F(ModelChoices, ARepositoryThatIsNotThereSaysWhereItWasLookedFor) {
  const Error error = refused({"", "org/other"});
  EXPECT_EQ(error.code(), ErrorCode::not_found);
  EXPECT_THAT(error, States("hub/models--org--other"));
}

TEST_F(ModelChoices, ANameThatLeavesTheCacheIsNone) {
  for (const char* name : {"name", "a/b/c", "../name", "org/..", "/name", "org/", "org/.hidden", "o rg/name"})
    EXPECT_EQ(refused({"", name}).code(), ErrorCode::invalid_argument) << name;
}

TEST_F(ModelChoices, ACommitThatLeavesTheCacheIsNone) {
  fs::create_directories(temporary / "hub" / "models--org--name" / "refs");
  temporary.write("hub/models--org--name/refs/main", "../../x");
  EXPECT_EQ(refused({"", "org/name"}).code(), ErrorCode::corrupt_data);
}

TEST_F(ModelChoices, WithoutACacheACheckpointCannotBePacked) {
  places.cache.clear();
  EXPECT_THAT(refused({source.string(), ""}), States("moeflux pack SRC DST"));
}

TEST_F(ModelChoices, TwoNamesAreOneTooMany) {
  EXPECT_EQ(refused({"a", "org/b"}).code(), ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace moeflux
