#include "pack/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "base/arithmetic.h"
#include "base/hash.h"
#include "base/sizes.h"
#include "base/thread_annotations.h"
#include "base/thread_pool.h"
#include "io/atomic_file.h"
#include "model/config_json.h"
#include "model/manifest.h"
#include "model/packed_model.h"
#include "pack/file_writers.h"
#include "pack/journal.h"
#include "pack/text_files.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;

std::string expert_file_name(LayerId layer) { return fmt::format("experts/layer_{:03}.bin", layer.index()); }

// Which pack this is: format, options as they came out, and the source's files by name and length. A journal of
// anything else is not continued.
Result<Digest> identity_of(const SourceModel& source, const PackPlan& plan, const PackOptions& options) {
  DigestStream digest;
  digest.add(fmt::format("version {}\n{}\n{}\n", kPackedFormatVersion, options.source_note,
                         config_to_json(source.config()).dump()));
  for (std::uint32_t i = 0; i < source.catalog().file_count(); ++i) {
    const ReadFile& file = source.catalog().file(FileId(i));
    MF_TRY(const std::uint64_t size, file.size());
    digest.add(fmt::format("{} {}\n", file.path().filename().string(), size));
  }
  for (const TensorPlan& tensor : plan.tensors)
    digest.add(
        fmt::format("{} {} {}\n", tensor.source->name, describe(tensor.format.encoding), tensor.offset));
  for (const ExpertFormat& format : plan.expert_formats)
    for (const MatrixFormat* matrix : {&format.gate, &format.up, &format.down})
      digest.add(fmt::format("{} {} {}\n", matrix->rows, matrix->cols, describe(matrix->encoding)));
  for (const ExpertFilePlan& file : plan.expert_files)
    digest.add(fmt::format("{} {}\n", file.layer.index(), file.bytes));
  return digest.value();
}

// The identity of the numbers: over (name, shape, encoding, digest of the source's bytes), sorted by name. Nothing of
// how they are laid out, so packing again keeps it; the encoding asked for is part of it, because it changes values.
Digest fingerprint_of(const SourceModel& source, const PackPlan& plan, const FinishedFile& resident,
                      const std::vector<FinishedFile>& experts) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    const TensorPlan& tensor = plan.tensors[i];
    lines.push_back(fmt::format("{} {}x{} {} {} {}", tensor.source->name, tensor.format.rows,
                                tensor.format.cols, describe(tensor.source->matrix.encoding),
                                describe(tensor.format.encoding), hex_of(resident.digests[i])));
  }
  for (std::size_t f = 0; f < plan.expert_files.size(); ++f) {
    const ExpertFilePlan& file = plan.expert_files[f];
    for (std::uint32_t e = 0; e < file.formats.size(); ++e) {
      const ExpertFormat& format = plan.expert_formats[file.formats[e]];
      lines.push_back(fmt::format("{} {}x{} {} {} {} {}", expert_matrix_name({file.layer, ExpertId(e)}, ""),
                                  format.gate.rows, format.gate.cols, describe(format.gate.encoding),
                                  describe(format.up.encoding), describe(format.down.encoding),
                                  hex_of(experts[f].digests[e])));
    }
  }
  lines.push_back(fmt::format("config {}", config_to_json(source.config()).dump()));
  std::sort(lines.begin(), lines.end());
  DigestStream digest;
  for (const std::string& line : lines) {
    digest.add(line);
    digest.add("\n");
  }
  return digest.value();
}

// The run of one pack: the plan's files, taken one by one by the jobs.
class Packing {
 public:
  Packing(const SourceModel& source, const PackPlan& plan, FileSystem& files, const fs::path& destination,
          Journal& journal, FunctionRef<void(const PackProgress&)> progress)
      : source_(source),
        plan_(plan),
        files_(files),
        destination_(destination),
        journal_(journal),
        progress_(progress),
        experts_(plan.expert_files.size()) {}

  // Finds what an earlier run has finished.
  Status resume() {
    Lock lock(mutex_);
    MF_TRY(auto resident, journal_.finished(std::string(kResidentName)));
    if (resident && resident->checksums.size() == plan_.tensors.size() &&
        resident->digests.size() == plan_.tensors.size())
      keep(resident_, *std::move(resident));
    for (std::size_t i = 0; i < plan_.expert_files.size(); ++i) {
      const std::size_t records = plan_.expert_files[i].formats.size();
      MF_TRY(auto experts, journal_.finished(expert_file_name(plan_.expert_files[i].layer)));
      if (experts && experts->checksums.size() == records && experts->digests.size() == records)
        keep(experts_[i], *std::move(experts));
    }
    return {};
  }

  std::uint64_t kept_bytes() {
    Lock lock(mutex_);
    return kept_;
  }

  // Writes what is missing with `jobs` threads, of which the caller is one.
  Status run(unsigned jobs) {
    const unsigned useful = static_cast<unsigned>(std::min<std::size_t>(jobs, 1 + plan_.expert_files.size()));
    ThreadPool(std::max(1u, useful)).run([this](unsigned) { work(); });
    Lock lock(mutex_);
    if (failure_) return *failure_;
    return {};
  }

  const FinishedFile& resident() {
    Lock lock(mutex_);
    return *resident_;
  }
  std::vector<FinishedFile> experts() {
    Lock lock(mutex_);
    std::vector<FinishedFile> files;
    for (const auto& file : experts_) files.push_back(*file);
    return files;
  }

 private:
  void keep(std::optional<FinishedFile>& slot, FinishedFile file) MF_REQUIRES(mutex_) {
    kept_ += file.bytes;
    done_ += file.bytes;
    slot = std::move(file);
  }

  // File 0 is resident.bin, file i + 1 the experts of plan_.expert_files[i].
  void work() {
    FileWriter writer(source_, plan_, files_, [this](std::uint64_t bytes) { return advance(bytes); });
    for (std::size_t index = next_++; index <= plan_.expert_files.size(); index = next_++) {
      if (!is_missing(index)) continue;
      Result<FinishedFile> file =
          index == 0
              ? writer.write_resident(destination_ / kResidentName)
              : writer.write_experts(plan_.expert_files[index - 1],
                                     destination_ / expert_file_name(plan_.expert_files[index - 1].layer));
      if (!finish(index, std::move(file))) return;
    }
  }

  bool is_missing(std::size_t index) {
    Lock lock(mutex_);
    return index == 0 ? !resident_ : !experts_[index - 1];
  }

  // Notes a written file, or the first failure. False: stop.
  bool finish(std::size_t index, Result<FinishedFile> file) {
    Lock lock(mutex_);
    if (failure_) return false;
    if (file) {
      const std::string name =
          index == 0 ? std::string(kResidentName) : expert_file_name(plan_.expert_files[index - 1].layer);
      if (Status noted = journal_.add(name, *file); !noted) failure_ = std::move(noted).error();
      (index == 0 ? resident_ : experts_[index - 1]) = *std::move(file);
    } else {
      failure_ = std::move(file).error();
    }
    return !failure_;
  }

  Status advance(std::uint64_t bytes) {
    Lock lock(mutex_);
    if (failure_) return Error{ErrorCode::cancelled, "another job has failed"};
    done_ += bytes;
    progress_({done_, kept_, plan_.total_bytes()});
    return {};
  }

  const SourceModel& source_;
  const PackPlan& plan_;
  FileSystem& files_;
  const fs::path& destination_;

  std::atomic<std::size_t> next_ = 0;
  Mutex mutex_;
  Journal& journal_ MF_GUARDED_BY(mutex_);
  FunctionRef<void(const PackProgress&)> progress_ MF_GUARDED_BY(mutex_);
  std::uint64_t done_ MF_GUARDED_BY(mutex_) = 0;
  std::uint64_t kept_ MF_GUARDED_BY(mutex_) = 0;
  std::optional<FinishedFile> resident_ MF_GUARDED_BY(mutex_);
  std::vector<std::optional<FinishedFile>> experts_ MF_GUARDED_BY(mutex_);
  std::optional<Error> failure_ MF_GUARDED_BY(mutex_);
};

Manifest manifest_of(const SourceModel& source, const PackPlan& plan, const FinishedFile& resident,
                     const std::vector<FinishedFile>& experts, std::vector<std::string> text_files) {
  Manifest manifest;
  manifest.fingerprint = fingerprint_of(source, plan, resident, experts);
  manifest.source_format = name_of(source.kind());
  manifest.config = source.config();
  manifest.resident_bytes = plan.resident_bytes;
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    const TensorPlan& tensor = plan.tensors[i];
    manifest.tensors.push_back({tensor.source->name, tensor.format, tensor.layout, tensor.offset,
                                tensor.bytes, resident.checksums[i]});
  }
  manifest.expert_formats = plan.expert_formats;
  for (std::size_t f = 0; f < plan.expert_files.size(); ++f) {
    const ExpertFilePlan& file = plan.expert_files[f];
    ExpertFile listed{file.layer, expert_file_name(file.layer), file.bytes, {}};
    for (std::size_t e = 0; e < file.formats.size(); ++e)
      listed.records.push_back({file.formats[e], file.offsets[e],
                                record_layout(plan.expert_formats[file.formats[e]]).record_bytes,
                                experts[f].checksums[e]});
    manifest.experts.push_back(std::move(listed));
  }
  manifest.text_files = std::move(text_files);
  return manifest;
}

// An unfinished pack may be continued, also one that was stopped between its manifest and the removal of its
// journal; a finished one, or somebody else's directory, is not touched.
Status check_destination(FileSystem& files, const fs::path& destination) {
  MF_TRY(const bool exists, files.exists(destination));
  if (!exists) return {};
  MF_TRY(const bool ours, files.exists(destination / kJournalName));
  if (ours) return {};
  MF_TRY(const bool finished, files.exists(destination / kManifestName));
  if (finished)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{}: a packed model is here already; remove it or choose another place",
                             destination.string())};
  MF_TRY(const std::vector<std::string> names, files.list(destination));
  // The journal is the first file: of a pack that was stopped while writing it only this is left.
  const std::string first = fmt::format("{}.partial", kJournalName);
  if (std::any_of(names.begin(), names.end(), [&](const std::string& name) { return name != first; }))
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{}: is not empty; choose another place", destination.string())};
  return {};
}

Status check_room(FileSystem& files, const fs::path& destination, std::uint64_t needed) {
  MF_TRY(const bool exists, files.exists(destination));
  fs::path place = destination;
  if (!exists) place = (destination.has_filename() ? destination : destination.parent_path()).parent_path();
  MF_TRY(const std::uint64_t free, files.free_bytes(place.empty() ? "." : place));
  if (free >= needed) return {};
  return Error{ErrorCode::no_space, fmt::format("{}: {} are needed, {} are free", destination.string(),
                                                human_bytes(needed), human_bytes(free))};
}

}  // namespace

Result<PackReport> pack(const SourceModel& source, FileSystem& source_files, FileSystem& files,
                        const fs::path& destination, const PackOptions& options,
                        FunctionRef<void(const PackProgress&)> progress) {
  MF_TRY(const PackPlan plan, plan_pack(source, options));
  MF_TRY_STATUS(check_destination(files, destination));
  MF_TRY(const Digest identity, identity_of(source, plan, options));
  MF_TRY(Journal journal, Journal::open(files, destination, identity));
  Packing packing(source, plan, files, destination, journal, progress);
  MF_TRY_STATUS(packing.resume());
  const std::uint64_t kept = packing.kept_bytes();
  MF_TRY_STATUS(check_room(files, destination, plan.total_bytes() - kept));
  MF_TRY_STATUS(files.make_directory(destination));
  MF_TRY_STATUS(journal.begin());  // first of all: a directory without it is somebody else's
  MF_TRY_STATUS(files.make_directory(destination / "experts"));
  MF_TRY_STATUS(packing.run(std::max(1u, options.jobs)));
  MF_TRY(std::vector<std::string> text_files,
         copy_text_files(source_files, source.path(), files, destination));

  PackReport report{manifest_of(source, plan, packing.resident(), packing.experts(), std::move(text_files)),
                    plan.total_bytes() - kept, kept};
  const std::string manifest = write_manifest(report.manifest);
  MF_TRY_STATUS(
      write_file_atomically(files, destination / kManifestName, std::as_bytes(std::span(manifest))));
  MF_TRY_STATUS(journal.remove());
  return report;
}

}  // namespace moeflux
