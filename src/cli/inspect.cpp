#include "cli/inspect.h"

#include <map>

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

}  // namespace

Result<std::string> inspect(FileSystem& files, const InspectOptions& options) {
  MF_TRY(const SourceModel model, SourceModel::open(files, options.path));
  MF_TRY(const ModelSummary summary, model.summarise());
  std::optional<CheckReport> checked;
  if (options.check) {
    MF_TRY(checked, check_weights(model));
  }
  const CheckReport* report = checked ? &*checked : nullptr;
  return options.json ? render_json(summary, report) : render_page(summary, report);
}

}  // namespace moeflux::cli
