#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "base/printable.h"
#include "capi/border.h"
#include "capi/handles.h"
#include "io/drive.h"
#include "io/posix_file_system.h"

namespace moeflux {
namespace {

// The sizes of the first version. A field that is added later comes after these, and leaves them as they are.
constexpr std::size_t kFirstEngineOptions = offsetof(mf_engine_options, expert_cache_bytes);
constexpr std::size_t kFirstEngineInfo = offsetof(mf_engine_info, expert_slots);
constexpr std::size_t kFirstExpertStatistics = sizeof(mf_expert_statistics);
constexpr std::size_t kFirstStepOptions = sizeof(mf_step_options);

// A new StepPoint does not compile before it has a number in moeflux.h.
mf_step_point point_of(StepPoint point) {
  switch (point) {
    case StepPoint::embedding: return MF_EMBEDDING;
    case StepPoint::normed: return MF_NORMED;
    case StepPoint::mixed: return MF_MIXED;
    case StepPoint::mlp_normed: return MF_MLP_NORMED;
    case StepPoint::router_logits: return MF_ROUTER_LOGITS;
    case StepPoint::routed: return MF_ROUTED;
    case StepPoint::shared: return MF_SHARED;
    case StepPoint::residual: return MF_RESIDUAL;
    case StepPoint::final_norm: return MF_FINAL_NORM;
  }
  return MF_RESIDUAL;
}

Status take_streaming(const mf_engine_options& given, EngineOptions& options) {
  options.expert_cache_bytes = given.expert_cache_bytes;
  if (given.io != nullptr) {
    Result<DriveChoice> drive = parse_drive_choice(given.io);
    if (!drive) return std::move(drive).error().during("io");
    options.drive = *drive;
  }
  if (given.prefetch != MF_PREFETCH_PREVIOUS && given.prefetch != MF_PREFETCH_OFF)
    return Error(ErrorCode::invalid_argument, fmt::format("{} is none of MF_PREFETCH_*", given.prefetch));
  options.prefetches = given.prefetch != MF_PREFETCH_OFF;
  options.verifies_reads = given.verify_reads != 0;
  return {};
}

Status take_numerics(const mf_engine_options& given, EngineOptions& options) {
  const auto take = [](const char* name, auto names, auto& value, std::string_view what) -> Status {
    if (name == nullptr) return {};
    for (const auto one : names)
      if (name_of(one) == name) {
        value = one;
        return {};
      }
    return Error(ErrorCode::invalid_argument, fmt::format("'{}' is no {}", printable(name), what));
  };
  MF_TRY_STATUS(take(given.precision, std::array{Precision::exact, Precision::fast}, options.precision,
                     "precision: \"exact\" or \"fast\""));
  return take(given.kv_numbers, std::array{KvNumbers::f32, KvNumbers::bf16, KvNumbers::int8},
              options.kv_numbers, "kind of keys and values: \"f32\", \"bf16\" or \"int8\"");
}

Result<EngineOptions> options_of(const mf_engine_options& given) {
  EngineOptions options;
  if (given.isa != nullptr) options.isa = given.isa;
  options.threads = given.threads;
  options.context = given.context;
  if (given.step_rows != 0) options.step_rows = given.step_rows;
  options.experts_per_token = given.experts_per_token;
  if (given.kv_budget_bytes != 0) options.kv_budget_bytes = given.kv_budget_bytes;
  options.usable_memory_bytes = given.usable_memory_bytes;
  MF_TRY_STATUS(take_streaming(given, options));
  MF_TRY_STATUS(take_numerics(given, options));
  return options;
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
                "every counter has a field in moeflux.h");
  const auto nanoseconds = [](std::chrono::nanoseconds time) {
    return static_cast<std::uint64_t>(time.count());
  };
  mf_expert_statistics statistics{};
  statistics.hits = found.hits;
  statistics.misses = found.misses;
  statistics.late = found.late;
  statistics.reads = found.reads;
  statistics.demanded_bytes = found.demanded_bytes;
  statistics.speculated_bytes = found.speculated_bytes;
  statistics.filled_bytes = found.filled_bytes;
  statistics.useful_bytes = found.useful_bytes;
  statistics.late_bytes = found.late_bytes;
  statistics.wasted_bytes = found.wasted_bytes;
  statistics.useful_guesses = found.useful_guesses;
  statistics.late_guesses = found.late_guesses;
  statistics.wrong_guesses = found.wrong_guesses;
  statistics.waiting_ns = nanoseconds(found.waiting);
  statistics.reading_ns = nanoseconds(found.reading);
  return statistics;
}

// Fills a struct of the caller's with `found`, as far as the caller knows it.
template <class Struct>
Status hand_out(Struct found, std::string_view name, std::size_t first_size, Struct* out) {
  const std::uint32_t size = out->struct_size;
  if (size < first_size) return wrong_struct_size(name, sizeof(Struct), size);
  found.struct_size = size;
  std::memcpy(out, &found, std::min<std::size_t>(size, sizeof(found)));
  return {};
}

// `tokens` keeps what the segment refers to.
Result<Segment> segment_of(const mf_segment& given, const Engine& engine, std::vector<TokenId>& tokens) {
  if (given.session == nullptr) return null_argument("session");
  if (&given.session->session.engine() != &engine)
    return Error(ErrorCode::invalid_argument, "a session is of another engine");
  if (given.tokens == nullptr) return null_argument("tokens");
  for (const std::uint32_t token : std::span(given.tokens, given.count)) tokens.emplace_back(token);
  Segment segment{&given.session->session, tokens, WantedLogits::none, {}};
  std::size_t rows = 0;
  switch (given.logits) {
    case MF_LOGITS_NONE: break;
    case MF_LOGITS_LAST:
      segment.logits = WantedLogits::last;
      rows = 1;
      break;
    case MF_LOGITS_ALL:
      segment.logits = WantedLogits::all;
      rows = given.count;
      break;
    default:
      return Error(ErrorCode::invalid_argument,
                   fmt::format("{} is none of MF_LOGITS_*", static_cast<int>(given.logits)));
  }
  if (rows > 0 && given.out == nullptr) return null_argument("out");
  if (rows > 0) segment.out = {given.out, rows * engine.config().vocabulary};
  return segment;
}

}  // namespace

Result<mf_step_options> read_step_options(const mf_step_options* given) {
  return read_options(given, "mf_step_options", kFirstStepOptions);
}

StepOptions StepOptionsOfC::get() {
  StepOptions options;
  if (options_.observer != nullptr || options_.route_observer != nullptr) options.observer = &observer_;
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

}  // namespace moeflux

using namespace moeflux;

mf_status mf_engine_open(const mf_engine_options* options, mf_engine** engine, mf_message* why) {
  return at_the_border(why, [&]() -> Status {
    if (engine == nullptr) return null_argument("engine");
    *engine = nullptr;
    if (options == nullptr) return null_argument("options");
    MF_TRY(const mf_engine_options known, read_options(options, "mf_engine_options", kFirstEngineOptions));
    if (known.packed_model == nullptr) return null_argument("packed_model");
    MF_TRY(const EngineOptions wanted, options_of(known));
    PosixFileSystem files;
    MF_TRY(auto opened, Engine::open(files, known.packed_model, wanted));
    *engine = new mf_engine{std::move(opened)};
    return {};
  });
}

void mf_engine_close(mf_engine* engine) { delete engine; }

mf_status mf_engine_get_info(const mf_engine* engine, mf_engine_info* info, mf_message* why) {
  return at_the_border(why, [&]() -> Status {
    if (engine == nullptr) return null_argument("engine");
    if (info == nullptr) return null_argument("info");
    return hand_out(info_of(*engine->engine), "mf_engine_info", kFirstEngineInfo, info);
  });
}

mf_status mf_engine_get_expert_statistics(const mf_engine* engine, mf_expert_statistics* statistics,
                                          mf_message* why) {
  return at_the_border(why, [&]() -> Status {
    if (engine == nullptr) return null_argument("engine");
    if (statistics == nullptr) return null_argument("statistics");
    return hand_out(statistics_of(engine->engine->expert_statistics()), "mf_expert_statistics",
                    kFirstExpertStatistics, statistics);
  });
}

int32_t mf_engine_end_token(const mf_engine* engine, uint32_t index) {
  if (engine == nullptr) return -1;
  const auto& tokens = engine->engine->config().end_tokens;
  return index < tokens.size() ? static_cast<std::int32_t>(tokens[index].index()) : -1;
}

mf_status mf_engine_step(mf_engine* engine, const mf_segment* segments, size_t count,
                         const mf_step_options* options, mf_message* why) {
  return at_the_border(why, [&]() -> Status {
    if (engine == nullptr) return null_argument("engine");
    if (segments == nullptr && count > 0) return null_argument("segments");
    MF_TRY(const mf_step_options known, read_step_options(options));
    StepOptionsOfC step(known);
    std::vector<std::vector<TokenId>> tokens(count);
    std::vector<Segment> batch;
    for (std::size_t i = 0; i < count; ++i) {
      MF_TRY(const Segment segment, segment_of(segments[i], *engine->engine, tokens[i]));
      batch.push_back(segment);
    }
    MF_TRY_STATUS(engine->engine->step(batch, step.get()));
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
