// The original's functions, on an engine with one session.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "capi/boundary.h"
#include "capi/handles.h"
#include "capi/saving.h"
#include "io/posix_file_system.h"
#include "library/originals.h"
#include "model/packed_model.h"

namespace moeflux {
namespace {

// Gets the message of a failure without a context.
thread_local mf_message last_without_context = {};

mf_message* last_of(const mf_ctx* ctx) { return ctx != nullptr ? &ctx->last : &last_without_context; }

// Runs `call` on the session of a context.
template <class Context, class Call>
mf_status on_context(Context* ctx, Call call) {
  return at_boundary(last_of(ctx), [&]() -> Status {
    if (ctx == nullptr) return null_argument("ctx");
    return call(ctx->session.session);
  });
}

Status expect_sequence(int seq_id) {
  if (seq_id == 0 || seq_id == -1) return {};
  return Error(ErrorCode::invalid_argument, fmt::format("seq_id {}: a context has one sequence, 0", seq_id));
}

Status expect_position(const Session& session, std::size_t position) {
  constexpr std::size_t kMost = std::numeric_limits<std::uint32_t>::max();
  return session.expect_position(static_cast<std::uint32_t>(std::min(position, kMost)));
}

Status eval(Session& session, std::span<const std::int32_t> tokens, std::size_t position, int seq_id,
            float* logits) {
  MF_TRY_STATUS(expect_sequence(seq_id));
  if (tokens.empty()) return {};
  if (logits == nullptr) return null_argument("logits");
  MF_TRY_STATUS(expect_position(session, position));
  MF_TRY_STATUS(expect_room(session, tokens.size()));
  std::vector<TokenId> ids;
  ids.reserve(tokens.size());
  for (const std::int32_t token : tokens) {
    if (token < 0) return Error(ErrorCode::token_out_of_range, fmt::format("token {} is negative", token));
    ids.emplace_back(static_cast<std::uint32_t>(token));
  }
  MF_TRY_STATUS(session.extend(ids, {logits, session.engine().config().vocabulary}));
  return {};
}

Status remove_range(Session& session, int seq_id, int p0, int p1) {
  MF_TRY_STATUS(expect_sequence(seq_id));
  const std::uint32_t length = session.position();
  const std::uint32_t begin = p0 < 0 ? 0 : static_cast<std::uint32_t>(p0);
  if (begin >= length) return {};
  if (p1 >= 0 && static_cast<std::uint32_t>(p1) < length)
    return Error(ErrorCode::unsupported,
                 fmt::format("positions {} to {} of {} cannot be removed: only a range to the end can", begin,
                             p1, length));
  MF_TRY_STATUS(session.rewind(begin));
  return {};
}

// Returns 0, the model's own number, also for numbers above it.
std::uint32_t clamped_experts(const ModelConfig& config, int asked) {
  if (asked <= 0) return 0;
  std::uint32_t most = std::numeric_limits<std::uint32_t>::max();
  for (const LayerConfig& layer : config.layers)
    if (const auto* moe = std::get_if<MoeConfig>(&layer.mlp)) most = std::min(most, moe->experts_per_token);
  const auto wanted = static_cast<std::uint32_t>(asked);
  return wanted >= most ? 0 : wanted;
}

// Packs the artifacts if necessary, and reports to the progress function of the caller.
Result<PackedOriginals> packed_model_of(FileSystem& files, const mf_init_options& given) {
  if (given.weights == nullptr) return null_argument("weights");
  MF_TRY(const FileInfo info, files.info(given.weights));
  if (info.kind == FileKind::directory) {
    MF_TRY(PackedModel model, PackedModel::open(files, given.weights));
    return PackedOriginals{std::move(model), folder_name(given.weights)};
  }
  if (given.manifest == nullptr) return null_argument("manifest");
  if (given.experts_dir == nullptr) return null_argument("experts_dir");
  std::atomic<bool> cancelled = false;
  const auto requested = [&] { return given.cancel != nullptr && given.cancel->requested; };
  const auto report = [&](const PackProgress& progress) {
    const bool stops = given.progress != nullptr &&
                       given.progress(given.user, progress.done_bytes, progress.total_bytes) != 0;
    if (stops || requested()) cancelled = true;
  };
  if (requested()) cancelled = true;
  return pack_originals(files, {given.weights, given.manifest, given.experts_dir, given.use_2bit != 0},
                        report, &cancelled);
}

Result<mf_ctx*> open_context(const mf_init_options& given, EngineOptions options,
                             std::optional<int> experts_per_token) {
  PosixFileSystem files;
  MF_TRY(PackedOriginals packed, packed_model_of(files, given));
  if (experts_per_token)
    options.experts_per_token = clamped_experts(packed.model.config(), *experts_per_token);
  MF_TRY(const auto engine, Engine::open(files, std::move(packed.model), options));
  MF_TRY(Session session, engine->new_session());
  return new mf_ctx(engine, std::move(session), std::move(packed.name));
}

constexpr std::size_t kFirstInitOptions = sizeof(mf_init_options);

}  // namespace
}  // namespace moeflux

using namespace moeflux;

mf_ctx* mf_init_model(const char* weights, const char* manifest, const char* /*vocab*/,
                      const char* experts_dir, int experts_per_token, int use_2bit) {
  mf_ctx* ctx = nullptr;
  at_boundary(last_of(nullptr), [&]() -> Status {
    mf_init_options given{};
    given.weights = weights;
    given.manifest = manifest;
    given.experts_dir = experts_dir;
    given.use_2bit = use_2bit != 0;
    EngineOptions options;
    options.precision = Precision::exact;  // as in the original, whose API cannot choose
    MF_TRY(ctx, open_context(given, options, experts_per_token));
    return {};
  });
  return ctx;
}

mf_status mf_init_model_with(const mf_init_options* options, mf_ctx** ctx, mf_message* why) {
  const mf_status status = at_boundary(last_of(nullptr), [&]() -> Status {
    if (ctx == nullptr) return null_argument("ctx");
    *ctx = nullptr;
    if (options == nullptr) return null_argument("options");
    MF_TRY(const mf_init_options given, read_options(options, "mf_init_options", kFirstInitOptions));
    MF_TRY(const mf_engine_options known, read_engine_options(given.engine));
    if (known.packed_model != nullptr)
      return Error(
          ErrorCode::invalid_argument,
          fmt::format("packed_model is '{}', expected NULL: weights names the model", known.packed_model));
    MF_TRY(EngineOptions engine, engine_options_of(known));
    if (known.precision == nullptr) engine.precision = Precision::exact;
    MF_TRY(*ctx, open_context(given, engine, std::nullopt));
    return {};
  });
  if (status != MF_OK && why != nullptr) *why = *last_of(nullptr);
  return status;
}

void mf_free_model(mf_ctx* ctx) { delete ctx; }

mf_engine* mf_ctx_engine(mf_ctx* ctx) { return ctx == nullptr ? nullptr : &ctx->engine; }
mf_session* mf_ctx_session(mf_ctx* ctx) { return ctx == nullptr ? nullptr : &ctx->session; }

const char* mf_last_error(const mf_ctx* ctx) { return last_of(ctx)->text; }

int mf_eval_prompt(mf_ctx* ctx, const int32_t* tokens, size_t count, size_t start_pos, int seq_id,
                   float* logits) {
  return on_context(ctx, [&](Session& session) -> Status {
    if (tokens == nullptr && count > 0) return null_argument("tokens");
    return eval(session, {tokens, count}, start_pos, seq_id, logits);
  });
}

int mf_eval_token(mf_ctx* ctx, int32_t token, size_t pos, int seq_id, float* logits) {
  return on_context(ctx, [&](Session& session) { return eval(session, {&token, 1}, pos, seq_id, logits); });
}

void mf_memory_clear(mf_ctx* ctx) {
  on_context(ctx, [](Session& session) -> Status {
    session.clear();
    return {};
  });
}

int mf_memory_seq_rm(mf_ctx* ctx, int seq_id, int p0, int p1) {
  return on_context(ctx, [&](Session& session) { return remove_range(session, seq_id, p0, p1); }) == MF_OK;
}

int mf_memory_seq_pos_max(mf_ctx* ctx, int seq_id) {
  int length = -1;
  on_context(ctx, [&](Session& session) -> Status {
    MF_TRY_STATUS(expect_sequence(seq_id));
    length = static_cast<int>(session.position());
    return {};
  });
  return length;
}

size_t mf_n_vocab(const mf_ctx* ctx) { return ctx == nullptr ? 0 : ctx->engine.engine->config().vocabulary; }

size_t mf_n_ctx(const mf_ctx* ctx) { return ctx == nullptr ? 0 : ctx->session.session.context(); }

int32_t mf_eos(const mf_ctx* ctx) {
  if (ctx == nullptr) return -1;
  const auto& tokens = ctx->engine.engine->config().end_tokens;
  return tokens.empty() ? -1 : static_cast<std::int32_t>(tokens.front().index());
}

int mf_is_end(const mf_ctx* ctx, int32_t token) {
  if (ctx == nullptr || token < 0) return 0;
  const auto& tokens = ctx->engine.engine->config().end_tokens;
  return std::ranges::find(tokens, TokenId(static_cast<std::uint32_t>(token))) != tokens.end();
}

const char* mf_model_name(const mf_ctx* ctx) { return ctx == nullptr ? nullptr : ctx->name.c_str(); }

size_t mf_state_size(const mf_ctx* ctx) { return ctx == nullptr ? 0 : ctx->session.session.saved_bytes(); }

long long mf_state_save(mf_ctx* ctx, void* buffer, size_t size) {
  long long written = -1;
  on_context(ctx, [&](Session& session) -> Status {
    MF_TRY(const std::size_t bytes, save_into(session, buffer, size));
    written = static_cast<long long>(bytes);
    return {};
  });
  return written;
}

int mf_state_load(mf_ctx* ctx, const void* buffer, size_t size) {
  const mf_status status =
      on_context(ctx, [&](Session& session) { return load_from(session, buffer, size); });
  return status == MF_OK ? 0 : -1;
}

int mf_checkpoint(mf_ctx* ctx, size_t pos) {
  return on_context(ctx, [&](Session& session) -> Status {
    MF_TRY_STATUS(expect_position(session, pos));
    session.checkpoint();
    return {};
  });
}

int mf_restore_to(mf_ctx* ctx, size_t pos) {
  return on_context(ctx, [&](Session& session) -> Status {
    if (pos > session.context())
      return Error(ErrorCode::no_checkpoint, fmt::format("there is no checkpoint at position {}", pos));
    return session.restore_to(static_cast<std::uint32_t>(pos));
  });
}

void mf_set_max_checkpoints(mf_ctx* ctx, size_t count) {
  on_context(ctx, [&](Session& session) -> Status {
    session.set_max_checkpoints(count);
    return {};
  });
}

size_t mf_checkpoint_count(const mf_ctx* ctx) {
  return ctx == nullptr ? 0 : ctx->session.session.checkpoint_count();
}

void mf_prefetch_stats(const mf_ctx* ctx, uint64_t* hits, uint64_t* misses) {
  ExpertStatistics counted;
  if (ctx != nullptr) counted = ctx->engine.engine->expert_statistics() - ctx->counted_from;
  if (hits != nullptr) *hits = counted.useful_guesses + counted.late_guesses;
  if (misses != nullptr) *misses = counted.wrong_guesses;
}

void mf_prefetch_reset(mf_ctx* ctx) {
  on_context(ctx, [&](Session& session) -> Status {
    ctx->counted_from = session.engine().expert_statistics();
    return {};
  });
}

void mf_prefetch_clear_predictions(mf_ctx* ctx) {
  on_context(ctx, [](Session& session) -> Status {
    session.forget_predictions();
    return {};
  });
}
