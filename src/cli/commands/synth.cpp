#include "cli/commands/synth.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "base/sizes.h"
#include "cli/commands/pack.h"
#include "cli/console.h"
#include "cli/flags/shared_flags.h"
#include "cli/progress_bar.h"
#include "io/atomic_directory.h"
#include "pack/synthetic/checkpoint.h"
#include "pack/synthetic/shapes.h"

namespace moeflux::cli {
namespace {

// Writes the files of a synthetic checkpoint to disk.
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
  return fmt::format("{}: {} files, wrote {}\n", destination, names.size(),
                     written_text(done, bar.seconds()));
}

}  // namespace

Result<std::string> run_synth(FileSystem& files, const SynthFlags& flags) {
  MF_TRY(const std::string config, shape_config(files, flags.shape, {flags.layers, flags.experts}));
  SyntheticOptions options;
  options.seed = flags.seed;
  options.directory = flags.shape;
  if (flags.source) {
    const auto format = synthetic_format_from_name(*flags.source);
    if (!format)
      return Error{ErrorCode::invalid_argument,
                   fmt::format("--source must be mlx, bf16 or fp8, found '{}'", *flags.source)};
    options.format = *format;
  }
  MF_TRY(SyntheticCheckpoint checkpoint, SyntheticCheckpoint::make(config, options));
  if (flags.source) return copy_checkpoint(checkpoint, files, flags.destination);
  MF_TRY(const SourceModel source, SourceModel::open(checkpoint, checkpoint.directory()));
  return pack_with_bar(source, checkpoint, files, flags.destination,
                       {std::nullopt, flags.jobs, fmt::format("synthetic, seed {}", flags.seed)});
}

Command add_synth(CLI::App& program) {
  CLI::App* const parser =
      program.add_subcommand("synth", "Write a model of a published shape with random weights");
  const auto flags = std::make_shared<SynthFlags>();
  parser
      ->add_option("SHAPE", flags->shape,
                   fmt::format("{}, or a config.json", fmt::join(builtin_shapes(), ", ")))
      ->required();
  parser->add_option("DST", flags->destination, "The directory to write")->required();
  parser->add_option("--layers", flags->layers, "Number of layers (default: the shape's)");
  parser->add_option("--experts", flags->experts, "Experts per layer (default: the shape's)");
  parser->add_option("--seed", flags->seed, "Seed of the weights (default 0)");
  parser->add_option("--source", flags->source, "mlx, bf16 or fp8: source files, not a packed model");
  add_jobs_flag(*parser, flags->jobs);
  return {parser, [flags](const Shell& shell) { return finish(run_synth(shell.files, *flags)); }};
}

}  // namespace moeflux::cli
