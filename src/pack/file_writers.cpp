#include "pack/file_writers.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/sizes.h"
#include "io/atomic_file.h"
#include "pack/source_digest.h"
#include "quant/tile16.h"

namespace moeflux {
namespace {

constexpr std::size_t kWriteBytes = 4 * kMiB;

// Collects small pieces into large writes.
class BufferedFile {
 public:
  BufferedFile(WriteFile& file, const FileWriter::Advance& advance) : file_(file), advance_(advance) {
    buffer_.reserve(kWriteBytes);
  }

  std::uint64_t position() const { return position_; }

  // Every write but the last is kWriteBytes long, so that offsets stay aligned for direct writes.
  Status append(std::span<const std::byte> bytes) {
    position_ += bytes.size();
    while (buffer_.size() + bytes.size() >= kWriteBytes) {
      const auto head = bytes.first(kWriteBytes - buffer_.size());
      buffer_.insert(buffer_.end(), head.begin(), head.end());
      MF_TRY_STATUS(flush());
      bytes = bytes.subspan(head.size());
    }
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    return {};
  }

  Status pad_to(std::uint64_t position) {
    MF_REQUIRE(position >= position_, "padding goes forward");
    const std::vector<std::byte> zeros(position - position_);
    return append(zeros);
  }

  Status flush() {
    MF_TRY_STATUS(write(buffer_));
    buffer_.clear();
    return {};
  }

 private:
  Status write(std::span<const std::byte> bytes) {
    if (bytes.empty()) return {};
    MF_TRY_STATUS(file_.append(bytes));
    return advance_(bytes.size());
  }

  WriteFile& file_;
  const FileWriter::Advance& advance_;
  std::vector<std::byte> buffer_;
  std::uint64_t position_ = 0;
};

}  // namespace

FileWriter::FileWriter(const SourceModel& source, const PackPlan& plan, FileSystem& files, Advance advance)
    : source_(source), plan_(plan), files_(files), advance_(std::move(advance)), packer_(source.catalog()) {}

Result<FinishedFile> FileWriter::write_resident(const std::filesystem::path& path) {
  MF_TRY(const auto file, AtomicFile::begin(files_, path));
  BufferedFile out(*file, advance_);
  FinishedFile finished;
  for (const TensorPlan& tensor : plan_.tensors) {
    MF_TRY_STATUS(out.pad_to(tensor.offset));
    ChecksumStream checksum;
    const auto sink = [&](std::span<const std::byte> bytes) -> Status {
      checksum.add(bytes);
      return out.append(bytes);
    };
    const NamedMatrix& source = *tensor.source;
    MF_TRY(const Digest digest, tensor.layout == TensorLayout::rows
                                    ? packer_.pack_rows(source.matrix, source.name, sink)
                                    : packer_.pack_tiles(source.matrix, source.name, tensor.format, sink));
    finished.checksums.push_back(checksum.value());
    finished.digests.push_back(digest);
  }
  MF_TRY_STATUS(out.flush());
  MF_TRY_STATUS(file->commit());
  finished.bytes = out.position();
  return finished;
}

Result<FinishedFile> FileWriter::write_experts(const ExpertFilePlan& plan,
                                               const std::filesystem::path& path) {
  MF_TRY(const auto file, AtomicFile::begin(files_, path));
  BufferedFile out(*file, advance_);
  FinishedFile finished;
  for (std::uint32_t e = 0; e < plan.formats.size(); ++e) {
    MF_REQUIRE(out.position() == plan.offsets[e], "records follow each other");
    MF_TRY(const Digest digest,
           fill_record({plan.layer, ExpertId(e)}, plan_.expert_formats[plan.formats[e]]));
    finished.checksums.push_back(checksum_of(record_));
    finished.digests.push_back(digest);
    MF_TRY_STATUS(out.append(record_));
  }
  MF_TRY_STATUS(out.flush());
  MF_TRY_STATUS(file->commit());
  finished.bytes = out.position();
  return finished;
}

// Blocks of gate and up alternate. Down starts at its own aligned offset. Padding is zero.
Result<Digest> FileWriter::fill_record(ExpertKey key, const ExpertFormat& format) {
  const RecordLayout layout = record_layout(format);
  record_.assign(layout.record_bytes, std::byte{0});
  const ExpertMatrices expert = source_.experts(key.layer)->expert(key.expert);
  std::vector<Digest> digests;

  const auto place = [&](const SourceMatrix& matrix, std::string_view part, const MatrixFormat& stored,
                         std::uint64_t first, std::uint64_t stride) -> Status {
    std::uint64_t at = first;
    MF_TRY(const Digest digest, packer_.pack_tiles(matrix, expert_matrix_name(key, part), stored,
                                                   [&](std::span<const std::byte> block) -> Status {
                                                     std::memcpy(record_.data() + at, block.data(),
                                                                 block.size());
                                                     at += stride;
                                                     return {};
                                                   }));
    digests.push_back(digest);
    return {};
  };
  const std::uint64_t pair = layout.gate_block_bytes + layout.up_block_bytes;
  MF_TRY_STATUS(place(expert.gate, "gate_proj", format.gate, 0, pair));
  MF_TRY_STATUS(place(expert.up, "up_proj", format.up, layout.gate_block_bytes, pair));
  const std::uint64_t down_block = tile16::block_bytes(format.down.encoding, format.down.cols);
  MF_TRY_STATUS(place(expert.down, "down_proj", format.down, layout.down_offset, down_block));
  return combined_digest(digests);
}

}  // namespace moeflux
