#include "source/tensor_catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/testing/expect_contract.h"
#include "base/testing/states.h"
#include "io/posix_file_system.h"
#include "io/testing/temporary_directory.h"

namespace moeflux {
namespace {

using test::States;
using testing::ElementsAre;
using testing::IsEmpty;

struct Catalog : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem disk;
  TensorCatalog catalog;

  FileId add_file(std::string_view name) {
    auto file = disk.open_read(temporary.write(name, "x"));
    EXPECT_TRUE(file);
    return catalog.add_file(*std::move(file));
  }
  static TensorEntry entry(std::string name, FileId file) {
    return {std::move(name), Dtype::u8, {1}, {file, 0, 1}};
  }
  std::vector<std::string> names_with(std::string_view prefix) const {
    std::vector<std::string> names;
    for (const TensorEntry& tensor : catalog.with_prefix(prefix)) names.push_back(tensor.name);
    return names;
  }
};
using ATensorCatalog = Catalog;

TEST_F(ATensorCatalog, KeepsTensorsOfAllFilesInTheOrderOfTheirNames) {
  const FileId one = add_file("one"), two = add_file("two");
  ASSERT_TRUE(catalog.add_tensors({entry("d", one), entry("a", one)}));
  ASSERT_TRUE(catalog.add_tensors({entry("c", two), entry("b", two)}));
  EXPECT_THAT(names_with(""), ElementsAre("a", "b", "c", "d"));
  EXPECT_EQ(catalog.file_count(), 2u);
  EXPECT_EQ(catalog.find("c")->bytes.file, two);
  EXPECT_EQ(catalog.file(two).path().filename(), "two");
  EXPECT_EQ(catalog.index_of("c"), 2u);
}

TEST_F(ATensorCatalog, FindsWholeNamesOnly) {
  ASSERT_TRUE(catalog.add_tensors({entry("ab", add_file("one"))}));
  EXPECT_NE(catalog.find("ab"), nullptr);
  for (const char* name : {"", "a", "abc", "b", "AB"}) EXPECT_EQ(catalog.find(name), nullptr) << name;
}

TEST_F(ATensorCatalog, FindsTheTensorsOfAPrefix) {
  const FileId file = add_file("one");
  ASSERT_TRUE(
      catalog.add_tensors({entry("layers.1.a", file), entry("layers.10.a", file), entry("layers.1.b", file),
                           entry("layers.2.a", file), entry("layers.1", file)}));
  EXPECT_THAT(names_with("layers.1."), ElementsAre("layers.1.a", "layers.1.b"));
  EXPECT_THAT(names_with("layers.3."), IsEmpty());
  EXPECT_THAT(names_with("zzz"), IsEmpty());
}

TEST_F(ATensorCatalog, NamesBothFilesOfADuplicateTensor) {
  const FileId one = add_file("one"), two = add_file("two");
  ASSERT_TRUE(catalog.add_tensors({entry("same", one)}));
  const Status status = catalog.add_tensors({entry("other", two), entry("same", two)});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), ErrorCode::corrupt_data);
  EXPECT_THAT(status.error().message(), States("'same'", (temporary / "one").string()));
  EXPECT_THAT(status.error().message(), States((temporary / "two").string()));
}

TEST_F(ATensorCatalog, RequiresFilesBeforeTheirTensors) {
  EXPECT_CONTRACT((void)catalog.add_tensors({entry("a", FileId(0))}), "a tensor's file is added before it");
}

}  // namespace
}  // namespace moeflux
