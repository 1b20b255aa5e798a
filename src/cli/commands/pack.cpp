#include "cli/commands/pack.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/sizes.h"
#include "cli/console.h"
#include "cli/flags/shared_flags.h"
#include "cli/progress_bar.h"
#include "model/manifest.h"

namespace moeflux::cli {

std::string written_text(std::uint64_t bytes, double seconds) {
  return fmt::format(
      "{} in {:.1f} s, {}/s", human_bytes(bytes), seconds,
      human_bytes(static_cast<std::uint64_t>(static_cast<double>(bytes) / std::max(seconds, 1e-3))));
}

Result<std::string> pack_with_bar(const SourceModel& source, FileSystem& source_files, FileSystem& files,
                                  const std::string& destination, const PackOptions& options) {
  ProgressBar bar("packing"), comparison("comparing with the packed model");
  MF_TRY(const PackReport report,
         pack(source, source_files, files, destination, options, [&](const PackProgress& progress) {
           (progress.comparing ? comparison : bar)
               .update(progress.done_bytes, progress.kept_bytes, progress.total_bytes);
         }));
  std::string text;
  for (const std::string& note : source.notes()) text += fmt::format("note: {}\n", note);
  std::size_t records = 0;
  for (const ExpertFile& file : report.manifest.experts) records += file.records.size();
  text +=
      fmt::format("{}: {} tensors, {} records, fingerprint {}\n", destination, report.manifest.tensors.size(),
                  with_thousands(records), hex_of(report.manifest.fingerprint));
  if (report.already_packed) return text + "already packed\n";
  text += fmt::format("wrote {}", written_text(report.written_bytes, bar.seconds()));
  if (report.kept_bytes > 0)
    text += fmt::format("; kept {} of an earlier run", human_bytes(report.kept_bytes));
  return text + "\n";
}

Result<std::string> run_pack(FileSystem& files, const PackFlags& flags) {
  MF_TRY(const SourceModel source, SourceModel::open(files, flags.source, {.use_2bit = flags.use_2bit}));
  return pack_with_bar(source, files, files, flags.destination, {flags.bits, flags.jobs});
}

Command add_pack(CLI::App& program) {
  CLI::App* const parser = program.add_subcommand("pack", "Turn a checkpoint into a packed model");
  const auto flags = std::make_shared<PackFlags>();
  parser->add_option("SRC", flags->source, "A checkpoint, as 'inspect' takes it")->required();
  parser->add_option("DST", flags->destination, "The directory to write; an interrupted pack is continued")
      ->required();
  parser->add_option("--bits", flags->bits,
                     "BF16 and FP8 sources: 4, 8, or 16 to keep BF16 (default: 4 for BF16,\n"
                     "FP8 as it is)");
  parser->add_flag("--use-2bit", flags->use_2bit,
                   "The original's artifacts: take packed_experts_2bit even if there is\n"
                   "packed_experts");
  add_jobs_flag(*parser, flags->jobs);
  return {parser, [flags](const Shell& shell) { return finish(run_pack(shell.files, *flags)); }};
}

}  // namespace moeflux::cli
