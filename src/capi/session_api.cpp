#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

#include "capi/boundary.h"
#include "capi/handles.h"
#include "capi/saving.h"
#include "io/posix_file_system.h"

namespace moeflux {
namespace {

constexpr std::size_t kFirstSessionOptions = sizeof(mf_session_options);

// Runs `call` on the session behind a handle.
template <class Handle, class Call>
mf_status on_session(Handle* handle, mf_message* why, Call call) {
  return at_boundary(why, [&]() -> Status {
    if (handle == nullptr) return null_argument("session");
    return call(handle->session);
  });
}

}  // namespace

Status expect_room(const Session& session, std::size_t count) {
  if (count <= session.context() - session.position()) return {};
  return Error(ErrorCode::context_full,
               fmt::format("{} tokens at position {} do not fit into a context of {}", count,
                           session.position(), session.context()));
}

}  // namespace moeflux

using namespace moeflux;

mf_status mf_session_open(mf_engine* engine, const mf_session_options* options, mf_session** session,
                          mf_message* why) {
  return at_boundary(why, [&]() -> Status {
    if (session == nullptr) return null_argument("session");
    *session = nullptr;
    if (engine == nullptr) return null_argument("engine");
    MF_TRY(const mf_session_options known, read_options(options, "mf_session_options", kFirstSessionOptions));
    MF_TRY(Session started, engine->engine->new_session());
    if (known.max_checkpoints != 0) started.set_max_checkpoints(known.max_checkpoints);
    if (known.checkpoint_budget_bytes != 0)
      started.set_checkpoint_budget_bytes(known.checkpoint_budget_bytes);
    *session = new mf_session(std::move(started));
    return {};
  });
}

void mf_session_close(mf_session* session) { delete session; }

uint32_t mf_session_position(const mf_session* session) {
  return session == nullptr ? 0 : session->session.position();
}

mf_status mf_session_extend(mf_session* session, const uint32_t* tokens, size_t count, float* logits,
                            const mf_step_options* options, mf_message* why) {
  return on_session(session, why, [&](Session& timeline) -> Status {
    if (tokens == nullptr && count > 0) return null_argument("tokens");
    MF_TRY(const mf_step_options known, read_step_options(options));
    MF_TRY_STATUS(expect_room(timeline, count));
    StepOptionsOfC step(known);
    std::vector<TokenId> ids;
    ids.reserve(count);
    for (std::size_t i = 0; i < count; ++i) ids.emplace_back(tokens[i]);
    std::span<float> out;
    if (logits != nullptr) out = {logits, timeline.engine().config().vocabulary};
    MF_TRY_STATUS(timeline.extend(ids, out, step.get()));
    return {};
  });
}

mf_status mf_session_fork(const mf_session* session, mf_session** other, mf_message* why) {
  if (other != nullptr) *other = nullptr;
  return on_session(session, why, [&](const Session& timeline) -> Status {
    if (other == nullptr) return null_argument("other");
    MF_TRY(Session forked, timeline.fork());
    *other = new mf_session(std::move(forked));
    return {};
  });
}

mf_status mf_session_clear(mf_session* session, mf_message* why) {
  return on_session(session, why, [](Session& timeline) -> Status {
    timeline.clear();
    return {};
  });
}

mf_status mf_session_checkpoint(mf_session* session, mf_message* why) {
  return on_session(session, why, [](Session& timeline) -> Status {
    timeline.checkpoint();
    return {};
  });
}

mf_status mf_session_restore_to(mf_session* session, uint32_t position, mf_message* why) {
  return on_session(session, why, [&](Session& timeline) { return timeline.restore_to(position); });
}

mf_status mf_session_rewind(mf_session* session, uint32_t position, const mf_step_options* options,
                            mf_message* why) {
  return on_session(session, why, [&](Session& timeline) -> Status {
    MF_TRY(const mf_step_options known, read_step_options(options));
    StepOptionsOfC step(known);
    MF_TRY_STATUS(timeline.rewind(position, step.get()));
    return Status();
  });
}

mf_status mf_session_rewind_strict(mf_session* session, uint32_t position, mf_message* why) {
  return on_session(session, why, [&](Session& timeline) { return timeline.rewind_strict(position); });
}

mf_status mf_session_set_max_checkpoints(mf_session* session, size_t count, mf_message* why) {
  return on_session(session, why, [&](Session& timeline) -> Status {
    timeline.set_max_checkpoints(count);
    return {};
  });
}

size_t mf_session_checkpoint_count(const mf_session* session) {
  return session == nullptr ? 0 : session->session.checkpoint_count();
}

uint64_t mf_session_saved_bytes(const mf_session* session) {
  return session == nullptr ? 0 : session->session.saved_bytes();
}

mf_status mf_session_save(const mf_session* session, void* buffer, size_t size, size_t* written,
                          mf_message* why) {
  if (written != nullptr) *written = 0;
  return on_session(session, why, [&](const Session& timeline) -> Status {
    MF_TRY(const std::size_t bytes, save_into(timeline, buffer, size));
    if (written != nullptr) *written = bytes;
    return {};
  });
}

mf_status mf_session_load(mf_session* session, const void* bytes, size_t size, mf_message* why) {
  return on_session(session, why, [&](Session& timeline) { return load_from(timeline, bytes, size); });
}

mf_status mf_session_save_file(const mf_session* session, const char* path, mf_message* why) {
  return on_session(session, why, [&](const Session& timeline) -> Status {
    if (path == nullptr) return null_argument("path");
    PosixFileSystem files;
    return timeline.save(files, path);
  });
}

mf_status mf_session_load_file(mf_session* session, const char* path, mf_message* why) {
  return on_session(session, why, [&](Session& timeline) -> Status {
    if (path == nullptr) return null_argument("path");
    PosixFileSystem files;
    return timeline.load(files, path);
  });
}
