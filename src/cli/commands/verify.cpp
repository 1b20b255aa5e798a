#include "cli/commands/verify.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/sizes.h"
#include "cli/console.h"
#include "cli/flags/shared_flags.h"
#include "cli/progress_bar.h"
#include "model/packed_model.h"
#include "pack/verify.h"

namespace moeflux::cli {

Result<std::string> run_verify(FileSystem& files, const VerifyFlags& flags) {
  MF_TRY(const PackedModel model, PackedModel::open(files, flags.path));
  ProgressBar bar("verifying");
  MF_TRY(const VerifyReport report, verify(model, flags.jobs, [&](std::uint64_t done, std::uint64_t total) {
           bar.update(done, 0, total);
         }));
  if (report.findings.empty())
    return fmt::format("{}: sound: {} tensors and {} records, {}\n", flags.path,
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

Command add_verify(CLI::App& program) {
  CLI::App* const parser = program.add_subcommand("verify", "Read a packed model and compare every checksum");
  const auto flags = std::make_shared<VerifyFlags>();
  parser->add_option("PATH", flags->path, "A packed model")->required();
  add_jobs_flag(*parser, flags->jobs);
  return {parser, [flags](const Shell& shell) { return finish(run_verify(shell.files, *flags)); }};
}

}  // namespace moeflux::cli
