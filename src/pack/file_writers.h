#pragma once
// Writes the files of a packed model: resident.bin and the expert files.
//
// A file appears under its name only when it is complete and synced (AtomicFile). Each job has its own
// writer, whose buffers are reused between files. One thread at a time.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "base/result.h"
#include "io/file_system.h"
#include "pack/journal.h"
#include "pack/matrix_packer.h"
#include "pack/plan.h"
#include "source/source_model.h"

namespace moeflux {

class FileWriter {
 public:
  // Called with the number of bytes just written; an error stops the writer.
  using Advance = std::function<Status(std::uint64_t bytes)>;

  // `source`, `plan` and `files` outlive the writer.
  FileWriter(const SourceModel& source, const PackPlan& plan, FileSystem& files, Advance advance);

  Result<FinishedFile> write_resident(const std::filesystem::path& path);
  Result<FinishedFile> write_experts(const ExpertFilePlan& file, const std::filesystem::path& path);

 private:
  Result<Digest> fill_record(ExpertKey key, const ExpertFormat& format);

  const SourceModel& source_;
  const PackPlan& plan_;
  FileSystem& files_;
  Advance advance_;
  MatrixPacker packer_;
  std::vector<std::byte> record_;
};

}  // namespace moeflux
