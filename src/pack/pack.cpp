#include "pack/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "base/hash.h"
#include "base/sizes.h"
#include "base/thread_annotations.h"
#include "base/thread_pool.h"
#include "io/atomic_file.h"
#include "model/config_json.h"
#include "model/manifest.h"
#include "model/packed_model.h"
#include "pack/file_writers.h"
#include "pack/fingerprint.h"
#include "pack/journal.h"
#include "pack/text_files.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;

// The identity of a pack: the format, the plan that follows from the options, and the names and lengths of
// the source's files. A journal with another identity is not continued.
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

Status expect_not_cancelled(const std::atomic<bool>* cancel) {
  if (cancel == nullptr || !cancel->load(std::memory_order_relaxed)) return {};
  return Error{ErrorCode::cancelled, "packing was cancelled; the next run continues it"};
}

// One run of a pack: the jobs take the plan's files one by one.
class Packing {
 public:
  Packing(const SourceModel& source, const PackPlan& plan, FileSystem& files, const fs::path& destination,
          Journal& journal, const std::atomic<bool>* cancel, FunctionRef<void(const PackProgress&)> progress)
      : source_(source),
        plan_(plan),
        files_(files),
        destination_(destination),
        cancel_(cancel),
        journal_(journal),
        progress_(progress),
        experts_(plan.expert_files.size()) {}

  // Keeps the files that an earlier run finished. A journal entry with another number of checksums or digests
  // than the plan has tensors or records counts as unfinished.
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

  // Writes the missing files with `jobs` threads, the calling one included.
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

  // Records a written file, or the first failure. Returns false when the job should stop.
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
    progress_({.done_bytes = done_, .kept_bytes = kept_, .total_bytes = plan_.total_bytes()});
    return expect_not_cancelled(cancel_);
  }

  const SourceModel& source_;
  const PackPlan& plan_;
  FileSystem& files_;
  const fs::path& destination_;
  const std::atomic<bool>* const cancel_;

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

// The manifest before the files are written: fingerprint and checksums are zero.
Manifest planned_manifest(const SourceModel& source, const PackPlan& plan,
                          std::vector<std::string> text_files) {
  Manifest manifest;
  manifest.source_format = name_of(source.kind());
  manifest.config = source.config();
  manifest.resident_bytes = plan.resident_bytes;
  for (const TensorPlan& tensor : plan.tensors)
    manifest.tensors.push_back(
        {tensor.source->name, tensor.format, tensor.layout, tensor.offset, tensor.bytes, 0});
  manifest.expert_formats = plan.expert_formats;
  for (const ExpertFilePlan& file : plan.expert_files) {
    ExpertFile listed{file.layer, expert_file_name(file.layer), file.bytes, {}};
    for (std::size_t e = 0; e < file.formats.size(); ++e)
      listed.records.push_back({file.formats[e], file.offsets[e],
                                record_layout(plan.expert_formats[file.formats[e]]).record_bytes, 0});
    manifest.experts.push_back(std::move(listed));
  }
  manifest.text_files = std::move(text_files);
  return manifest;
}

Manifest written_manifest(const SourceModel& source, const PackPlan& plan, const FinishedFile& resident,
                          const std::vector<FinishedFile>& experts, std::vector<std::string> text_files) {
  Manifest manifest = planned_manifest(source, plan, std::move(text_files));
  PlanDigests digests{resident.digests, {}};
  for (std::size_t i = 0; i < manifest.tensors.size(); ++i)
    manifest.tensors[i].checksum = resident.checksums[i];
  for (std::size_t f = 0; f < manifest.experts.size(); ++f) {
    for (std::size_t e = 0; e < manifest.experts[f].records.size(); ++e)
      manifest.experts[f].records[e].checksum = experts[f].checksums[e];
    digests.experts.push_back(experts[f].digests);
  }
  manifest.fingerprint = fingerprint_of(source, plan, digests);
  return manifest;
}

Manifest without_checksums(Manifest manifest) {
  manifest.fingerprint = {};
  for (PackedTensor& tensor : manifest.tensors) tensor.checksum = 0;
  for (ExpertFile& file : manifest.experts)
    for (ExpertRecord& record : file.records) record.checksum = 0;
  return manifest;
}

// Reports a destination that is already complete. It is an error if its model is not the one that this pack
// would write: reads the whole source to compare plan, text files and weights.
Result<PackReport> report_finished(const SourceModel& source, const PackPlan& plan, FileSystem& source_files,
                                   FileSystem& files, const fs::path& destination, const PackOptions& options,
                                   FunctionRef<void(const PackProgress&)> progress) {
  const Result<PackedModel> model = PackedModel::open(files, destination);
  if (!model)
    return Error{
        model.error().code(),
        fmt::format("{}: a packed model is here already, but it does not open ({}); remove it or choose "
                    "another destination",
                    destination.string(), model.error().message())};
  const Manifest& found = model->manifest();
  const Error other{ErrorCode::invalid_argument,
                    fmt::format("{}: a packed model of another source or with other options is here already; "
                                "remove it or choose another destination",
                                destination.string())};
  MF_TRY(std::vector<std::string> text_files, text_files_of(source_files, source.text_folders()));
  if (planned_manifest(source, plan, text_files) != without_checksums(found)) return other;
  MF_TRY(const bool same_text, same_text_files(source_files, source.text_folders(), files, destination));
  if (!same_text) return other;
  const auto compared = [&](std::uint64_t done, std::uint64_t total) {
    progress({.done_bytes = done, .kept_bytes = 0, .total_bytes = total, .comparing = true});
    return expect_not_cancelled(options.cancel);
  };
  MF_TRY(const Digest fingerprint, read_fingerprint(source, plan, options.jobs, compared));
  if (fingerprint != found.fingerprint) return other;
  return PackReport{found, 0, plan.total_bytes(), true};
}

enum class Destination { free, unfinished, finished };

// A directory with a journal is an unfinished pack, even if it was stopped between writing its manifest and
// removing its journal. A directory with files of another origin is an error.
Result<Destination> destination_at(FileSystem& files, const fs::path& destination) {
  MF_TRY(const bool exists, files.exists(destination));
  if (!exists) return Destination::free;
  MF_TRY(const bool unfinished, files.exists(destination / kJournalName));
  if (unfinished) return Destination::unfinished;
  MF_TRY(const bool finished, files.exists(destination / kManifestName));
  if (finished) return Destination::finished;
  MF_TRY(const std::vector<std::string> names, files.list(destination));
  // The journal is the first file. If its writing was interrupted, only its partial file is left.
  const std::string first = fmt::format("{}.partial", kJournalName);
  if (std::any_of(names.begin(), names.end(), [&](const std::string& name) { return name != first; }))
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{}: is not empty; choose another destination", destination.string())};
  return Destination::free;
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
  MF_TRY_STATUS(expect_not_cancelled(options.cancel));
  MF_TRY(const PackPlan plan, plan_pack(source, options));
  MF_TRY(const Destination found, destination_at(files, destination));
  if (found == Destination::finished)
    return report_finished(source, plan, source_files, files, destination, options, progress);
  MF_TRY(const Digest identity, identity_of(source, plan, options));
  MF_TRY(Journal journal, Journal::open(files, destination, identity));
  Packing packing(source, plan, files, destination, journal, options.cancel, progress);
  MF_TRY_STATUS(packing.resume());
  const std::uint64_t kept = packing.kept_bytes();
  MF_TRY_STATUS(check_room(files, destination, plan.total_bytes() - kept));
  MF_TRY_STATUS(files.make_directory(destination));
  // Before any other file: pack() never writes to a directory that has files but no journal.
  MF_TRY_STATUS(journal.begin());
  MF_TRY_STATUS(files.make_directory(destination / "experts"));
  MF_TRY_STATUS(packing.run(std::max(1u, options.jobs)));
  MF_TRY(std::vector<std::string> text_files,
         copy_text_files(source_files, source.text_folders(), files, destination));

  PackReport report{
      written_manifest(source, plan, packing.resident(), packing.experts(), std::move(text_files)),
      plan.total_bytes() - kept, kept};
  const std::string manifest = write_manifest(report.manifest);
  MF_TRY_STATUS(
      write_file_atomically(files, destination / kManifestName, std::as_bytes(std::span(manifest))));
  MF_TRY_STATUS(journal.remove());
  return report;
}

}  // namespace moeflux
