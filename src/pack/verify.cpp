#include "pack/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <optional>

#include "base/hash.h"
#include "base/sizes.h"
#include "base/thread_annotations.h"
#include "base/thread_pool.h"

namespace moeflux {
namespace {

// A range of one file with the checksum its bytes must have.
struct Piece {
  const ReadFile* file;
  std::uint64_t offset, bytes;
  std::optional<std::uint64_t> checksum;  // absent: padding, all zero
  std::string what;
};

// Appends the pieces of one file in ascending order, and the padding between and after them.
void add_with_gaps(std::vector<Piece> pieces, std::uint64_t file_bytes, std::vector<Piece>& out) {
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.offset < b.offset; });
  const ReadFile* file = pieces.front().file;
  std::uint64_t end = 0;
  for (Piece& piece : pieces) {
    if (piece.offset > end)
      out.push_back({file, end, piece.offset - end, std::nullopt, "the padding before " + piece.what});
    end = piece.offset + piece.bytes;
    out.push_back(std::move(piece));
  }
  if (file_bytes > end) out.push_back({file, end, file_bytes - end, std::nullopt, "the padding at the end"});
}

std::vector<Piece> pieces_of(const PackedModel& model) {
  std::vector<Piece> pieces;
  const Manifest& manifest = model.manifest();
  std::vector<Piece> resident;
  for (const PackedTensor& tensor : manifest.tensors)
    resident.push_back({&model.resident_file(), tensor.offset, tensor.bytes, tensor.checksum,
                        fmt::format("tensor '{}'", tensor.name)});
  add_with_gaps(std::move(resident), manifest.resident_bytes, pieces);
  for (const ExpertFile& file : manifest.experts) {
    std::vector<Piece> records;
    for (std::size_t e = 0; e < file.records.size(); ++e)
      records.push_back({&model.expert_file(file.layer), file.records[e].offset, file.records[e].bytes,
                         file.records[e].checksum,
                         fmt::format("the record of layer {}, expert {}", file.layer.index(), e)});
    add_with_gaps(std::move(records), file.bytes, pieces);
  }
  return pieces;
}

class Verification {
 public:
  Verification(std::vector<Piece> pieces, FunctionRef<void(std::uint64_t, std::uint64_t)> progress)
      : pieces_(std::move(pieces)), progress_(progress), findings_(pieces_.size()) {
    for (const Piece& piece : pieces_) total_ += piece.bytes;
  }

  Result<std::vector<std::string>> run(unsigned jobs) {
    ThreadPool(std::max(1u, jobs)).run([this](unsigned) { work(); });
    Lock lock(mutex_);
    if (failure_) return *failure_;
    std::vector<std::string> found;
    for (std::string& finding : findings_)
      if (!finding.empty()) found.push_back(std::move(finding));
    return found;
  }

  std::uint64_t total() const { return total_; }

 private:
  void work() {
    std::vector<std::byte> buffer(4 * kMiB);
    for (std::size_t index = next_++; index < pieces_.size(); index = next_++) {
      Result<std::string> finding = check(pieces_[index], buffer);
      Lock lock(mutex_);
      if (failure_) return;
      if (!finding) {
        failure_ = std::move(finding).error();
        return;
      }
      findings_[index] = *std::move(finding);
      done_ += pieces_[index].bytes;
      progress_(done_, total_);
    }
  }

  // The finding for a piece; empty if it is sound.
  static Result<std::string> check(const Piece& piece, std::span<std::byte> buffer) {
    ChecksumStream checksum;
    bool zero = true;
    for (std::uint64_t done = 0; done < piece.bytes;) {
      const std::span<std::byte> part =
          buffer.first(std::min<std::uint64_t>(buffer.size(), piece.bytes - done));
      MF_TRY_STATUS(piece.file->read_exactly(piece.offset + done, part));
      if (piece.checksum)
        checksum.add(part);
      else
        zero &= std::all_of(part.begin(), part.end(), [](std::byte b) { return b == std::byte{0}; });
      done += part.size();
    }
    const bool sound = piece.checksum ? checksum.value() == *piece.checksum : zero;
    if (sound) return std::string();
    return fmt::format("{}: {} has changed ({} bytes at offset {})", piece.file->path().string(), piece.what,
                       with_thousands(piece.bytes), piece.offset);
  }

  const std::vector<Piece> pieces_;
  std::uint64_t total_ = 0;
  std::atomic<std::size_t> next_ = 0;
  Mutex mutex_;
  FunctionRef<void(std::uint64_t, std::uint64_t)> progress_ MF_GUARDED_BY(mutex_);
  std::uint64_t done_ MF_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> findings_ MF_GUARDED_BY(mutex_);
  std::optional<Error> failure_ MF_GUARDED_BY(mutex_);
};

}  // namespace

Result<VerifyReport> verify(const PackedModel& model, unsigned jobs,
                            FunctionRef<void(std::uint64_t, std::uint64_t)> progress) {
  Verification verification(pieces_of(model), progress);
  VerifyReport report;
  MF_TRY(report.findings, verification.run(std::max(1u, jobs)));
  report.bytes = verification.total();
  report.tensors = model.manifest().tensors.size();
  for (const ExpertFile& file : model.manifest().experts) report.records += file.records.size();
  return report;
}

}  // namespace moeflux
