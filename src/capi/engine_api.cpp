#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "base/overloaded.h"
#include "capi/boundary.h"
#include "capi/handles.h"
#include "engine/options/option_table.h"
#include "io/posix_file_system.h"

namespace moeflux {
namespace {

// Sizes of the first versions. Later fields come after these and do not change them.
constexpr std::size_t kFirstEngineOptions = offsetof(mf_engine_options, expert_cache_bytes);
constexpr std::size_t kFirstEngineInfo = offsetof(mf_engine_info, expert_slots);
constexpr std::size_t kFirstExpertStatistics = sizeof(mf_expert_statistics);
constexpr std::size_t kFirstEngineStatistics = sizeof(mf_engine_statistics);
constexpr std::size_t kFirstStepOptions = offsetof(mf_step_options, replace_residual);

// A new StepPoint does not compile until it has a number in moeflux.h.
mf_step_point point_of(StepPoint point) {
  switch (point) {
    case StepPoint::embedding: return MF_EMBEDDING;
    case StepPoint::normed: return MF_NORMED;
    case StepPoint::mixed: return MF_MIXED;
    case StepPoint::mlp_normed: return MF_MLP_NORMED;
    case StepPoint::router_logits: return MF_ROUTER_LOGITS;
    case StepPoint::routed: return MF_ROUTED;
    case StepPoint::shared: return MF_SHARED;
    case StepPoint::shared_gate: return MF_SHARED_GATE;
    case StepPoint::residual: return MF_RESIDUAL;
    case StepPoint::final_norm: return MF_FINAL_NORM;
  }
  return MF_RESIDUAL;
}

// Where each engine option is in mf_engine_options. An option that has no field there does not compile.
using Field = std::variant<std::uint32_t mf_engine_options::*, std::uint64_t mf_engine_options::*,
                           const char * mf_engine_options::*>;
constexpr std::array<Field, kEngineOptionCount> kFields{{
#define MF_FIELD(name) &mf_engine_options::name,
    MF_ENGINE_OPTIONS(MF_FIELD)
#undef MF_FIELD
}};
#define MF_FIELD_SIZE(name) +sizeof(mf_engine_options::name)
static_assert(sizeof(mf_engine_options) == sizeof(mf_engine_options::struct_size) +
                                               sizeof(mf_engine_options::packed_model)
                                                   MF_ENGINE_OPTIONS(MF_FIELD_SIZE),
              "every other field of mf_engine_options is in the table of engine options");
#undef MF_FIELD_SIZE
static_assert(kDefaultContext == 8192 && kDefaultStepRows == 512, "moeflux.h names them");

Status set_text(EngineOptions& options, const EngineOption& option, const char* text) {
  return text == nullptr ? Status() : std::get<TextOption>(option.kind).set(options, text);
}

mf_engine_info info_of(const Engine& engine) {
  mf_engine_info info{};
  info.vocabulary = engine.config().vocabulary;
  info.context = engine.options().context;
  info.max_positions = engine.config().max_positions;
  info.layers = static_cast<std::uint32_t>(engine.config().layers.size());
  info.dim = engine.config().dim;
  info.experts_per_token = engine.options().experts_per_token;
  info.step_rows = engine.options().step_rows;
  info.threads = engine.threads();
  info.end_tokens = static_cast<std::uint32_t>(engine.config().end_tokens.size());
  info.isa = engine.options().isa.c_str();
  info.family = name_of(engine.config().family).data();
  info.expert_slots = engine.streaming().slots;
  info.expert_records = engine.streaming().records;
  info.drive = engine.streaming().drive.c_str();
  return info;
}

mf_expert_statistics statistics_of(const ExpertStatistics& found) {
  static_assert(sizeof(ExpertStatistics) == sizeof(mf_expert_statistics) - 2 * sizeof(std::uint32_t),
                "every field of moeflux.h is filled");
  mf_expert_statistics statistics{};
#define MF_COUNTER(name) statistics.name = found.name;
  MF_EXPERT_COUNTERS(MF_COUNTER)
#undef MF_COUNTER
#define MF_TIME(name) statistics.name##_ns = static_cast<std::uint64_t>(found.name.count());
  MF_EXPERT_TIMES(MF_TIME)
#undef MF_TIME
  return statistics;
}

mf_engine_statistics statistics_of(const EngineStatistics& found) {
  mf_engine_statistics statistics{};
  statistics.steps = found.steps.steps;
  statistics.rows = found.steps.rows;
  statistics.failed_steps = found.steps.failed;
  statistics.cancelled_steps = found.steps.cancelled;
  statistics.stepping_ns = static_cast<std::uint64_t>(found.steps.took.count());
  statistics.kv_used_bytes = found.states.used_bytes;
  statistics.kv_allocated_bytes = found.states.slab_bytes;
  if (found.states.budget_bytes != BlockPool::kNoBudget)
    statistics.kv_budget_bytes = found.states.budget_bytes;
  return statistics;
}

// A new Residency does not compile until it has a number in moeflux.h.
mf_expert_state state_of(Residency state) {
  switch (state) {
    case Residency::absent: return MF_EXPERT_ABSENT;
    case Residency::loading: return MF_EXPERT_LOADING;
    case Residency::ready: return MF_EXPERT_READY;
  }
  return MF_EXPERT_ABSENT;
}

// Requires: `out` has room for every record.
void copy_out(const ResidencyMap& map, mf_expert_residency* out) {
  for (std::uint32_t layer = 0; layer < map.layers(); ++layer)
    for (std::uint32_t expert = 0; expert < map.experts(LayerId(layer)); ++expert) {
      const ExpertResidency found = map.of(LayerId(layer), ExpertId(expert));
      *out++ = {layer, expert, state_of(found.state), found.is_speculative ? 1u : 0u, found.last_use};
    }
}

// Fills the caller's struct with `found`, up to the size that the caller knows.
template <class Struct>
Status copy_out(Struct found, std::string_view name, std::size_t first_size, Struct* out) {
  const std::uint32_t size = out->struct_size;
  if (size < first_size) return wrong_struct_size(name, sizeof(Struct), size);
  found.struct_size = size;
  std::memcpy(out, &found, std::min<std::size_t>(size, sizeof(found)));
  return {};
}

// `tokens` gets the ids that the segment refers to.
Result<Segment> segment_of(const mf_segment& given, const Engine& engine, std::vector<TokenId>& tokens) {
  if (given.session == nullptr) return null_argument("session");
  if (&given.session->session.engine() != &engine)
    return Error(ErrorCode::invalid_argument, "a session is of another engine");
  if (given.tokens == nullptr) return null_argument("tokens");
  for (const std::uint32_t token : std::span(given.tokens, given.count)) tokens.emplace_back(token);
  Segment segment{&given.session->session, tokens, WantedLogits::none, {}};
  switch (given.logits) {
    case MF_LOGITS_NONE: break;
    case MF_LOGITS_LAST: segment.logits = WantedLogits::last; break;
    case MF_LOGITS_ALL: segment.logits = WantedLogits::all; break;
    default:
      return Error(ErrorCode::invalid_argument,
                   fmt::format("{} is none of MF_LOGITS_*", static_cast<int>(given.logits)));
  }
  const std::size_t rows = segment.logits_rows();
  if (rows > 0 && given.out == nullptr) return null_argument("out");
  if (rows > 0) segment.out = {given.out, rows * engine.config().vocabulary};
  return segment;
}

struct BatchOfC {
  std::vector<std::vector<TokenId>> tokens;
  std::vector<Segment> segments;

  static Result<BatchOfC> read(const mf_engine* engine, const mf_segment* given, std::size_t count) {
    if (engine == nullptr) return null_argument("engine");
    if (given == nullptr && count > 0) return null_argument("segments");
    BatchOfC batch;
    batch.tokens.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      MF_TRY(const Segment segment, segment_of(given[i], *engine->engine, batch.tokens[i]));
      batch.segments.push_back(segment);
    }
    return batch;
  }
};

}  // namespace

Result<mf_engine_options> read_engine_options(const mf_engine_options* given) {
  return read_options(given, "mf_engine_options", kFirstEngineOptions);
}

Result<EngineOptions> engine_options_of(const mf_engine_options& known) {
  EngineOptions options;
  for (const EngineOption& option : kEngineOptions) {
    Status set = std::visit(
        overloaded{
            [&](const char* mf_engine_options::*text) { return set_text(options, option, known.*text); },
            [&](auto number) { return set_option(options, option, known.*number); },
        },
        kFields[static_cast<std::size_t>(option.id)]);
    if (!set) return std::move(set).error().during(option.name);
  }
  return options;
}

Result<mf_step_options> read_step_options(const mf_step_options* given) {
  return read_options(given, "mf_step_options", kFirstStepOptions);
}

StepOptions StepOptionsOfC::get() {
  StepOptions options;
  if (options_.observer != nullptr || options_.route_observer != nullptr ||
      options_.replace_residual != nullptr)
    options.observer = &observer_;
  if (options_.cancel != nullptr) options.cancel = &options_.cancel->requested;
  return options;
}

void StepOptionsOfC::Observer::saw(StepPoint point, LayerId layer, std::span<const float> rows,
                                   std::uint32_t cols) {
  if (options_.observer == nullptr) return;
  options_.observer(options_.user, point_of(point), layer.index(), rows.data(),
                    static_cast<std::uint32_t>(rows.size() / cols), cols);
}

void StepOptionsOfC::Observer::chose(LayerId layer, std::span<const std::uint32_t> experts,
                                     std::span<const float> weights, std::uint32_t experts_per_token) {
  if (options_.route_observer == nullptr) return;
  options_.route_observer(options_.user, layer.index(), experts.data(), weights.data(),
                          static_cast<std::uint32_t>(experts.size() / experts_per_token), experts_per_token);
}

bool StepOptionsOfC::Observer::replace_residual(LayerId layer, std::span<float> rows, std::uint32_t cols) {
  return options_.replace_residual != nullptr &&
         options_.replace_residual(options_.user, layer.index(), rows.data(),
                                   static_cast<std::uint32_t>(rows.size() / cols), cols) != 0;
}

}  // namespace moeflux

using namespace moeflux;

mf_status mf_engine_open(const mf_engine_options* options, mf_engine** engine, mf_message* why) {
  return at_boundary(why, [&]() -> Status {
    if (engine == nullptr) return null_argument("engine");
    *engine = nullptr;
    if (options == nullptr) return null_argument("options");
    MF_TRY(const mf_engine_options known, read_engine_options(options));
    if (known.packed_model == nullptr) return null_argument("packed_model");
    MF_TRY(const EngineOptions wanted, engine_options_of(known));
    PosixFileSystem files;
    MF_TRY(PackedModel model, PackedModel::open(files, known.packed_model));
    MF_TRY(auto opened, Engine::open(files, std::move(model), wanted));
    *engine = new mf_engine{std::move(opened)};
    return {};
  });
}

void mf_engine_close(mf_engine* engine) { delete engine; }

mf_status mf_engine_get_info(const mf_engine* engine, mf_engine_info* info, mf_message* why) {
  return at_boundary(why, [&]() -> Status {
    if (engine == nullptr) return null_argument("engine");
    if (info == nullptr) return null_argument("info");
    return copy_out(info_of(*engine->engine), "mf_engine_info", kFirstEngineInfo, info);
  });
}

mf_status mf_engine_get_expert_statistics(const mf_engine* engine, mf_expert_statistics* statistics,
                                          mf_message* why) {
  return at_boundary(why, [&]() -> Status {
    if (engine == nullptr) return null_argument("engine");
    if (statistics == nullptr) return null_argument("statistics");
    return copy_out(statistics_of(engine->engine->expert_statistics()), "mf_expert_statistics",
                    kFirstExpertStatistics, statistics);
  });
}

mf_status mf_engine_get_statistics(const mf_engine* engine, mf_engine_statistics* statistics,
                                   mf_message* why) {
  return at_boundary(why, [&]() -> Status {
    if (engine == nullptr) return null_argument("engine");
    if (statistics == nullptr) return null_argument("statistics");
    return copy_out(statistics_of(engine->engine->statistics()), "mf_engine_statistics",
                    kFirstEngineStatistics, statistics);
  });
}

mf_status mf_engine_get_residency(const mf_engine* engine, mf_expert_residency* experts, size_t room,
                                  size_t* count, mf_message* why) {
  return at_boundary(why, [&]() -> Status {
    if (count == nullptr) return null_argument("count");
    *count = 0;
    if (engine == nullptr) return null_argument("engine");
    if (experts == nullptr && room > 0) return null_argument("experts");
    const ResidencyMap& map = engine->engine->residency();
    *count = map.records();
    if (*count > room)
      return Error(ErrorCode::buffer_too_small,
                   fmt::format("there is room for {} experts, and there are {}", room, *count));
    copy_out(map, experts);
    return {};
  });
}

int32_t mf_engine_end_token(const mf_engine* engine, uint32_t index) {
  if (engine == nullptr) return -1;
  const auto& tokens = engine->engine->config().end_tokens;
  return index < tokens.size() ? static_cast<std::int32_t>(tokens[index].index()) : -1;
}

mf_status mf_engine_step(mf_engine* engine, const mf_segment* segments, size_t count,
                         const mf_step_options* options, mf_message* why) {
  return at_boundary(why, [&]() -> Status {
    MF_TRY(const mf_step_options known, read_step_options(options));
    StepOptionsOfC step(known);
    MF_TRY(const BatchOfC batch, BatchOfC::read(engine, segments, count));
    MF_TRY_STATUS(engine->engine->step(batch.segments, step.get()));
    return {};
  });
}

mf_status mf_engine_step_each(mf_engine* engine, const mf_segment* segments, size_t count,
                              const mf_cancel* const* cancels, const mf_step_options* options,
                              mf_outcome* outcomes, mf_message* why) {
  return at_boundary(why, [&]() -> Status {
    if (outcomes == nullptr && count > 0) return null_argument("outcomes");
    MF_TRY(const mf_step_options known, read_step_options(options));
    StepOptionsOfC step(known);
    MF_TRY(BatchOfC batch, BatchOfC::read(engine, segments, count));
    for (std::size_t i = 0; i < count && cancels != nullptr; ++i)
      if (cancels[i] != nullptr) batch.segments[i].cancel = &cancels[i]->requested;
    std::vector<Status> found(count);
    MF_TRY_STATUS(engine->engine->step_each(batch.segments, found, step.get()));
    for (std::size_t i = 0; i < count; ++i) {
      outcomes[i] = {};
      if (!found[i])
        outcomes[i].status =
            fail(&outcomes[i].why, status_of(found[i].error().code()), found[i].error().message());
    }
    return {};
  });
}

const char* mf_step_point_name(mf_step_point point) {
  for (int i = 0; i <= static_cast<int>(StepPoint::final_norm); ++i)
    if (point_of(static_cast<StepPoint>(i)) == point) return name_of(static_cast<StepPoint>(i)).data();
  return "unknown";
}

mf_cancel* mf_cancel_new(void) { return new (std::nothrow) mf_cancel; }
void mf_cancel_request(mf_cancel* cancel) {
  if (cancel != nullptr) cancel->requested = true;
}
void mf_cancel_reset(mf_cancel* cancel) {
  if (cancel != nullptr) cancel->requested = false;
}
void mf_cancel_free(mf_cancel* cancel) { delete cancel; }
