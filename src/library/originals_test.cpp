#include "library/originals.h"

#include <gtest/gtest.h>

#include "io/posix_file_system.h"
#include "io/testing/faulty_file_system.h"
#include "io/testing/temporary_directory.h"
#include "source/testing/original_builder.h"

namespace moeflux {
namespace {

struct PackingOriginals : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem disk;
  FaultyFileSystem files{disk};

  PackingOriginals() { original_of(tiny_qwen_mlx()).write(temporary, "model/artifacts", "model/root"); }

  Result<PackedOriginals> pack() {
    return pack_originals(
        files, {temporary / "model/artifacts/model_weights.bin",
                temporary / "model/artifacts/model_weights.json", temporary / "model/root", false});
  }

  std::size_t manifests_opened() const {
    std::size_t count = 0;
    for (const FileOperationRecord& record : files.log())
      if (record.operation == FileOperation::open_read && record.path.filename() == kManifestName) ++count;
    return count;
  }
};

TEST_F(PackingOriginals, PutsThePackedModelBesideTheExperts) {
  const auto packed = pack();
  ASSERT_TRUE(packed) << packed.error().message();
  EXPECT_EQ(packed->model.path(), temporary / "model/root" / kPackedOriginals);
  EXPECT_EQ(packed->name, "model");
}

TEST_F(PackingOriginals, OpensAFinishedPackOnceAndWritesNothing) {
  ASSERT_TRUE(pack());
  files.clear_log();
  const auto packed = pack();
  ASSERT_TRUE(packed) << packed.error().message();
  EXPECT_EQ(packed->model.path(), temporary / "model/root" / kPackedOriginals);
  EXPECT_EQ(manifests_opened(), 1u);
  EXPECT_EQ(files.count(FileOperation::create), 0u);
}

}  // namespace
}  // namespace moeflux
