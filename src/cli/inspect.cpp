#include "cli/inspect.h"

#include <fmt/format.h>

#include "model/packed_model.h"
#include "pack/journal.h"
#include "pack/synthetic_checkpoint.h"
#include "pack/synthetic_shapes.h"
#include "source/matrix_reader.h"
#include "source/source_model.h"

namespace moeflux::cli {
namespace {

Status check_matrix(const SourceModel& model, const std::string& name, const SourceMatrix& matrix,
                    CheckReport& report) {
  MF_TRY_STATUS(decode_rows(model.catalog(), matrix, name,
                            [](std::uint64_t, std::span<const float>) -> Status { return {}; }));
  ++report.matrices;
  report.weights += matrix.rows * matrix.cols;
  return {};
}

// Decodes every weight of the model; the first that is not a finite number, or cannot be read, ends it.
Result<CheckReport> check_weights(const SourceModel& model) {
  CheckReport report;
  for (const NamedMatrix& named : model.resident())
    MF_TRY_STATUS(check_matrix(model, named.name, named.matrix, report));
  for (std::uint32_t i = 0; i < model.config().layers.size(); ++i) {
    const SourceExperts* experts = model.experts(LayerId(i));
    if (experts == nullptr) continue;
    for (std::uint32_t e = 0; e < experts->count(); ++e) {
      const ExpertKey key{LayerId(i), ExpertId(e)};
      const ExpertMatrices expert = experts->expert(key.expert);
      MF_TRY_STATUS(check_matrix(model, expert_matrix_name(key, "gate_proj"), expert.gate, report));
      MF_TRY_STATUS(check_matrix(model, expert_matrix_name(key, "up_proj"), expert.up, report));
      MF_TRY_STATUS(check_matrix(model, expert_matrix_name(key, "down_proj"), expert.down, report));
    }
  }
  return report;
}

std::string render(const ModelSummary& summary, const InspectOptions& options, const CheckReport* checked) {
  return options.json ? render_json(summary, checked) : render_page(summary, checked);
}

Result<std::string> inspect_source(FileSystem& files, const InspectOptions& options) {
  MF_TRY(const SourceModel model, SourceModel::open(files, options.path));
  MF_TRY(const ModelSummary summary, model.summarise());
  if (!options.check) return render(summary, options, nullptr);
  MF_TRY(const CheckReport checked, check_weights(model));
  return render(summary, options, &checked);
}

Result<std::string> inspect_packed(FileSystem& files, const InspectOptions& options) {
  if (options.check)
    return Error{
        ErrorCode::invalid_argument,
        fmt::format("{}: --check is for sources; 'moeflux verify' reads a packed model", options.path)};
  MF_TRY(const PackedModel model, PackedModel::open(files, options.path));
  return render(model.summarise(), options, nullptr);
}

// A published model by its name: what it would be on disk, from its headers alone.
Result<std::string> inspect_shape(FileSystem& files, const InspectOptions& options) {
  MF_TRY(const std::string config, shape_config(files, options.path));
  SyntheticOptions synthetic;
  synthetic.directory = options.path;
  MF_TRY(SyntheticCheckpoint checkpoint, SyntheticCheckpoint::make(config, synthetic));
  MF_TRY(const SourceModel model, SourceModel::open(checkpoint, checkpoint.directory()));
  MF_TRY(ModelSummary summary, model.summarise());
  summary.notes.insert(summary.notes.begin(),
                       "nothing of this is on disk: the shape of the published model, with "
                       "made-up weights in 4 bits");
  return render(summary, options, nullptr);
}

}  // namespace

Result<std::string> inspect(FileSystem& files, const InspectOptions& options) {
  MF_TRY(const bool exists, files.exists(options.path));
  if (!exists && is_builtin_shape(options.path)) return inspect_shape(files, options);
  MF_TRY(const bool packed, PackedModel::is_at(files, options.path));
  if (packed) return inspect_packed(files, options);
  MF_TRY(const bool unfinished, files.exists(std::filesystem::path(options.path) / kJournalName));
  if (unfinished)
    return Error{
        ErrorCode::not_found,
        fmt::format("{}: packing it was interrupted; run the same 'moeflux pack' again", options.path)};
  return inspect_source(files, options);
}

}  // namespace moeflux::cli
