#pragma once
// The opaque handles of moeflux.h, and the conversion of C structs to the library's.
//
// A session holds its engine, so handles may be released in any order. Threads: as in moeflux.h.

#include <moeflux.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"
#include "engine/session.h"
#include "generation/model_text.h"
#include "layers/step_observer.h"

struct mf_engine {
  std::shared_ptr<moeflux::Engine> engine;
};

struct mf_session {
  explicit mf_session(moeflux::Session started) : session(std::move(started)) {}
  moeflux::Session session;
};

struct mf_text {
  explicit mf_text(moeflux::ModelText opened) : text(std::move(opened)) {}
  moeflux::ModelText text;
};

// An engine with one session, as handles that C code can use too.
struct mf_ctx {
  mf_ctx(std::shared_ptr<moeflux::Engine> opened, moeflux::Session started, std::string called)
      : engine{std::move(opened)}, session(std::move(started)), name(std::move(called)) {}
  mf_engine engine;
  mf_session session;
  const std::string name;
  moeflux::ExpertStatistics counted_from;  // subtracted by mf_prefetch_stats
  mutable mf_message last = {};
};

struct mf_cancel {
  std::atomic<bool> requested = false;
};

namespace moeflux {

// The options of a step and the observer that they need. Not movable: it points into itself.
class StepOptionsOfC {
 public:
  explicit StepOptionsOfC(const mf_step_options& options) : observer_(options), options_(options) {}
  StepOptionsOfC(const StepOptionsOfC&) = delete;
  StepOptionsOfC& operator=(const StepOptionsOfC&) = delete;

  StepOptions get();

 private:
  class Observer final : public StepObserver {
   public:
    explicit Observer(const mf_step_options& options) : options_(options) {}
    void saw(StepPoint point, LayerId layer, std::span<const float> rows, std::uint32_t cols) override;
    void chose(LayerId layer, std::span<const std::uint32_t> experts, std::span<const float> weights,
               std::uint32_t experts_per_token) override;
    bool replace_residual(LayerId layer, std::span<float> rows, std::uint32_t cols) override;

   private:
    const mf_step_options options_;
  };

  Observer observer_;
  const mf_step_options options_;
};

// context_full unless `count` more tokens fit. Checked before any of them is read or run.
Status expect_room(const Session& session, std::size_t count);

// `given` may be null, which means that every field is 0.
Result<mf_engine_options> read_engine_options(const mf_engine_options* given);
// Requires: `known` is from read_engine_options(). Does not look at packed_model.
Result<EngineOptions> engine_options_of(const mf_engine_options& known);

Result<mf_step_options> read_step_options(const mf_step_options* given);

}  // namespace moeflux
