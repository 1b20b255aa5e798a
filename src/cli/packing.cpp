#include "cli/packing.h"

#include <fmt/format.h>

#include "base/sizes.h"
#include "cli/progress_bar.h"
#include "io/atomic_directory.h"
#include "model/manifest.h"
#include "model/packed_model.h"
#include "pack/pack.h"
#include "pack/synthetic_checkpoint.h"
#include "pack/synthetic_shapes.h"
#include "pack/verify.h"

namespace moeflux::cli {
namespace {

// "28.3 MB in 0.4 s, 70.8 MB/s".
std::string written(std::uint64_t bytes, double seconds) {
  return fmt::format(
      "{} in {:.1f} s, {}/s", human_bytes(bytes), seconds,
      human_bytes(static_cast<std::uint64_t>(static_cast<double>(bytes) / std::max(seconds, 1e-3))));
}

Result<std::string> pack_source(const SourceModel& source, FileSystem& source_files, FileSystem& files,
                                const std::string& destination, const PackOptions& options) {
  ProgressBar bar("packing");
  MF_TRY(const PackReport report,
         pack(source, source_files, files, destination, options, [&](const PackProgress& progress) {
           bar.update(progress.done_bytes, progress.kept_bytes, progress.total_bytes);
         }));
  std::string text;
  for (const std::string& note : source.notes()) text += fmt::format("note: {}\n", note);
  std::size_t records = 0;
  for (const ExpertFile& file : report.manifest.experts) records += file.records.size();
  text +=
      fmt::format("{}: {} tensors, {} records, fingerprint {}\n", destination, report.manifest.tensors.size(),
                  with_thousands(records), hex_of(report.manifest.fingerprint));
  text += fmt::format("wrote {}", written(report.written_bytes, bar.seconds()));
  if (report.kept_bytes > 0)
    text += fmt::format("; kept {} of an earlier run", human_bytes(report.kept_bytes));
  return text + "\n";
}

// The virtual files, made real.
Result<std::string> copy_checkpoint(SyntheticCheckpoint& checkpoint, FileSystem& files,
                                    const std::string& destination) {
  MF_TRY(const auto directory, AtomicDirectory::begin(files, destination));
  MF_TRY(const std::uint64_t free, files.free_bytes(directory->path()));
  if (free < checkpoint.total_bytes())
    return Error{ErrorCode::no_space, fmt::format("{}: {} are needed, {} are free", destination,
                                                  human_bytes(checkpoint.total_bytes()), human_bytes(free))};
  ProgressBar bar("writing");
  std::uint64_t done = 0;
  std::vector<std::byte> buffer(4 * kMiB);
  MF_TRY(const std::vector<std::string> names, checkpoint.list(checkpoint.directory()));
  for (const std::string& name : names) {
    MF_TRY(const auto in, checkpoint.open_read(checkpoint.directory() / name));
    MF_TRY(WriteFile * out, directory->create(name));
    MF_TRY(const std::uint64_t size, in->size());
    for (std::uint64_t at = 0; at < size;) {
      const auto part = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), size - at));
      MF_TRY_STATUS(in->read_exactly(at, part));
      MF_TRY_STATUS(out->append(part));
      at += part.size();
      done += part.size();
      bar.update(done, 0, checkpoint.total_bytes());
    }
  }
  MF_TRY_STATUS(directory->commit());
  return fmt::format("{}: {} files, wrote {}\n", destination, names.size(), written(done, bar.seconds()));
}

}  // namespace

Result<std::string> run_pack(FileSystem& files, const PackCommand& command) {
  MF_TRY(const SourceModel source, SourceModel::open(files, command.source));
  return pack_source(source, files, files, command.destination, {command.bits, command.jobs});
}

Result<std::string> run_verify(FileSystem& files, const VerifyCommand& command) {
  MF_TRY(const PackedModel model, PackedModel::open(files, command.path));
  ProgressBar bar("verifying");
  MF_TRY(const VerifyReport report, verify(model, command.jobs, [&](std::uint64_t done, std::uint64_t total) {
           bar.update(done, 0, total);
         }));
  if (report.findings.empty())
    return fmt::format("{}: sound: {} tensors and {} records, {}\n", command.path,
                       with_thousands(report.tensors), with_thousands(report.records),
                       human_bytes(report.bytes));
  constexpr std::size_t kShown = 20;
  std::string text = report.findings[0];
  for (std::size_t i = 1; i < std::min(report.findings.size(), kShown); ++i)
    text += "\nmoeflux: " + report.findings[i];
  if (report.findings.size() > kShown)
    text += fmt::format("\nmoeflux: and {} more", report.findings.size() - kShown);
  return Error{ErrorCode::corrupt_data, text};
}

Result<std::string> run_synth(FileSystem& files, const SynthCommand& command) {
  MF_TRY(const std::string config, shape_config(files, command.shape, {command.layers, command.experts}));
  SyntheticOptions options;
  options.seed = command.seed;
  options.directory = command.shape;
  if (command.source) {
    const auto format = synthetic_format_from_name(*command.source);
    if (!format)
      return Error{ErrorCode::invalid_argument,
                   fmt::format("--source must be mlx, bf16 or fp8, found '{}'", *command.source)};
    options.format = *format;
  }
  MF_TRY(SyntheticCheckpoint checkpoint, SyntheticCheckpoint::make(config, options));
  if (command.source) return copy_checkpoint(checkpoint, files, command.destination);
  MF_TRY(const SourceModel source, SourceModel::open(checkpoint, checkpoint.directory()));
  return pack_source(source, checkpoint, files, command.destination,
                     {std::nullopt, command.jobs, fmt::format("synthetic, seed {}", command.seed)});
}

}  // namespace moeflux::cli
