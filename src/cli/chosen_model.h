#pragma once
// choose_model() of library/model_choice.h with a progress bar, for commands that run a model. One thread at
// a time.

#include "base/log.h"
#include "base/result.h"
#include "io/file_system.h"
#include "library/model_choice.h"

namespace moeflux::cli {

Result<ChosenModel> choose_model_with_bar(FileSystem& files, const ModelChoice& choice, const Places& places,
                                          LogSink& log);

}  // namespace moeflux::cli
