#include "cli/chosen_model.h"

#include <optional>

#include "cli/progress_bar.h"

namespace moeflux::cli {

Result<ChosenModel> choose_model_with_bar(FileSystem& files, const ModelChoice& choice, const Places& places,
                                          LogSink& log) {
  std::optional<ProgressBar> bar;  // created at the first progress: a packed model needs no bar
  return choose_model(files, choice, places, log, [&](const PackProgress& progress) {
    if (!bar) bar.emplace("packing");
    bar->update(progress.done_bytes, progress.kept_bytes, progress.total_bytes);
  });
}

}  // namespace moeflux::cli
