#pragma once
// What the opaque handles of moeflux.h are, and how the structs of C become those of the library.
//
// A session holds its engine, so handles may be given back in any order. Threads: as moeflux.h says.

#include <moeflux.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"
#include "engine/engine.h"
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

// An engine with one session.
struct mf_ctx {
  mf_ctx(moeflux::Session started, std::string called)
      : session(std::move(started)), name(std::move(called)) {}
  moeflux::Session session;
  const std::string name;
  moeflux::ExpertStatistics counted_from;  // what mf_prefetch_stats leaves out
  mutable mf_message last = {};
};

struct mf_cancel {
  std::atomic<bool> requested = false;
};

namespace moeflux {

// The options of a step, with the observer that they make necessary. Stays where it is: it points into
// itself.
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
    bool replace_residual(LayerId, std::span<float>, std::uint32_t) override { return false; }

   private:
    const mf_step_options options_;
  };

  Observer observer_;
  const mf_step_options options_;
};

// context_full unless `count` more tokens fit: known before any of them is looked at or run.
Status expect_room(const Session& session, std::size_t count);

Result<mf_step_options> read_step_options(const mf_step_options* given);

}  // namespace moeflux
