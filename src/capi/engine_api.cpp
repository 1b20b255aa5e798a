#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

#include "capi/border.h"
#include "capi/handles.h"
#include "io/posix_file_system.h"

namespace moeflux {
namespace {

// The sizes of the first version. A field that is added later comes after these, and leaves them as they are.
constexpr std::size_t kFirstEngineOptions = sizeof(mf_engine_options);
constexpr std::size_t kFirstEngineInfo = sizeof(mf_engine_info);
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

EngineOptions options_of(const mf_engine_options& given) {
  EngineOptions options;
  if (given.isa != nullptr) options.isa = given.isa;
  options.threads = given.threads;
  options.context = given.context;
  if (given.step_rows != 0) options.step_rows = given.step_rows;
  options.experts_per_token = given.experts_per_token;
  if (given.kv_budget_bytes != 0) options.kv_budget_bytes = given.kv_budget_bytes;
  options.usable_memory_bytes = given.usable_memory_bytes;
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
  return info;
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
    PosixFileSystem files;
    MF_TRY(auto opened, Engine::open(files, known.packed_model, options_of(known)));
    *engine = new mf_engine{std::move(opened)};
    return {};
  });
}

void mf_engine_close(mf_engine* engine) { delete engine; }

mf_status mf_engine_get_info(const mf_engine* engine, mf_engine_info* info, mf_message* why) {
  return at_the_border(why, [&]() -> Status {
    if (engine == nullptr) return null_argument("engine");
    if (info == nullptr) return null_argument("info");
    const std::uint32_t size = info->struct_size;
    if (size < kFirstEngineInfo) return wrong_struct_size("mf_engine_info", sizeof(mf_engine_info), size);
    mf_engine_info known = info_of(*engine->engine);
    known.struct_size = size;
    std::memcpy(info, &known, std::min<std::size_t>(size, sizeof(known)));
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
