#include "source/checkpoint_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/testing/states.h"
#include "io/posix_file_system.h"
#include "io/testing/faulty_file_system.h"
#include "io/testing/temporary_directory.h"
#include "source/testing/safetensors_builder.h"

namespace moeflux {
namespace {

using test::States;
using testing::ElementsAre;
using testing::IsEmpty;

struct Checkpoint : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem disk;
  FaultyFileSystem files{disk};
  Notes notes;

  // A shard with tensors of four bytes.
  void shard(const char* name, std::initializer_list<const char*> tensors, std::size_t gap = 0) {
    SafetensorsBuilder builder;
    for (const char* tensor : tensors) builder.add(tensor, Dtype::f32, {1});
    temporary.write(name, builder.gap(gap).file());
  }
  void index(const char* weight_map) {
    temporary.write("model.safetensors.index.json", std::string(R"({"weight_map": )") + weight_map + "}");
  }
  Result<TensorCatalog> open() { return open_checkpoint_tensors(files, temporary.path(), notes); }
  std::string refusal() {
    const auto catalog = open();
    return catalog ? "no error" : catalog.error().message();
  }
};
using CheckpointTensors = Checkpoint;

TEST_F(CheckpointTensors, NeedNoIndexForASingleFile) {
  shard("model.safetensors", {"a", "b"});
  const auto catalog = open();
  ASSERT_TRUE(catalog) << catalog.error().message();
  EXPECT_EQ(catalog->all().size(), 2u);
  EXPECT_EQ(catalog->file_count(), 1u);
  EXPECT_THAT(notes, IsEmpty());
}

TEST_F(CheckpointTensors, JoinAllShardsInOneCatalog) {
  shard("1.safetensors", {"c", "a"});
  shard("2.safetensors", {"b"});
  index(R"({"a": "1.safetensors", "b": "2.safetensors", "c": "1.safetensors"})");
  const auto catalog = open();
  ASSERT_TRUE(catalog) << catalog.error().message();
  EXPECT_EQ(catalog->file_count(), 2u);
  EXPECT_EQ(catalog->file(catalog->find("b")->bytes.file).path(), temporary / "2.safetensors");
  EXPECT_THAT(notes, IsEmpty());
}

TEST_F(CheckpointTensors, PreferAnIndexToASingleFileBesideIt) {
  shard("model.safetensors", {"old"});
  shard("1.safetensors", {"a"});
  index(R"({"a": "1.safetensors"})");
  const auto catalog = open();
  ASSERT_TRUE(catalog) << catalog.error().message();
  EXPECT_EQ(catalog->find("old"), nullptr);
}

TEST_F(CheckpointTensors, NameAMissingShard) {
  shard("1.safetensors", {"a"});
  index(R"({"a": "1.safetensors", "b": "2.safetensors"})");
  const auto catalog = open();
  ASSERT_FALSE(catalog);
  EXPECT_EQ(catalog.error().code(), ErrorCode::not_found);
  EXPECT_THAT(catalog.error().message(), States((temporary / "2.safetensors").string()));
}

TEST_F(CheckpointTensors, MustBeInTheShardThatTheIndexNames) {
  shard("1.safetensors", {"a"});
  shard("2.safetensors", {"b"});
  index(R"({"a": "1.safetensors", "b": "1.safetensors", "x": "2.safetensors"})");
  EXPECT_THAT(refusal(), States("'b'", "1.safetensors", "2.safetensors"));
  index(R"({"a": "1.safetensors", "b": "2.safetensors", "c": "2.safetensors"})");
  EXPECT_THAT(refusal(), States("'c'", "2.safetensors"));
}

TEST_F(CheckpointTensors, RejectATensorInTwoShards) {
  shard("1.safetensors", {"a", "b"});
  shard("2.safetensors", {"b"});
  index(R"({"a": "1.safetensors", "b": "2.safetensors"})");
  EXPECT_THAT(refusal(), States("'b'", (temporary / "1.safetensors").string()));
}

TEST_F(CheckpointTensors, NoteTensorsMissingFromTheIndex) {
  shard("1.safetensors", {"a", "b", "c"});
  index(R"({"a": "1.safetensors"})");
  ASSERT_TRUE(open());
  EXPECT_THAT(notes, ElementsAre(States(2)));
}

TEST_F(CheckpointTensors, NoteBytesOfNoTensor) {
  shard("model.safetensors", {"a"}, 1500);
  ASSERT_TRUE(open());
  EXPECT_THAT(notes, ElementsAre(States("model.safetensors", "1.50 KB")));
}

TEST_F(CheckpointTensors, ReadOnlyHeaders) {
  shard("1.safetensors", {"a"}, 1 << 20);
  shard("2.safetensors", {"b"}, 1 << 20);
  index(R"({"a": "1.safetensors", "b": "2.safetensors"})");
  ASSERT_TRUE(open());
  EXPECT_LT(files.bytes(FileOperation::read), 1000u);
}

TEST_F(CheckpointTensors, RejectTooManyShards) {
  std::string map = "{";
  for (int i = 0; i <= 4096; ++i)
    map += (i == 0 ? "" : ",") + std::string("\"t") + std::to_string(i) + "\":\"s" + std::to_string(i) + "\"";
  index((map + "}").c_str());
  EXPECT_THAT(refusal(), States(4096));
  EXPECT_EQ(files.count(FileOperation::open_read), 1u) << "the index, and no shard";
}

}  // namespace
}  // namespace moeflux
