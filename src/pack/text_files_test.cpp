#include "pack/text_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <string>

#include "io/posix_file_system.h"
#include "io/testing/faulty_file_system.h"
#include "io/testing/temporary_directory.h"

namespace moeflux {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct TextFiles : testing::Test {
  TemporaryDirectory from, to;
  PosixFileSystem disk;
  FaultyFileSystem files{disk};
  const std::array<std::filesystem::path, 2> folders{from.path(), from / "mlx"};

  std::vector<std::string> copy() {
    auto copied = copy_text_files(files, folders, files, to.path());
    EXPECT_TRUE(copied) << copied.error().message();
    return copied ? *copied : std::vector<std::string>{};
  }
};

TEST_F(TextFiles, AreCopiedUnchangedAndListedInOrder) {
  from.write("tokenizer.json", std::string("{\"a\": \"\xc3\xa4\"}\r\n\0", 15));
  from.write("config.json", "{}");
  from.write("chat_template.jinja", "");
  from.write("model.safetensors", "weights");
  from.write("README.md", "words");
  EXPECT_THAT(copy(), ElementsAre("chat_template.jinja", "config.json", "tokenizer.json"));
  EXPECT_EQ(to.read("tokenizer.json"), from.read("tokenizer.json"));
  EXPECT_EQ(to.read("config.json"), "{}");
  EXPECT_TRUE(std::filesystem::exists(to / "chat_template.jinja"));
  EXPECT_FALSE(std::filesystem::exists(to / "model.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(to / "README.md"));
}

TEST_F(TextFiles, AreTakenFromTheFirstFolderThatHasThem) {
  from.write("mlx/tokenizer.json", "inner");
  from.write("mlx/config.json", "inner");
  from.write("config.json", "outer");
  EXPECT_THAT(copy(), ElementsAre("config.json", "tokenizer.json"));
  EXPECT_EQ(to.read("config.json"), "outer");
  EXPECT_EQ(to.read("tokenizer.json"), "inner");
}

TEST_F(TextFiles, AreTheSameIfAllOfTheSourceMatchByteForByte) {
  const auto same = [&] {
    const auto found = same_text_files(files, folders, files, to.path());
    EXPECT_TRUE(found) << found.error().message();
    return found && *found;
  };
  EXPECT_TRUE(same());
  from.write("mlx/tokenizer.json", "{}");
  EXPECT_FALSE(same());
  (void)copy();
  EXPECT_TRUE(same());
  to.write("tokenizer.json", "{ }");
  EXPECT_FALSE(same());
}

TEST_F(TextFiles, MayBeNone) { EXPECT_THAT(copy(), IsEmpty()); }

TEST_F(TextFiles, ReplaceThoseOfAnEarlierRun) {
  from.write("config.json", "new");
  to.write("config.json", "older and longer");
  (void)copy();
  EXPECT_EQ(to.read("config.json"), "new");
}

TEST_F(TextFiles, FailIfAnyDiskOperationFails) {
  from.write("config.json", "{}");
  from.write("mlx/tokenizer.json", "{}");
  (void)copy();
  const std::size_t count = files.log().size();
  for (std::uint64_t i = 0; i < count; ++i) {
    files.set_plan({.faults = {{.index = i}}});
    const auto copied = copy_text_files(files, folders, files, to.path());
    ASSERT_FALSE(copied) << "operation " << i;
    EXPECT_EQ(copied.error().code(), ErrorCode::io_failed);
    EXPECT_THAT(copied.error().message(), testing::HasSubstr("moeflux-")) << "operation " << i;
  }
}

}  // namespace
}  // namespace moeflux
